package users

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherUsersFile: the daemon reads the file as root, and again with fewer rights.
func TestOtherUsersFile(t *testing.T) {
	const nobody = 65534
	for _, c := range []struct {
		name     string
		uid, gid int
		mode     os.FileMode
		wrong    bool
	}{
		{"root's", 0, 0, 0o600, false},
		{"another user's", nobody, 0, 0o600, true},
		{"of our group", nobody, 0, 0o640, false},
		{"of another group", nobody, nobody, 0o640, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "users")
			if err := os.WriteFile(path, nil, c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(path, c.uid, c.gid); err != nil {
				t.Fatal(err)
			}
			_, _, err := load(path)
			if c.wrong != (err != nil && strings.Contains(err.Error(), "chown root "+path)) {
				t.Error(err)
			}
		})
	}
}

// A test of the users' file with a wrong owner.

package users

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherUsersFile: a file of another user is refused, whatever its mode, because its owner can change passwords.
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
		{"another user's, of our group", nobody, 0, 0o640, true},
		{"of another group", 0, nobody, 0o640, false},
		{"another user's and group's", nobody, nobody, 0o640, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "users")
			if err := os.WriteFile(path, nil, c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(path, c.uid, c.gid); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path, slog.New(slog.DiscardHandler))
			if c.wrong != (err != nil && strings.Contains(err.Error(), "chown root "+path)) {
				t.Error(err)
			}
		})
	}
}

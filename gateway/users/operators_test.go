package users

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestOperatorsFile: accounts are added, changed and removed, other lines stay as they are, and an open file follows.
func TestOperatorsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admins")
	netnstest.Must(t, SetOperator(path, "ann", "ann:"+someHash+":admin"))
	info, err := os.Stat(path)
	netnstest.Must(t, err)
	if info.Mode().Perm() != 0o640 {
		t.Errorf("mode %#o", info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	netnstest.Must(t, err)
	netnstest.Must(t, os.WriteFile(path, append([]byte("# who may\n\n"), text...), 0o600))
	o, err := OpenOperators(path, slog.New(slog.DiscardHandler))
	netnstest.Must(t, err)
	_, before, _ := o.Find("ann")
	token, hashed := NewToken()
	netnstest.Must(t, SetOperator(path, "backup", "backup:"+hashed+":read-only,whois"))
	netnstest.Must(t, SetOperator(path, "carol", "carol:"+ProxyOnly+":read-only"))
	netnstest.Must(t, SetOperator(path, "ann", "ann:"+someHash+":read-only"))
	ann, mark, known := o.Find("ann")
	if !known || ann.Changes() || ann.Whois || mark == before {
		t.Errorf("%+v, mark %q, before %q", ann, mark, before)
	}
	if name := o.OfToken(token); name != "backup" {
		t.Errorf("the token is %q's", name)
	}
	if name := o.OfToken(token+"x") + o.OfToken(""); name != "" {
		t.Errorf("a wrong token is %q's", name)
	}
	for _, name := range []string{"backup", "carol", "none"} { // no password is theirs
		if err := o.Authenticate(context.Background(), session.Credentials{User: name, Password: token}); !errors.Is(err,
			session.ErrRejected) {
			t.Errorf("%s: %v", name, err)
		}
	}
	netnstest.Must(t, SetOperator(path, "ann", ""))
	if err := SetOperator(path, "ann", ""); !errors.Is(err, ErrNoOperator) {
		t.Errorf("removed twice: %v", err)
	}
	if text, _ = os.ReadFile(path); !strings.HasPrefix(string(text), "# who may\n\nbackup:") {
		t.Errorf("the file is\n%s", text)
	}
	netnstest.Must(t, os.WriteFile(path, []byte("odd"), 0o600))
	if err := SetOperator(path, "ann", "ann:proxy:admin"); err == nil || !strings.Contains(err.Error(), path+":1:") {
		t.Errorf("a file with mistakes: %v", err)
	}
	if _, _, known := o.Find("backup"); !known {
		t.Error("a file with mistakes changes the accounts")
	}
}

// TestOperatorMistakes: each mistake of a line is named, and no message has a hash.
func TestOperatorMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"ann:" + someHash: "must be name:hash:role", ":proxy:admin": "the name must be", "ann:proxy:root": `not "root"`,
		"ann:proxy:admin,whois": "the role must be", "ann:tulip:admin": "argon2id", "ann:$sha256$abc:admin": "admin token",
		"a\tb:proxy:admin": "the name must be"} {
		if _, _, err := parseOperator(line); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "tulip") {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

func FuzzOperators(f *testing.F) {
	f.Add("ann:" + someHash + ":admin")
	f.Add("ann:proxy:read-only,whois")
	f.Fuzz(func(t *testing.T, line string) {
		name, acc, err := parseOperator(line)
		if err == nil && (name == "" || acc.Role != Admin && acc.Role != ReadOnly) {
			t.Errorf("%q is %q, %+v", line, name, acc.Operator)
		}
	})
}

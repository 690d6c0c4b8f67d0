package gateway

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// knowing is a source that admits one name and counts what it is asked.
type knowing struct {
	name  string
	asked int
}

func (k *knowing) Authenticate(_ context.Context, c session.Credentials) (session.Login, error) {
	k.asked++
	if c.User != k.name {
		return session.Login{}, session.Reject("says the server")
	}
	return session.Login{User: c.User}, nil
}

// TestSourcesAreAskedWhereTheNameIs: a name of RADIUS pays for no local hash, a local
// name for no request, and a wrong password of either asks both.
func TestSourcesAreAskedWhereTheNameIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte("ann:"+users.Hash("tulip")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	accounts, err := users.Open(path, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	server := &knowing{name: "ben"}
	a := authenticator{accounts: accounts, radius: server}
	for _, tt := range []struct {
		user, password string
		asked          int
		right          bool
	}{{"ann", "tulip", 0, true}, {"ben", "any", 1, true}, {"ann", "wrong", 1, false}, {"cid", "wrong", 1, false}} {
		server.asked = 0
		login, err := a.Authenticate(t.Context(), session.Credentials{User: tt.user, Password: tt.password})
		if (err == nil) != tt.right || server.asked != tt.asked || tt.right && login.User != tt.user {
			t.Errorf("%s with %q: %v, the server was asked %d times, want %d", tt.user, tt.password, err, server.asked, tt.asked)
		}
		var no *session.Rejection
		if !tt.right && (!errors.As(err, &no) || no.Message != "says the server") {
			t.Errorf("%s: %v, want the server's message", tt.user, err)
		}
	}
	if got := a.sources("ben", false)[0]; got != source(server) {
		t.Errorf("for a name without an account %T is asked first", got)
	}
	if got := a.sources("ann", false)[0]; got != source(accounts) {
		t.Errorf("for a name with an account %T is asked first", got)
	}
}

package access

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// server is a source that admits one name or fails, and counts the logins that it is asked about.
type server struct {
	name  string
	fails error
	asked int
	left  time.Duration // of its time when it was asked
}

func (s *server) Authenticate(ctx context.Context, c session.Credentials) (session.Login, error) {
	s.asked++
	if end, bounded := ctx.Deadline(); bounded {
		s.left = time.Until(end)
	}
	switch {
	case s.fails != nil:
		return session.Login{}, s.fails
	case c.User != s.name:
		return session.Login{}, session.Reject("says " + s.name + "'s server")
	}
	return session.Login{User: c.User}, nil
}

func accounts(t *testing.T) Hashed {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(path, []byte("ann:"+users.Hash("tulip")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := users.Open(path, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	return Hashed{list}
}

// TestSourceOrderByName: a name of a server pays for no local hash, a local name for no request, and a
// wrong password of either asks both.
func TestSourceOrderByName(t *testing.T) {
	local, ben := accounts(t), &server{name: "ben"}
	remote := Remote{ben, time.Minute}
	sources := Sources{remote, local}
	for _, tt := range []struct {
		user, password string
		asked          int
		right          bool
	}{{"ann", "tulip", 0, true}, {"ben", "any", 1, true}, {"ann", "wrong", 1, false}, {"cid", "wrong", 1, false}} {
		ben.asked = 0
		login, err := sources.Authenticate(t.Context(), session.Credentials{User: tt.user, Password: tt.password})
		if (err == nil) != tt.right || ben.asked != tt.asked || tt.right && login.User != tt.user {
			t.Errorf("%s with %q: %v, the server was asked %d times, want %d", tt.user, tt.password, err, ben.asked, tt.asked)
		}
		var no *session.Rejection
		if !tt.right && (!errors.As(err, &no) || no.Message != "says ben's server") {
			t.Errorf("%s: %v, want the server's message", tt.user, err)
		}
	}
	for user, want := range map[string][]Source{"ben": {remote, local}, "ann": {local, remote}} {
		if got := sources.order(session.Credentials{User: user}); !slices.Equal(got, want) {
			t.Errorf("about %s are asked %v", user, got)
		}
	}
	if got := sources.order(session.Credentials{User: "ann", CHAP: &session.CHAP{}}); !slices.Equal(
		got, []Source{remote}) {
		t.Errorf("a challenge is put to %v", got)
	}
}

// TestSourceOrderAndErrors: sources are asked in their order, their rejections are combined, and a source that fails
// does not reject the user.
func TestSourceOrderAndErrors(t *testing.T) {
	first, second, away := &server{name: "ada"}, &server{name: "ben"}, &server{fails: errors.New("nobody answers")}
	list := func(servers ...*server) (s Sources) {
		for _, one := range servers {
			s = append(s, Remote{one, time.Minute})
		}
		return s
	}
	login, err := list(first, second).Authenticate(
		t.Context(), session.Credentials{User: "ben", Key: session.Key{MAC: [6]byte{2}}})
	if err != nil || login.User != "ben" || login.SessionID == "" || login.For.MAC != [6]byte{2} || first.asked != 1 {
		t.Errorf("%+v, %v; the first was asked %d times", login, err, first.asked)
	}
	var no *session.Rejection
	if _, err := list(first, second).Authenticate(t.Context(), session.Credentials{User: "cid"}); !errors.As(err, &no) ||
		no.Message != "says ben's server" {
		t.Errorf("rejected by all: %v, want what the last one says", err)
	}
	if _, err := list(away, first).Authenticate(t.Context(), session.Credentials{User: "cid"}); !errors.Is(
		err, away.fails) {
		t.Errorf("rejected by one of two: %v, want the other's fault", err)
	}
	if login, err := list(away, first).Authenticate(t.Context(), session.Credentials{User: "ada"}); err != nil ||
		login.User != "ada" {
		t.Errorf("admitted by one of two: %v", err)
	}
	if _, err := (Sources{}).Authenticate(t.Context(), session.Credentials{User: "ada"}); !errors.Is(
		err, session.ErrRejected) {
		t.Errorf("without a source: %v", err)
	}
}

// TestRemoteIsBounded: servers have a limit for all of them, local accounts none.
func TestRemoteIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{name: "ben"}
		if _, err := (Sources{Remote{s, 8 * time.Second}}).Authenticate(
			t.Context(), session.Credentials{User: "ben"}); err != nil || s.left != 8*time.Second {
			t.Errorf("%v, with %s left", err, s.left)
		}
	})
}

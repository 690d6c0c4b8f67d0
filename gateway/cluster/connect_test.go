package cluster

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// TestNewPassword: a store's password that changes is read again at the next connection, and why there is none is said.
func TestNewPassword(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	server.CLI("ACL", "SETUSER", "gw", "on", ">first", "~*", "+@all")
	var password atomic.Value
	password.Store("first")
	o := options(server, "gw1")
	o.User = "gw"
	o.Renew = func() (Secrets, error) {
		now := Secrets{Password: password.Load().(string)}
		if now.Password == "" {
			return now, errors.New("store.password_file: f does not exist")
		}
		return now, nil
	}
	s, f, _ := join(t, o)
	f.put("a", "first")
	inStore(t, s, f)
	kick := func() { server.CLI("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }
	server.CLI("ACL", "SETUSER", "gw", "resetpass", ">second")
	kick()
	netnstest.Await(t, "the store refuses the former password", func() error {
		if st := s.State(); st.Up || !strings.Contains(st.Why, "store.user and its password") {
			return errors.New(st.Why)
		}
		return nil
	})
	password.Store("second")
	await(t, s, true)
	f.put("a", "second")
	inStore(t, s, f)
	password.Store("")
	kick()
	netnstest.Await(t, "the file is named", func() error {
		if st := s.State(); st.Up || st.Why != "store.password_file: f does not exist" {
			return errors.New(st.Why)
		}
		return nil
	})
}

// TestTry: a store that can be used gives no error, and one that cannot gives the reason.
func TestTry(t *testing.T) {
	server := redistest.Start(t, redistest.Place{})
	server.CLI("ACL", "SETUSER", "gw", "on", ">right", "~*", "+@all")
	server.CLI("ACL", "SETUSER", "other", "on", ">right", "~else:*", "+@all")
	for _, c := range []struct{ user, password, addr, want string }{
		{"", "", server.Addr, ""},
		{"gw", "right", server.Addr, ""},
		{"gw", "wrong", server.Addr, "the server refuses store.user and its password"},
		{"nobody", "right", server.Addr, "the server refuses store.user and its password"},
		{"other", "right", server.Addr, "store.user may not do what gatewayd needs"},
		{"", "", "127.0.0.1:1", "connection refused"},
		{"", "", "store.invalid:6379", "store.invalid"},
	} {
		o := options(server, "gw1")
		o.User, o.Password, o.Addresses = c.user, c.password, []string{c.addr}
		err := Try(t.Context(), o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s at %s: %v, want %q", c.user, c.password, c.addr, err, c.want)
		}
	}
}

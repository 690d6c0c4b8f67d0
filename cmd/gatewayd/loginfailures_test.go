// A test of what the log and the portal say of logins that fail. newNetwork makes the host of a gateway with clients
// and a server, in namespaces (world_test.go).

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/ppp"
)

// TestReasonsOfFailedLogins: FreeRADIUS accepts a login on terms that gatewayd cannot carry out, asks for more than a
// password, or does not answer. At the portal and over PPPoE the guest gets an answer that does not blame the password,
// also if gatewayd has sent its request as often as it may, and the log has the reason.
func TestReasonsOfFailedLogins(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	w.Lines = `methods = ["pap"]`
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	w.sh(`sed -i 's/^timeout = .*/timeout = "2s"/' $DIR/gatewayd.toml`)
	w.start()
	guest := w.client()
	pppoeGuest := w.addUnaddressed()
	for _, c := range []struct {
		user, page, message, logged string // message is the reason over PPPoE
	}{
		{"term", "this account cannot be used in this network", "this account is not for this network", "Service-Type 5"},
		{"token", "needs more than a password", "this account needs more than a password", "Access-Challenge"},
		{"ann", "Your details have not been checked", "try again later", "no answer"},
	} {
		if c.user == "ann" {
			must(t, w.auth.process.cmd.Process.Signal(syscall.SIGSTOP))
		}
		seen := len(w.daemon.output())
		token, err := guest.token("login")
		must(t, err)
		page, err := guest.try(fmt.Sprintf(
			"curl -s --max-time 25 -d token=%s -d username=%s -d password=right http://%s/login", token, c.user, portalAddr))
		if err != nil || !strings.Contains(page, c.page) || strings.Contains(page, "password is wrong") {
			t.Errorf("%s is answered, %v:\n%s", c.user, err, page)
		}
		s := pppoeGuest.subscriber(ppp.Config{User: c.user, Password: "right"})
		if _, err := s.dial(); !errors.Is(err, ppp.ErrRefused) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s over PPPoE: %v", c.user, err)
		}
		if n := strings.Count(w.daemon.output()[seen:], c.logged); n < 2 {
			t.Errorf("%s: the log has %d times %q:\n%s", c.user, n, c.logged, w.daemon.output()[seen:])
		}
	}
}

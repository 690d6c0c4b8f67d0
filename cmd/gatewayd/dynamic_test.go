// A test of requests by which RADIUS servers end sessions and change their limits (RFC 5176). newLines makes the host
// of a gateway with PPPoE clients, in namespaces (pppoe_test.go).

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/ppp"
)

// radclient has FreeRADIUS's radclient send gatewayd a request about sessions, and returns what it prints. kind is
// "coa" (change of authorization) or "disconnect" (RFC 5176).
func (w *world) radclient(kind, secret, attributes string) string {
	w.t.Helper()
	out, _ := w.try(fmt.Sprintf(
		"printf '%%s\\n' %q | nsenter --net=/run/netns/$ID-router radclient -x -r 2 -t 3 127.0.0.1:3799 %s %q 2>&1",
		attributes, kind, secret))
	return out
}

// TestServersChangeSessions: RADIUS servers can end sessions and change their limits, for clients at the portal and on
// PPPoE. Requests about unknown sessions or other gateways, and requests with a wrong signature, change nothing. Long:
// the steps of one run, each of which needs the state that the one before left.
func TestServersChangeSessions(t *testing.T) {
	t.Parallel()
	w := newLines(t, `echo = "1s"`)
	ann := w.client()
	ann.logIn("ann")
	s := w.addUnaddressed().subscriber(ppp.Config{User: "fixed", Password: "right"})
	_, err := s.dial()
	must(t, err)
	for _, user := range []string{"ann", "fixed"} {
		one, err := w.session(user)
		must(t, err)
		id := "Acct-Session-Id = " + one.ID
		for _, c := range []struct{ kind, secret, attributes, answer string }{
			{"coa", w.Secret, id + ", WISPr-Bandwidth-Max-Down = 300000, Session-Timeout = 3600, Message-Authenticator = 0x00",
				"CoA-ACK"},
			{"coa", w.Secret, id + ", ChilliSpot-Max-Total-Octets = 1000000000", "CoA-ACK"},
			{"coa", w.Secret, "User-Name = nobody, Session-Timeout = 3600", "Session-Context-Not-Found"},
			{"coa", w.Secret, id + ", Framed-IP-Address = 10.1.0.66, Session-Timeout = 3600", "Session-Context-Not-Found"},
			{"coa", w.Secret, "Session-Timeout = 3600", "Missing-Attribute"},
			{"coa", w.Secret, id, "Missing-Attribute"},
			{"coa", w.Secret, id + ", NAS-Identifier = another, Session-Timeout = 3600", "NAS-Identification-Mismatch"},
			{"coa", w.Secret, id + ", NAS-IP-Address = 192.0.2.99, Session-Timeout = 3600", "NAS-Identification-Mismatch"},
			{"coa", w.Secret, id + ", Framed-MTU = 1400", "Unsupported-Attribute"},
			{"coa", w.Secret, id + ", Service-Type = Authorize-Only", "Unsupported-Service"},
			{"disconnect", w.Secret, "User-Name = nobody", "Session-Context-Not-Found"},
			{"disconnect", w.Secret, id + ", Session-Timeout = 3600", "Unsupported-Attribute"},
		} {
			if out := w.radclient(c.kind, c.secret, c.attributes); !strings.Contains(out, c.answer) {
				t.Errorf("%s: %s with %s is answered:\n%s", user, c.kind, c.attributes, out)
			}
		}
		if out := w.radclient("disconnect", "a wrong secret of 24 chars", id); strings.Contains(out, "ACK") ||
			strings.Contains(out, "NAK") {
			t.Errorf("a forged request is answered:\n%s", out)
		}
		changed, err := w.session(user)
		must(t, err)
		if l := changed.Limits; changed.ID != one.ID || l.DownBps != 300000 || l.SessionTimeoutSeconds != 3600 ||
			l.TotalBytes != 1_000_000_000 || l.UpBps != one.Limits.UpBps {
			t.Errorf("%s: was %+v, is %+v", user, one, changed)
		}
		w.kill()
		w.start()
		if again, err := w.session(user); err != nil || again.Limits != changed.Limits {
			t.Errorf("%s: was %+v, is %+v, %v after a restart", user, changed, again, err)
		}
		if out := w.radclient("disconnect", w.Secret, id+", User-Name = "+strings.ToUpper(user)); !strings.Contains(
			out, "Disconnect-ACK") {
			t.Errorf("%s: answered:\n%s", user, out)
		}
		if r := w.acct.awaitAccounting("Stop", one.ID); r.value("Acct-Terminate-Cause") != "Admin-Reset" {
			t.Errorf("accounted as %v", r)
		}
		if _, err := w.session(user); err == nil {
			t.Errorf("%s still has a session", user)
		}
	}
	s.awaitEnd()
	short := w.addUnaddressed().subscriber(ppp.Config{User: "ann", Password: "right"})
	terms, err := short.dial()
	must(t, err)
	short.ping(terms.Local, serverAddr, 1000)
	one, err := w.session("ann")
	must(t, err)
	if out := w.radclient("coa", w.Secret, "Framed-IP-Address = "+terms.Local.String()+
		", ChilliSpot-Max-Total-Octets = 1000"); !strings.Contains(out, "CoA-ACK") {
		t.Errorf("answered:\n%s", out)
	}
	if r := w.acct.awaitAccounting("Stop", one.ID); r.value("Acct-Terminate-Cause") != "Session-Timeout" {
		t.Errorf("with less than it has used, accounted as %v", r)
	}
	st, err := w.status()
	must(t, err)
	if st.RADIUS["disconnect"] != 1 || st.RADIUS["dynamic-forged"] != 0 { // since the last restart
		t.Errorf("counted: %v", st.RADIUS)
	}
}

// TestServersChangeSessionsElsewhere: a server's request to one gateway about a session of another one that shares its
// store is carried out there, and the answer is that one's. While that gateway is away the answer says that it cannot
// be asked. Long: the steps of one run, each of which needs the state that the one before left.
func TestServersChangeSessionsElsewhere(t *testing.T) {
	t.Parallel()
	one, two := newLines(t, ""), newLines(t, "")
	one.kill()
	two.kill()
	one.shareWith(two)
	one.start()
	two.start()
	ann := one.client()
	ann.logIn("ann")
	began, err := one.session("ann")
	must(t, err)
	id := "Acct-Session-Id = " + began.ID
	answers := func(kind, attributes, want string) {
		t.Helper()
		eventually(t, kind+" with "+attributes+" is answered by "+want, func() error {
			if out := two.radclient(kind, two.Secret, attributes); !strings.Contains(out, want) {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	}
	answers("coa", id+", WISPr-Bandwidth-Max-Down = 300000, Message-Authenticator = 0x00", "CoA-ACK")
	if s, err := one.session("ann"); err != nil || s.Limits.DownBps != 300000 || s.ID != began.ID {
		t.Errorf("after the change it is %+v, %v", s, err)
	}
	answers("coa", id+", Framed-MTU = 1400", "Unsupported-Attribute")
	answers("coa", id+", User-Name = bob, Session-Timeout = 3600", "Session-Context-Not-Found")
	answers("disconnect", "User-Name = nobody", "Session-Context-Not-Found")
	answers("disconnect", "Framed-IP-Address = "+ann.addr.String()+", User-Name = ANN", "Disconnect-ACK")
	if r := one.acct.awaitAccounting("Stop", began.ID); r.value("Acct-Terminate-Cause") != "Admin-Reset" {
		t.Errorf("accounted as %v", r)
	}
	ann.logIn("ann")
	eventually(t, "the store has the new session", func() error {
		if out := one.sh(one.program + ` --socket $DIR/run/control.sock cluster sessions --user ann`); !strings.Contains(
			out, "authenticated") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	one.kill()
	answers("disconnect", "User-Name = ann", "Proxy-Request-Not-Routable")
	answers("disconnect", "User-Name = nobody", "Session-Context-Not-Found")
}

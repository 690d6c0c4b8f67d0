// Tests of users who may have one session at all gateways together. shareWith lets two gateways share a server of Redis
// (store_test.go), at returns a device at another gateway, knows waits for a record (roaming_test.go).

package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestSessionsPerUserElsewhere: RADIUS allows a user one session, and two gateways share a store. Who is in at one is
// refused at the other, and is not once the session has ended. A device that logs in at the other takes its session's
// place. Of two devices that log in at the same moment, or while the store is away, one goes on. Long: the steps of one
// run, each of which needs the state that the one before left.
func TestSessionsPerUserElsewhere(t *testing.T) {
	t.Parallel()
	one, two := newWorld(t), newWorld(t)
	server := one.shareWith(two)
	one.start()
	two.start()
	storeIs(t, true, one, two)
	phone, laptop := one.client(), two.client()
	began := phone.logIn("solo")
	knows(t, server, "gw1", phone, "solo")
	laptop.refused(t, "solo")
	if s := phone.session(); s.ID != began.ID {
		t.Errorf("who was in has %+v", s)
	}
	phone.logOut()
	eventually(t, "there is room at the other gateway", func() error { return laptop.mayLogIn("solo") })
	laptop.logOut()
	one.acct.awaitAccounting("Stop", began.ID)

	began = phone.logIn("solo")
	knows(t, server, "gw1", phone, "solo")
	moved := phone.at(two)
	moved.lease()
	eventually(t, "the same device comes in at the other gateway", func() error { return moved.mayLogIn("solo") })
	goesOn(t, "the same device", moved, phone)
	if r := one.acct.awaitAccounting("Stop", began.ID); r.value("Acct-Terminate-Cause") != "User-Request" {
		t.Errorf("accounted as %v", r)
	}
	moved.logOut()

	for round := range 3 {
		eventually(t, "there is room", func() error { return phone.mayLogIn("solo") })
		phone.logOut()
		var both sync.WaitGroup
		for _, c := range []*client{phone, laptop} {
			both.Go(func() { _ = c.mayLogIn("solo") })
		}
		both.Wait()
		winner, _ := oneGoesOn(t, fmt.Sprint("round ", round), phone, laptop)
		winner.logOut()
	}

	eventually(t, "there is room", func() error { return laptop.mayLogIn("solo") })
	laptop.logOut()
	server.Kill()
	storeIs(t, false, one, two)
	first := laptop.logIn("solo")
	second := phone.logIn("solo")
	if first.State != session.Authenticated || second.State != session.Authenticated || !laptop.passes(true) {
		t.Errorf("without the store: %+v, %+v", first, second)
	}
	server.Restart()
	storeIs(t, true, one, two)
	goesOn(t, "after the store's return", laptop, phone)
	if r := one.acct.awaitAccounting("Stop", second.ID); r.value("Acct-Terminate-Cause") != "NAS-Request" {
		t.Errorf("accounted as %v", r)
	}
}

// storeIs waits until gateways have noticed that the store is there, or is away.
func storeIs(t *testing.T, up bool, all ...*world) {
	t.Helper()
	for _, w := range all {
		eventually(t, "the store's state is noticed", func() error {
			s, err := w.status()
			if err == nil && (s.Store == nil || s.Store.Up != up) {
				err = fmt.Errorf("%+v", s.Store)
			}
			return err
		})
	}
}

// mayLogIn logs a client in, and fails if it may not.
func (c *client) mayLogIn(user string) error {
	token, err := c.token("login")
	if err != nil {
		return err
	}
	code, err := c.try(c.fillIn(token, user))
	if err == nil && code != "303" {
		err = fmt.Errorf("the form is answered with %s", code)
	}
	return err
}

// refused checks that the portal says that a user has as many sessions as allowed.
func (c *client) refused(t *testing.T, user string) {
	t.Helper()
	eventually(t, "the login is refused", func() error {
		token, err := c.token("login")
		must(t, err)
		page, err := c.try(strings.Replace(c.fillIn(token, user), "-o /dev/null", "", 1))
		if err == nil && !strings.Contains(page, "as many devices") {
			err = fmt.Errorf("%s", page)
		}
		return err
	})
}

// in reports whether a client is logged in.
func (c *client) in() bool { return c.session().State == control.State(session.Authenticated) }

// oneGoesOn waits until one of two clients is logged in, and returns it first. It fails once neither is.
func oneGoesOn(t *testing.T, label string, a, b *client) (goes, other *client) {
	t.Helper()
	eventually(t, label+": one goes on", func() error {
		inA, inB := a.in(), b.in()
		if !inA && !inB {
			t.Fatalf("%s: neither goes on", label)
		}
		if goes, other = a, b; inB {
			goes, other = b, a
		}
		if inA && inB {
			return fmt.Errorf("both are in")
		}
		return nil
	})
	return goes, other
}

// goesOn is oneGoesOn where it is known which one.
func goesOn(t *testing.T, label string, want, other *client) {
	t.Helper()
	if goes, _ := oneGoesOn(t, label, want, other); goes != want || !want.passes(true) || other.passes(false) {
		t.Errorf("%s: %s goes on at %s", label, goes.addr, goes.w.id)
	}
}

// Tests of limits on guessed passwords by address and access line. clientA and clientB are MAC addresses of two
// clients, clientAddr(i) that of client i of many (attempts_test.go).

package guesses

import (
	"testing"
	"testing/synctest"
	"time"
)

// guess tries a wrong password as a client. It returns how long the client must wait, if it must.
func guess(t *testing.T, g *Guard, identity Attempter, user string) time.Duration {
	t.Helper()
	try, err := g.Enter(t.Context(), identity)
	if err != nil {
		t.Fatal(err)
	}
	defer try.Leave()
	wait := try.Wait(user)
	if wait == 0 {
		try.Wrong(user)
	}
	return wait
}

// right logs a client in with the right password.
func right(t *testing.T, g *Guard, identity Attempter, user string) {
	t.Helper()
	try, err := g.Enter(t.Context(), identity)
	if err != nil {
		t.Fatal(err)
	}
	defer try.Leave()
	try.Right(user)
}

// TestMadeUpAddressesShareLineAllowance: made-up MAC addresses on one line share the line's allowance of wrong
// passwords, for all users. One device that goes on with a wrong password does not use it up. A user's own device does
// not wait. A right password ends the wait. Long: the steps of one run, each of which needs the state that the one
// before left.
func TestMadeUpAddressesShareLineAllowance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		const line = `"eth 0/1/7" ""`
		home := Attempter{MAC: clientA, AccessLine: line}
		right(t, &g, home, "ann")
		for range 20 {
			time.Sleep(guess(t, &g, Attempter{MAC: clientB, AccessLine: line}, "old"))
		}
		if wait := guess(t, &g, Attempter{MAC: clientAddr(0), AccessLine: line}, "eve"); wait != 0 {
			t.Errorf("after one device's failures another waits %s", wait)
		}
		free := 0
		for i := range 100 {
			if guess(t, &g, Attempter{MAC: clientAddr(1 + i), AccessLine: line}, string(rune('A'+i))) == 0 {
				free++
			}
		}
		if free > freeNameFailures {
			t.Errorf("%d of 100 made-up addresses had their guess", free)
		}
		for _, tt := range []struct {
			attempter Attempter
			user      string
			wait      bool
		}{
			{Attempter{MAC: clientAddr(200), AccessLine: line}, "zoe", true}, {home, "ann", false},
			{Attempter{MAC: clientAddr(201), AccessLine: "another"}, "zoe", false},
			{Attempter{MAC: clientAddr(202)}, "zoe", false},
		} {
			try, err := g.Enter(t.Context(), tt.attempter)
			if err != nil {
				t.Fatal(err)
			}
			if wait := try.Wait(tt.user); (wait > 0) != tt.wait {
				t.Errorf("%s at %v waits %s", tt.user, tt.attempter, wait)
			}
			try.Leave()
		}
		right(t, &g, home, "ann")
		if wait := guess(t, &g, Attempter{MAC: clientAddr(203), AccessLine: line}, "zoe"); wait != 0 {
			t.Errorf("after a right password behind the line another device waits %s", wait)
		}
		for i := range 2 * maxLines {
			g.accessLines.countWrong(string(rune(i)))
		}
		if n := len(g.accessLines.failed); n != maxLines {
			t.Errorf("%d lines are remembered, want %d", n, maxLines)
		}
	})
}

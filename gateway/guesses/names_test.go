// Tests of limits on guessed passwords by user name. clientA and clientB are MAC addresses of two clients,
// clientAddr(i) that of client i of many (attempts_test.go).

package guesses

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// guessFromNewClients returns a function that guesses a user's password, each time as another client. The function
// returns how long the guess must wait. A guess that need not wait counts as wrong.
func guessFromNewClients(g *names) func(user string) time.Duration {
	n := 0
	return func(user string) time.Duration {
		n++
		wait := g.wait(user, clientAddr(n))
		if wait == 0 {
			g.countWrong(user, clientAddr(n))
		}
		return wait
	}
}

// TestGuessesFromManyClients: each client has its free attempts, but all together have a common limit.
func TestGuessesFromManyClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g names
		try := guessFromNewClients(&g)
		for i := range freeNameFailures {
			if wait := try("ann"); wait != 0 {
				t.Fatalf("try %d waits %s", i+1, wait)
			}
		}
		for _, want := range []int{1, 2, 4, 8, 10, 10} {
			for range 3 { // refused attempts do not extend the delay
				if got := try("Ann"); got != time.Duration(want)*time.Second {
					t.Errorf("waits %s, want %d s", got, want)
				}
			}
			time.Sleep(time.Duration(want) * time.Second)
			if got := try("ann"); got != 0 {
				t.Errorf("after waiting: waits %s", got)
			}
		}
	})
}

// TestSuccessClearsName checks what clears a name's failures, and which clients they do not affect.
func TestSuccessClearsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g names
		home := clientA
		g.clearFailures("ann", home)
		try := guessFromNewClients(&g)
		for range freeNameFailures {
			try("ann")
		}
		if wait := try("ann"); wait == 0 {
			t.Error("nobody waits")
		}
		if wait := g.wait("ann", home); wait != 0 {
			t.Errorf("where the user was logged in before it waits %s", wait)
		}
		if wait := try("bob"); wait != 0 {
			t.Errorf("another user waits %s", wait)
		}
		g.clearFailures("ann", clientB)
		if wait := try("ann"); wait != 0 {
			t.Errorf("after a success: waits %s", wait)
		}
		for range 100 {
			g.countWrong("ann", clientB) // the user's own address
		}
		for range freeNameFailures {
			try("ann")
		}
		time.Sleep(forgetAfter)
		if wait := try("ann"); wait != 0 {
			t.Errorf("after %s without a failure: waits %s", forgetAfter, wait)
		}
	})
}

// TestMadeUpNames: made-up names displace neither the failures of other names nor the users' addresses.
func TestMadeUpNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g names
		home, stranger := clientA, clientB
		g.clearFailures("ann", home)
		for range freeNameFailures {
			g.countWrong("Ann", stranger)
			g.countWrong("bob", stranger) // a name that never logged in
		}
		for i := range 2 * maxNames {
			name := fmt.Sprint("nobody", i)
			if wait := g.wait(name, stranger); wait != 0 {
				t.Fatalf("%s waits %s", name, wait)
			}
			g.countWrong(name, stranger)
			g.wait(fmt.Sprint("asked", i), stranger)
		}
		for _, user := range []string{"ann", "bob"} {
			if g.wait(user, stranger) == 0 {
				t.Errorf("strangers guess at %s's as if for the first time", user)
			}
		}
		if wait := g.wait("ann", home); wait != 0 {
			t.Errorf("at home ann waits %s", wait)
		}
		if n := len(g.others); n != maxNames {
			t.Errorf("%d names are remembered, want %d", n, maxNames)
		}
		if _, asked := g.others[fmt.Sprint("asked", 2*maxNames-1)]; asked {
			t.Error("a name that was only asked is remembered")
		}
		if _, oldest := g.others["nobody0"]; oldest {
			t.Error("the oldest is remembered of those with one failure")
		}
		time.Sleep(forgetAfter / 2)
		for i := range maxNames {
			g.countWrong(fmt.Sprint("nobody else", i), stranger)
		}
		time.Sleep(forgetAfter / 2)
		g.countWrong("carol", stranger)
		if _, over := g.others["bob"]; over {
			t.Error("the failures of bob's that are over take another's place")
		}
	})
}

// TestGuessesAreBounded: the number of remembered names is bounded, also of those that have logged in, of which the
// oldest are forgotten.
func TestGuessesAreBounded(t *testing.T) {
	var g names
	for i := range 2 * maxNames {
		name := fmt.Sprint("user", i)
		g.countWrong(name, clientB)
		g.clearFailures(name, clientA)
		g.clearFailures("user0", clientA)
	}
	if len(g.users) != maxNames || g.logins.Len() != maxNames || len(g.others) != 0 {
		t.Errorf("%d users, %d log-ins and %d others are remembered, want %d, as many, and none",
			len(g.users), g.logins.Len(), len(g.others), maxNames)
	}
	if g.users["user0"] == nil || g.users["user1"] != nil {
		t.Error("those whose log-in is longest ago are not those that go")
	}
}

package portal

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestGuessesFromManyAddresses: each address has its free tries, and together they
// have not.
func TestGuessesFromManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g guesses
		stranger := netip.MustParseAddr("10.2.0.0")
		try := func(user string) time.Duration {
			stranger = stranger.Next()
			wait := g.wait(user, stranger)
			if wait == 0 {
				g.wrong(user, stranger)
			}
			return wait
		}
		for i := range freeNameFailures {
			if wait := try("ann"); wait != 0 {
				t.Fatalf("try %d waits %s", i+1, wait)
			}
		}
		for _, want := range []int{1, 2, 4, 8, 10, 10} {
			for range 3 { // who is told to wait makes it no longer
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

// TestGuessesEnd: what ends a user's failures, and whom they are nothing to.
func TestGuessesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g guesses
		home, stranger := clientA, netip.MustParseAddr("10.2.0.0")
		g.right("ann", home)
		try := func(user string) time.Duration {
			stranger = stranger.Next()
			wait := g.wait(user, stranger)
			if wait == 0 {
				g.wrong(user, stranger)
			}
			return wait
		}
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
		g.right("ann", clientB)
		if wait := try("ann"); wait != 0 {
			t.Errorf("after a success: waits %s", wait)
		}
		for range 100 {
			g.wrong("ann", clientB) // which is told from strangers
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

func TestGuessesAreBounded(t *testing.T) {
	var g guesses
	for i := range 2 * maxNames {
		g.wrong(fmt.Sprint("user", i), clientA)
	}
	if len(g.names) != maxNames {
		t.Errorf("%d names are remembered, want %d", len(g.names), maxNames)
	}
}

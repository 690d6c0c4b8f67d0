// Tests of wrong passwords by client: fail tries one and returns how long the client had to wait.

package guesses

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

var clientA, clientB = MAC{2, 0, 0, 0, 0, 1}, MAC{2, 0, 0, 0, 0, 2}

// clientAddr returns the address of one of many clients.
func clientAddr(i int) MAC { return MAC{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)} }

// fail tries a wrong password as a client, and returns how long the client had to wait.
func fail(t *testing.T, a *attempts, client MAC) time.Duration {
	t.Helper()
	turn, err := a.waitTurn(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer turn.end()
	wait := turn.wait()
	time.Sleep(wait)
	if rest := turn.wait(); rest != 0 {
		t.Errorf("after waiting %s there are %s to wait", wait, rest)
	}
	turn.fail()
	return wait
}

func TestAttemptsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		for i, want := range []int{0, 0, 0, 1, 2, 4, 8, 16, 30, 30} {
			if got := fail(t, &a, clientA); got != time.Duration(want)*time.Second {
				t.Errorf("attempt %d waits %s, want %d s", i+1, got, want)
			}
		}
		if got := fail(t, &a, clientB); got != 0 {
			t.Errorf("another client waits %s", got)
		}
		time.Sleep(forgetAfter)
		if got := fail(t, &a, clientA); got != 0 {
			t.Errorf("after %s without a failure: waits %s", forgetAfter, got)
		}
		if got := fail(t, &a, clientA); got != 0 {
			t.Errorf("the failures of before count again: waits %s", got)
		}
	})
}

func TestSuccessClearsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		for range 5 {
			fail(t, &a, clientA)
		}
		turn, err := a.waitTurn(t.Context(), clientA)
		if err != nil {
			t.Fatal(err)
		}
		turn.succeeded()
		turn.end()
		if len(a.clients) != 0 {
			t.Error("a client without failures is remembered")
		}
		if got := fail(t, &a, clientA); got != 0 {
			t.Errorf("after a success: waits %s", got)
		}
	})
}

// TestAttemptsAreOneAtATime: concurrent guesses wait for each other.
func TestAttemptsAreOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a attempts
		first, err := a.waitTurn(t.Context(), clientA)
		if err != nil {
			t.Fatal(err)
		}
		entered := false
		go func() {
			second, err := a.waitTurn(t.Context(), clientA)
			if err != nil {
				t.Error(err)
				return
			}
			entered = true
			second.end()
		}()
		synctest.Wait()
		if entered {
			t.Error("two attempts of a client at once")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.waitTurn(gone, clientA); err == nil {
			t.Error("somebody who has gone got the turn")
		}
		first.end()
		synctest.Wait()
		if !entered || len(a.clients) != 0 {
			t.Errorf("after the turn: entered %v, %d clients remembered", entered, len(a.clients))
		}
	})
}

func TestAttemptsAreBounded(t *testing.T) {
	var a attempts
	held, err := a.waitTurn(t.Context(), clientA)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxFailing {
		turn, err := a.waitTurn(t.Context(), clientAddr(i))
		if err != nil {
			t.Fatal(err)
		}
		turn.fail()
		turn.end()
	}
	if len(a.clients) != maxFailing {
		t.Errorf("%d clients are remembered, want %d", len(a.clients), maxFailing)
	}
	if a.clients[clientA] != held.attempt {
		t.Error("a client that was trying was forgotten")
	}
	held.end()
}

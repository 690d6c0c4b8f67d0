package guesses

import (
	"testing"
	"testing/synctest"
	"time"
)

// enter is a device's try.
func enter(t *testing.T, g *Guard, n int) *Try {
	t.Helper()
	try, err := g.Enter(t.Context(), Attempter{MAC: clientAddr(n)})
	if err != nil {
		t.Fatal(err)
	}
	return try
}

// TestRoomsAreGuessedSlowly: devices that each try one name for a room, slowly enough for all codes together, have to
// wait after ten; other rooms do not, and neither does the device that came in last. A login of the room clears it.
func TestRoomsAreGuessedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Guard{}
		home := enter(t, g, 0)
		home.RightRoom("204")
		home.Leave()
		for i := range 14 {
			time.Sleep(codeWait)
			try := enter(t, g, 1+i)
			if wait, all := try.WaitRoom("204"); all || (wait > 0) != (i > freeNameFailures) {
				t.Errorf("guess %d waits %v, %t", i+1, wait, all)
			}
			try.WrongRoom("204")
			try.Leave()
		}
		for room, want := range map[string]time.Duration{"204": longestNameWait, "205": 0} {
			try := enter(t, g, 100)
			if wait, _ := try.WaitRoom(room); wait != want {
				t.Errorf("room %s: another device waits %v, want %v", room, wait, want)
			}
			try.Leave()
		}
		home = enter(t, g, 0)
		if wait, _ := home.WaitRoom("204"); wait != 0 {
			t.Errorf("the device that came in last waits %v", wait)
		}
		home.RightRoom("204")
		home.Leave()
		try := enter(t, g, 100)
		defer try.Leave()
		if wait, _ := try.WaitRoom("204"); wait != 0 {
			t.Errorf("after a login another device waits %v", wait)
		}
	})
}

// TestOwnRoomClearsNoGuesses: who has a room cannot clear guesses at other ones by logging in; mistyping one's own name
// is forgiven.
func TestOwnRoomClearsNoGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Guard{}
		tried := 0
		for ; tried < 20; tried++ {
			try := enter(t, g, 1)
			if wait, _ := try.WaitRoom("205"); wait > 0 {
				try.Leave()
				break
			}
			try.WrongRoom("205")
			try.RightRoom("204")
			try.Leave()
		}
		if tried != freeFailures {
			t.Errorf("%d guesses without a wait, want %d", tried, freeFailures)
		}
		for range 5 {
			try := enter(t, g, 2)
			if wait, _ := try.WaitRoom("204"); wait != 0 {
				t.Errorf("a guest who mistypes and comes in, again and again, waits %v", wait)
			}
			try.WrongRoom("204")
			try.WrongRoom("204")
			try.RightRoom("204")
			try.Leave()
		}
	})
}

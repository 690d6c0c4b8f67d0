package guesses

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWrongCodesInAll: wrong codes of all devices in several networks are counted together. Once the allowance is used
// up every device waits, which a second later may try again, five at most. Passwords do not wait, nor do the devices of
// a guard that counts for itself.
func TestWrongCodesInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all Codes
		one, two, other := &Guard{Codes: &all}, &Guard{Codes: &all}, &Guard{}
		device := func(g *Guard, n int) *Try {
			try, err := g.Enter(t.Context(), Attempter{MAC: MAC{2, 0, 0, 0, 0, byte(n)}})
			if err != nil {
				t.Fatal(err)
			}
			return try
		}
		// guesses lets so many devices guess once, from the first on, and returns how many did not have to wait.
		guesses := func(first, number int) (tried int) {
			for n := range number {
				try := device([]*Guard{one, two}[n%2], first+n)
				if wait, all := try.WaitCode(); wait == 0 {
					try.WrongCode()
					tried++
				} else if !all {
					t.Errorf("device %d waits for its own guesses", first+n)
				}
				try.Leave()
			}
			return tried
		}
		if n := guesses(0, 80); n != 50 {
			t.Errorf("%d devices guessed at once, want 50", n)
		}
		honest := device(one, 200)
		if wait, _ := honest.WaitCode(); wait != time.Second || honest.Wait("ann") != 0 {
			t.Errorf("another device waits %s, with a password %s", wait, honest.Wait("ann"))
		}
		if wait, _ := device(other, 200).WaitCode(); wait != 0 {
			t.Errorf("a device elsewhere waits %s", wait)
		}
		time.Sleep(time.Second)
		if wait, _ := honest.WaitCode(); wait != 0 {
			t.Errorf("a second later another device waits %s", wait)
		}
		if n := guesses(100, 20); n != 5 {
			t.Errorf("a second later %d devices guessed, want 5", n)
		}
	})
}

// TestWrongCodesOfDevice: after three wrong codes a device waits, longer each time, and a right one forgets them.
func TestWrongCodesOfDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Guard
		try, err := g.Enter(t.Context(), Attempter{MAC: MAC{2}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []time.Duration{0, 0, 0, 1, 2, 4, 8, 16, 30, 30} {
			wait, all := try.WaitCode()
			if wait != want*time.Second || all {
				t.Errorf("after %d wrong codes a device waits %s, want %d s", i, wait, want)
			}
			time.Sleep(wait)
			try.WrongCode()
		}
		time.Sleep(time.Minute)
		try.RightCode()
		if try.FailedCodes() != 0 {
			t.Errorf("after a right code %d wrong ones count", try.FailedCodes())
		}
	})
}

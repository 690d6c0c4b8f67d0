// A test of guessed passwords over PPPoE. newLines makes the host of a gateway with PPPoE clients, in namespaces
// (pppoe_test.go).

package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// TestGuessesOverPPPoE: wrong passwords over PPPoE and at the portal are counted together, by the client's MAC address
// and by the user's name. After a few the next login must wait, and until then it is refused without asking the RADIUS
// server. Long: the steps of one run, each of which needs the state that the one before left.
func TestGuessesOverPPPoE(t *testing.T) {
	t.Parallel()
	w := newLines(t, `methods = ["pap"]`)
	host := w.client()
	link := host.access()
	asked := func(user string) (n int) {
		for _, r := range w.auth.accessRequests("") {
			if r.value("User-Name") == user {
				n++
			}
		}
		return n
	}
	guess := func(mac pppoe.MAC, user, password string) error {
		s := link.subscriber(t, mac, ppp.Config{User: user, Password: password})
		_, err := s.dial()
		return err
	}
	refused := func(label string, err error) {
		t.Helper()
		if !errors.Is(err, ppp.ErrRefused) {
			t.Errorf("%s: %v, want that it is refused", label, err)
		}
	}
	own := pppoe.MAC(link.dev.HardwareAddr)
	for i := range 12 { // each failure doubles the wait, so that a slow machine must wait too in the end
		user := fmt.Sprint("nobody", i)
		refused("a guess", guess(own, user, "wrong"))
		if asked(user) == 0 {
			break
		}
	}
	if n := len(w.auth.accessRequests("")); n < 3 || n > 11 {
		t.Errorf("the server was asked about %d guesses of one MAC address", n)
	}
	token, err := host.token("login")
	must(t, err)
	code := ""
	for range 12 { // as above
		if code, err = host.try(host.fillIn(token, "nobody")); code == "429" {
			break
		}
	}
	if code != "429" {
		t.Errorf("at the portal the guesser is answered with %s, %v", code, err)
	}

	mac := func(i int) pppoe.MAC { return pppoe.MAC{2, 0x67, 0x77, 'g', 0, byte(i)} }
	for i := range 9 {
		refused("a guess of another", guess(mac(i), "ann", "wrong"))
	}
	var all sync.WaitGroup // guesses at the same time, after which the wait is longest
	for i := 9; i < 15; i++ {
		all.Go(func() { refused("a guess of another", guess(mac(i), "ann", "wrong")) })
	}
	all.Wait()
	// told is until when a login with that name must wait, as the last refusal said.
	told, backedOff := time.Time{}, 0
	for i := 15; i < 27; i++ { // on a slow machine the first waits, of a second and more, may be over
		began, before := time.Now(), asked("ann")
		err := guess(mac(i), "ann", "wrong")
		refused("a guess of another", err)
		if n := asked("ann"); n > before && time.Now().Before(told) {
			t.Errorf("the server was asked about guess %d at one name, %s before the end of the wait", i,
				time.Until(told))
		}
		seconds := 0
		if _, text, found := strings.Cut(fmt.Sprint(err), "try again in "); found {
			fmt.Sscan(text, &seconds)
			told = began.Add(time.Duration(seconds-1) * time.Second) // seconds are rounded up
			backedOff++
		}
		if backedOff >= 5 {
			break
		}
	}
	if n := asked("ann"); n < 10 || backedOff == 0 {
		t.Errorf("of the guesses at one name the server was asked about %d, and %d were refused without it", n, backedOff)
	}
	other := w.client()
	token, err = other.token("login")
	must(t, err)
	if code, err := other.try(strings.Replace(other.fillIn(token, "ann"), "=right", "=wrong", 1)); code != "429" &&
		time.Now().Before(told) {
		t.Errorf("at the portal a login with that name is answered with %s, %v", code, err)
	}
	other.logIn("brief")
	if err := guess(mac(99), "fixed", "right"); err != nil {
		t.Errorf("a right password of another: %v", err)
	}
	st, err := w.status()
	must(t, err)
	if st.PPPoE["backed-off"] <= uint64(backedOff) { // and at least one guess of the first MAC address
		t.Errorf("counted: %v", st.PPPoE)
	}
}

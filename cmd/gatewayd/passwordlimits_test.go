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

// TestGuessesOverPPPoE: wrong passwords are counted over PPPoE as at the portal, and for both together: by the client's
// MAC address and by the user's name. Whoever must wait is refused without a question to the server. Long: the steps of
// one run, each of which needs the state that the one before left.
func TestGuessesOverPPPoE(t *testing.T) {
	t.Parallel()
	w := newLines(t, `methods = ["pap"]`)
	host := w.client()
	line := host.access()
	asked := func(user string) (n int) {
		for _, r := range w.auth.accessRequests("") {
			if r.value("User-Name") == user {
				n++
			}
		}
		return n
	}
	guess := func(mac pppoe.MAC, user, password string) error {
		s := line.subscriber(t, mac, ppp.Config{User: user, Password: password})
		_, err := s.dial()
		return err
	}
	refused := func(label string, err error) {
		t.Helper()
		if !errors.Is(err, ppp.ErrRefused) {
			t.Errorf("%s: %v, want that it is refused", label, err)
		}
	}
	own := pppoe.MAC(line.dev.HardwareAddr)
	for i := range 12 { // each failure doubles the wait, so that a slow machine is caught too
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
	var all sync.WaitGroup // of guesses that are decided at once, after which the wait is longest
	for i := 9; i < 15; i++ {
		all.Go(func() { refused("a guess of another", guess(mac(i), "ann", "wrong")) })
	}
	all.Wait()
	told, backedOff := time.Time{}, 0 // until when that name is to wait, as who was refused for it has heard
	for i := 15; i < 27; i++ {        // a slow machine may be past the first waits, which are a second and more
		began, before := time.Now(), asked("ann")
		err := guess(mac(i), "ann", "wrong")
		refused("a guess of another", err)
		if n := asked("ann"); n > before && time.Now().Before(told) {
			t.Errorf("the server was asked about guess %d at one name, which came %s before the end of its wait", i,
				time.Until(told))
		}
		seconds := 0
		if _, text, found := strings.Cut(fmt.Sprint(err), "try again in "); found {
			fmt.Sscan(text, &seconds)
			told = began.Add(time.Duration(seconds-1) * time.Second) // the wait is told in whole seconds, and more than it is
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
		t.Errorf("at the portal who tries that name is answered with %s, %v", code, err)
	}
	other.logIn("brief")
	if err := guess(mac(99), "fixed", "right"); err != nil {
		t.Errorf("a right password of another: %v", err)
	}
	st, err := w.status()
	must(t, err)
	if st.PPPoE["backed-off"] <= uint64(backedOff) { // one of the first guesser, too
		t.Errorf("counted: %v", st.PPPoE)
	}
}

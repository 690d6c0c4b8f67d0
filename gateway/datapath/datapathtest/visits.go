package datapathtest

import (
	"net/netip"
	"testing"
	"time"
)

// visitsOfOneDevice: a device reaches a TCP port of an address until a time and no longer, also on an existing
// connection, and another device does not. Data paths that cannot do that say so. Long: the steps of one run, each of
// which needs what those before opened.
func visitsOfOneDevice(t *testing.T, w *World) {
	w.lease(t, w.Bob)
	at := netip.AddrPortFrom(Garden, 8443)
	if !w.path.Visits {
		if err := w.OpenFor(w.Bob.MAC, at, time.Now().Add(time.Hour)); err == nil {
			t.Error("a data path without visits takes one")
		}
		return
	}
	w.lease(t, w.Alice)
	beside, other := netip.AddrPortFrom(Beside, 8443), netip.AddrPortFrom(Garden, 9443)
	for _, a := range []netip.AddrPort{at, beside, other} {
		go answerAll(listen(t, w.Server, a))
	}
	reaches := func(label string, s Station, a netip.AddrPort, want bool) {
		t.Helper()
		if got, err := getAt(s, a); (err == nil) != want || want && got != "the site itself" {
			t.Errorf("%s: %s answers %q, %v", label, a, got, err)
		}
	}
	nothing := func(label string) {
		t.Helper()
		for _, s := range []Station{w.Alice, w.Bob} {
			for _, a := range []netip.AddrPort{at, beside, other} {
				reaches(label, s, a, false)
			}
		}
	}
	nothing("before")
	must(t, w.OpenFor(w.Bob.MAC, at, time.Now().Add(time.Hour)))
	reaches("a visitor", w.Bob, at, true)
	reaches("a visitor elsewhere", w.Bob, beside, false)
	reaches("a visitor at another port", w.Bob, other, false)
	reaches("another device", w.Alice, at, false)
	if got, err := exchange(w.Bob, at, "hello"); err == nil {
		t.Errorf("a visitor by UDP: %q", got)
	}
	must(t, w.OpenFor(w.Bob.MAC, netip.AddrPortFrom(Garden, 8444), time.Now().Add(time.Hour)))
	x := w.NewStreamTo(t, w.Bob, netip.AddrPortFrom(Garden, 8444))
	x.Begin(x.Client)
	x.Passes(t, "a visitor's stream")
	must(t, w.OpenFor(w.Bob.MAC, netip.AddrPortFrom(Garden, 8444), time.Now().Add(-time.Second)))
	stopped(t, "the visit was ended", x)
	must(t, w.OpenFor(w.Bob.MAC, at, time.Now().Add(-time.Second)))
	nothing("after")
	end := time.Now().Add(300 * time.Millisecond)
	must(t, w.OpenFor(w.Bob.MAC, at, end))
	time.Sleep(time.Until(end) + 50*time.Millisecond)
	nothing("after the time")
	if c := w.tally(t, w.Bob); c != (tally{}) {
		t.Errorf("the visit was counted: %+v", c)
	}
}

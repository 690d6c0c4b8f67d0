// Tests that a session's event tells when the addresses of its client have changed. inTime and pass (timers_test.go)
// run a test with a fake clock and let time go by; admit logs a client in, drain takes all pending events, and kinds
// lists what kinds they are (memory_test.go).

package session_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// TestChangedAddressesAreTold: servers are told of a session's new and lost addresses soon, at most once in ten
// seconds, and the regular updates stay where they were. Where no updates are sent, none is. Long: the steps of one
// run.
func TestChangedAddressesAreTold(t *testing.T) {
	network := netip.MustParsePrefix("2001:db8:7000::/56")
	addr := func(n byte) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: n}) }
	inTime(t, func(t *testing.T, table *session.Table, _ *memory, k session.Key) {
		extend := func(n byte) {
			t.Helper()
			if err := table.Extend(k, addr(n)); err != nil {
				t.Fatal(err)
			}
		}
		s := admit(t, table, k, session.Limits{Interim: time.Minute})
		told := func(after time.Duration, want ...[]netip.Addr) {
			t.Helper()
			pass(time.Until(s.Began.Add(after)))
			events := drain(t, table)
			if len(events) != len(want) {
				t.Fatalf("after %s: %v", after, kinds(events))
			}
			for i, e := range events {
				if e.Kind != session.Updated || !slices.Equal(e.FurtherAddrs, want[i]) {
					t.Errorf("after %s: %s of %v, want %v", after, e.Kind, e.FurtherAddrs, want[i])
				}
			}
		}
		drain(t, table)
		extend(1)
		extend(2)
		told(900 * time.Millisecond)
		two := []netip.Addr{addr(1), addr(2)}
		told(1200*time.Millisecond, two)
		extend(2) // it has that
		told(3 * time.Second)
		for n := byte(3); n < 6; n++ {
			extend(n)
		}
		if err := table.Withdraw(k, addr(1)); err != nil {
			t.Fatal(err)
		}
		if err := table.Alter(k.Addr, s.ID, func(l *session.Limits) { l.UpBps = 1000 }); err != nil {
			t.Fatal(err)
		}
		told(10900 * time.Millisecond)
		told(11200*time.Millisecond, []netip.Addr{addr(2), addr(3), addr(4), addr(5)})
		told(59 * time.Second)
		four := []netip.Addr{addr(2), addr(3), addr(4), addr(5)}
		told(60200*time.Millisecond, four)
		told(121*time.Second, four)
		if err := table.Delegate(k, network); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		if events := drain(t, table); len(events) != 1 || !slices.Equal(events[0].Delegated, []netip.Prefix{network}) {
			t.Errorf("with a network there are %+v", events)
		}
		if _, err := table.End(k.Addr, session.UserRequest); err != nil {
			t.Fatal(err)
		}
		drain(t, table)
		extend(6) // without a session
		told(170 * time.Second)
		s = admit(t, table, k, session.Limits{})
		drain(t, table)
		extend(7) // without updates
		told(100 * time.Second)
	})
}

// A test of Assignment, which gives each client an outside address and a range of its ports (RFC 7422). Of(i) returns
// those of client i.

package nat

import (
	"net/netip"
	"testing"
)

// TestAssignment compares the formula's results with ones computed by hand, and no two clients share a port.
func TestAssignment(t *testing.T) {
	a, b := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("203.0.113.9")
	two := Assignment{Sources: []netip.Addr{a, b}, Each: 1000} // 64 clients an address, ports from 65024 on are nobody's
	for _, tt := range []struct {
		client      int
		source      netip.Addr
		first, last uint16
	}{{0, a, 1024, 2023}, {1, a, 2024, 3023}, {63, a, 64024, 65023}, {64, b, 1024, 2023}, {127, b, 64024, 65023}} {
		source, first, last, ok := two.Of(tt.client)
		if !ok || source != tt.source || first != tt.first || last != tt.last {
			t.Errorf("client %d: %v %d-%d %v, want %v %d-%d", tt.client, source, first, last, ok, tt.source, tt.first, tt.last)
		}
	}
	if _, _, _, ok := two.Of(128); ok {
		t.Error("there is room for client 128")
	}
	if source, first, last, ok := (Assignment{Each: 64512}).Of(0); !ok || source.IsValid() || first != 1024 ||
		last != 65535 {
		t.Errorf("all ports of the WAN's address: %v %d-%d %v", source, first, last, ok)
	}
	if _, _, _, ok := (Assignment{Each: 64512}).Of(1); ok {
		t.Error("there is room for a second one")
	}
	manual := Assignment{Sources: []netip.Addr{a, netip.MustParseAddr("203.0.113.16")}, Each: 256}
	if source, first, last, ok := manual.Of(268); !ok || source != manual.Sources[1] || first > 5200 || last < 5200 {
		t.Errorf("the manual's client 268 has %v %d-%d", source, first, last)
	}
	taken := map[netip.AddrPort]int{}
	dense := Assignment{Sources: []netip.Addr{a, b}, Each: 63}
	for client := 0; ; client++ {
		source, first, last, ok := dense.Of(client)
		if !ok {
			if client != 2048 {
				t.Errorf("there is room for %d clients", client)
			}
			return
		}
		for p := int(first); p <= int(last); p++ {
			addr := netip.AddrPortFrom(source, uint16(p))
			if other, twice := taken[addr]; twice {
				t.Fatalf("%v is of the clients %d and %d", addr, other, client)
			}
			taken[addr] = client
		}
	}
}

package datapath

import (
	"errors"
	"net/netip"
	"testing"
)

// TestIDOf: addresses that are no client's first one have no identity, and a client that begins with one is refused.
func TestIDOf(t *testing.T) {
	for addr, want := range map[string]string{
		"10.1.0.5": "10.1.0.5", "::ffff:10.1.0.5": "10.1.0.5", "2001:db8::5": "0.0.0.0", "fe80::1%lan0": "0.0.0.0",
	} {
		if got := IDOf(netip.MustParseAddr(addr)); got.String() != want {
			t.Errorf("%s is known by %s, want %s", addr, got, want)
		}
	}
	if got := IDOf(netip.Addr{}); got != 0 {
		t.Errorf("no address is known by %s", got)
	}
	for _, addr := range []netip.Addr{netip.MustParseAddr("2001:db8::5"), {}} {
		c := Client{Addrs: []netip.Addr{addr}}
		if _, err := c.Addr(); c.Identity() != 0 || !errors.Is(err, ErrNotSupported) {
			t.Errorf("a client with %v is %s: %v", addr, c.Identity(), err)
		}
	}
}

package datapath

import (
	"errors"
	"net/netip"
	"testing"
)

// TestIDOf: an IPv4 address gives an identity, also in IPv6's notation. Other addresses give none (0, written 0.0.0.0),
// and Client.Addr refuses a client whose first address is one of them.
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

// TestAddrs6: the room for IPv6 addresses follows the network's size, within bounds.
func TestAddrs6(t *testing.T) {
	for network, want := range map[string]uint32{"10.1.0.1/24": 1 << 18, "10.1.0.1/16": 5 << 16, "10.0.0.1/14": 1 << 20} {
		if got := (Network{Address: netip.MustParsePrefix(network)}).Addrs6(); got != want {
			t.Errorf("%s: %d, want %d", network, got, want)
		}
	}
}

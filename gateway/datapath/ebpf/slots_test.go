package ebpf

import (
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// TestPlacesOutside: addresses outside the LAN have places behind those of the LAN and of clients without IPv4, each
// another, and the place leads back to the address.
func TestPlacesOutside(t *testing.T) {
	outside := []netip.Prefix{netip.MustParsePrefix("100.64.9.0/29"), netip.MustParsePrefix("203.0.113.64/26")}
	for _, prefix6 := range []netip.Prefix{{}, netip.MustParsePrefix("2001:db8:1::1/64")} {
		d := &Datapath{net: datapath.Network{Address: netip.MustParsePrefix("10.1.0.1/24"), Address6: prefix6,
			Outside: outside}}
		if n := d.slots() - d.outside(); n != 8+64 {
			t.Errorf("%d places outside", n)
		}
		last := d.outside() - 1
		for _, p := range outside {
			for addr := p.Addr(); p.Contains(addr); addr = addr.Next() {
				place, err := d.placeOf(addr)
				if err != nil || place != last+1 || d.addr(place) != addr || d.owner(place) != datapath.IDOf(addr) {
					t.Fatalf("%s has the place %d after %d, of %s, %v", addr, place, last, d.addr(place), err)
				}
				last = place
			}
		}
		for addr, want := range map[string]uint32{"10.1.0.0": 0, "10.1.0.255": 255} {
			if place, err := d.placeOf(netip.MustParseAddr(addr)); err != nil || place != want {
				t.Errorf("%s has the place %d, %v", addr, place, err)
			}
		}
		for _, addr := range []string{"10.1.1.0", "100.64.9.8", "203.0.113.63", "203.0.113.128"} {
			if place, err := d.placeOf(netip.MustParseAddr(addr)); err == nil {
				t.Errorf("%s has the place %d", addr, place)
			}
		}
		if prefix6.IsValid() {
			if slot, err := d.slot(datapath.Numbered(7)); err != nil || slot != 256+7 || d.owner(slot) != datapath.Numbered(7) {
				t.Errorf("a client without IPv4 has the slot %d, %v", slot, err)
			}
		}
	}
}

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

// TestOutsideMoved: where the networks outside the LAN are others, of the same size, a former daemon's clients are
// nobody's until they are set again, each at its own place, and counted from nothing. Long: the steps of one run.
func TestOutsideMoved(t *testing.T) {
	n := newNetwork(t)
	with := func(networks ...string) *Datapath {
		return n.open(t, func(c *Config) {
			c.PPPoE = true
			c.Networks[0].Outside = nil
			for _, p := range networks {
				c.Networks[0].Outside = append(c.Networks[0].Outside, netip.MustParsePrefix(p))
			}
		})
	}
	stays := datapath.Client{Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.77")}, MAC: aliceMAC, Session: session,
		Admitted: true, Routes: []netip.Prefix{netip.MustParsePrefix("198.18.5.0/24")}}
	goes := datapath.Client{Addrs: []netip.Addr{netip.MustParseAddr("100.64.9.3")}, MAC: bobMAC, Session: session + 1,
		Admitted: true}
	counts := func(d *Datapath) datapath.Counters {
		c, err := d.Counters(datapath.IDOf(stays.Addrs[0]))
		must(t, err)
		return c
	}
	d := with("203.0.113.64/26", "100.64.9.0/26")
	must(t, d.Set(stays))
	must(t, d.Set(goes))
	before := counts(d)
	place, err := d.placeOf(netip.MustParseAddr("100.64.9.13")) // where stays will be
	must(t, err)
	must(t, d.objs.ClientCounters.Put(place, gatewayCounters{UpBytes: 1000}))
	must(t, d.Close())

	d = with("203.0.113.64/26", "100.64.9.0/26") // the same ones
	if all, err := d.Clients(); err != nil || len(all) != 2 {
		t.Errorf("a restart leaves %v, %v", all, err)
	}
	if now := counts(d); now.Epoch != before.Epoch {
		t.Error("a restart begins to count anew")
	}
	must(t, d.Close())
	d = with("198.51.100.64/26", "203.0.113.64/26")
	if all, err := d.Clients(); err != nil || len(all) > 0 {
		t.Errorf("there are %v, %v", all, err)
	}
	if err := d.Set(goes); err == nil {
		t.Error("a client has an address that is of no network any more")
	}
	must(t, d.Set(stays))
	if all, err := d.Clients(); err != nil || len(all) != 1 || all[0] != datapath.IDOf(stays.Addrs[0]) {
		t.Errorf("there are %v, %v", all, err)
	}
	if now := counts(d); now.Epoch == before.Epoch || now.UpBytes != 0 {
		t.Errorf("it is counted as %+v, after %+v", now, before)
	}
}

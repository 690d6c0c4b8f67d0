package ebpf

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// TestVisitsByIPv6: of IPv6 packets before login, those of one device to and from the port that is open for it alone
// pass. Long: the steps of one run.
func TestVisitsByIPv6(t *testing.T) {
	n := newNetwork6(t)
	run(t, "ip neigh replace $a lladdr 02:00:00:00:02:02 dev $wan nud permanent",
		append(n.env(), "a="+garden6.String())...)
	d := n.open6(t)
	run(t, "ip -n $client link set c0 down", n.env()...) // the client's own packets would be counted too
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6}, MAC: aliceMAC}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob, bobLocal, bob6}, MAC: bobMAC}))
	counts := func(label string, frame []byte, up bool, want string) {
		t.Helper()
		prog, dev := d.objs.LanIn, n.lan
		if !up {
			prog, dev = d.objs.WanIn, n.wan
		}
		before := d.packets(t)
		d.try(t, prog, index(t, dev), frame)
		if got := change(before, d.packets(t)); !maps.Equal(got, map[string]uint64{want: 1}) {
			t.Errorf("%s: counted %v, want %s", label, got, want)
		}
	}
	up := func(mac datapath.MAC, from netip.Addr, port uint16) []byte {
		return packet6(mac, from, garden6, tcpP, datagram(40000, port)...)
	}
	down := func(to netip.Addr, port uint16) []byte {
		return packet6(serverMAC, garden6, to, tcpP, datagram(port, 40000)...)
	}
	at := netip.AddrPortFrom(garden6, 443)
	counts("before", up(bobMAC, bob6, 443), true, "rejected")
	must(t, d.OpenFor(bobMAC, at, time.Now().Add(time.Hour)))
	counts("a visitor", up(bobMAC, bob6, 443), true, "garden")
	counts("to a visitor", down(bob6, 443), false, "garden")
	counts("a visitor at another port", up(bobMAC, bob6, 444), true, "rejected")
	counts("to a visitor from another port", down(bob6, 444), false, "blocked")
	counts("another device", up(aliceMAC, alice6, 443), true, "rejected")
	counts("to another device", down(alice6, 443), false, "blocked")
	counts("a visitor by UDP", packet6(bobMAC, bob6, garden6, unix.IPPROTO_UDP, datagram(40000, 443)...), true, "rejected")
	must(t, d.OpenFor(bobMAC, at, time.Time{}))
	counts("after", up(bobMAC, bob6, 443), true, "rejected")
	counts("after, to the visitor", down(bob6, 443), false, "blocked")
	must(t, d.OpenFor(bobMAC, at, time.Now().Add(time.Hour)))
	ended := gatewayVisit{Mac: aliceMAC, Port: networkPort(at.Port()), Addr: at.Addr().As16()}
	must(t, d.objs.Visits.Put(ended, uint64(1)))
	counts("after the time", up(aliceMAC, alice6, 443), true, "rejected")
	counts("the other visitor", up(bobMAC, bob6, 443), true, "garden")
	must(t, d.OpenFor(aliceMAC, at, time.Time{}))
	must(t, d.OpenFor(aliceMAC, at, time.Time{})) // ended twice
	if n := d.objs.Visits.MaxEntries(); n != datapath.MaxVisits {
		t.Errorf("there is room for %d visits, want %d", n, datapath.MaxVisits)
	}
}

package datapathtest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// neighbours are the behaviours of the kernel's neighbour table. It has room for 1,024 entries that the kernel learns,
// in all namespaces together. Clients have permanent entries, which do not count, and nobody can fill the table.
var neighbours = []behaviour{
	{"NeighboursAreClients", neighboursAreClients, Shape{}},
	{"MadeUpNeighboursOthersLease", madeUpNeighbours, Shape{Learn: true}},
}

// neighboursAreClients: each client has a permanent entry as long as it is a client, and no other address has one.
// Where the path does not promise Neighbours, no address has one. Long: the steps of one run, each of which needs the
// state that the one before left.
func neighboursAreClients(t *testing.T, w *World) {
	entered := func(phase string, clients ...datapath.Client) {
		t.Helper()
		netnstest.Await(t, "neighbours "+phase, func() error {
			var want []string
			for _, c := range clients {
				if w.path.Neighbours {
					want = append(want, fmt.Sprintf("%s lladdr %s PERMANENT", c.Addrs[0], hw(c.MAC)))
				}
			}
			slices.Sort(want)
			if got := w.neighbours(t, "permanent"); strings.Join(got, "\n") != strings.Join(want, "\n") {
				return fmt.Errorf("%q, want %q", got, want)
			}
			return nil
		})
	}
	alice, bob := w.Alice.client(), w.Bob.client()
	w.lease(t, w.Alice, w.Bob)
	entered("with a lease", alice, bob)
	w.admit(t, w.Alice)
	madeUpNeighbours(t, w)
	entered("after login", alice, bob)
	changed := alice
	changed.MAC = w.Intruder.MAC
	must(t, w.Set(changed))
	entered("with another MAC address", changed, bob)
	w.admit(t, w.Alice)
	entered("with the former one", alice, bob)
	must(t, w.Remove(w.Bob.Addr))
	entered("without a lease", alice)
	w.lease(t, w.Bob)
	if w.path.Neighbours {
		for manner, script := range map[string]string{
			"was down":                      "ip link set lan0 down; ip link set lan0 up",
			"lost its address for a moment": "ip addr flush dev lan0; ip addr add 10.1.0.1/24 dev lan0",
			"had another MAC address": "ip link set lan0 address 02:00:00:00:01:09; ip link set lan0 address " +
				"02:00:00:00:01:01",
			"had others in the kernel's table": "ip neigh flush dev lan0 nud permanent; ip link set lan0 mtu 1400; ip link " +
				"set lan0 mtu 1500",
		} {
			w.Router.Run(t, script)
			entered("of an interface that "+manner, alice, bob)
		}
		// A static entry of the administrator's, and one of a client that left without a daemon.
		w.Kill(t)
		entered("without a daemon", alice, bob)
		w.Router.Run(t, "ip neigh add 10.1.0.40 lladdr 02:00:00:00:00:28 dev lan0 nud permanent; ip neigh add 10.1.0.41 "+
			"lladdr 02:00:00:00:00:29 dev lan0 nud permanent proto 103")
		w.Start(t)
		must(t, w.Open())
		w.admit(t, w.Alice)
		w.lease(t, w.Bob)
		entered("of a successor", datapath.Client{Addrs: []netip.Addr{netip.MustParseAddr("10.1.0.40")},
			MAC: datapath.MAC{2, 0, 0, 0, 0, 40}}, alice, bob)
		w.Router.Run(t, "ip neigh del 10.1.0.40 dev lan0")
	}
	flow := w.Down(t, w.Alice)
	flow.Begin()
	flow.Passes(t, "to a client with an entry")
	flow.Halt()
	must(t, w.Close())
	must(t, w.Detach())
	entered("after detach")
}

// neighbours lists the LAN's neighbours in a state, without the protocol, which older versions of ip do not show.
func (w *World) neighbours(t *testing.T, state string) (list []string) {
	t.Helper()
	for l := range strings.Lines(w.Router.Run(t, "ip -4 neigh show dev lan0 nud "+state)) {
		l, _, _ = strings.Cut(strings.TrimSpace(l), " proto")
		list = append(list, strings.TrimSpace(l))
	}
	slices.Sort(list)
	return list
}

// madeUpNeighbours: addresses that were never leased take no entry of the kernel's neighbour table, whoever sends to
// them or uses them.
func madeUpNeighbours(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	hub, referenceFlow := NewWire(t, w.Intruder.Space, clientLink), w.Up(t, w.Alice)
	w.sendReference(t, referenceFlow, 1)
	for n := range uint32(100) {
		nobody := netip.AddrFrom4([4]byte{10, 1, 0, byte(100 + n)})
		mac := datapath.MAC{2, 9}
		binary.BigEndian.PutUint32(mac[2:], n)
		hub.Send(t, UDP(9, By(w.Alice), To(nobody)), UDP(9, By(w.Bob), To(nobody)), // from a client
			ARP(1, nobody, mac, Gateway), ARP(1, nobody, w.Intruder.MAC, Gateway), ARP(2, nobody, mac, Gateway), // from nobody
			SYN(80, From(nobody, mac)), UDP(53, From(nobody, mac), To(Gateway)), Echo(From(nobody, mac), To(Gateway)))
	}
	w.sendReference(t, referenceFlow, 20)
	netnstest.Await(t, "an answer to Bob", func() error {
		_, err := get(w.Bob, Server)
		return err
	})
	others := slices.DeleteFunc(w.neighbours(t, "all"), func(l string) bool {
		addr, _, _ := strings.Cut(l, " ")
		return addr == w.Alice.Addr.String() || addr == w.Bob.Addr.String()
	})
	if len(others) > 0 {
		t.Errorf("the kernel has %d neighbours whose addresses nobody leased, such as %s", len(others), others[0])
	}
}

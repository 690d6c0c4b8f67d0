package topology

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/client"
)

// Names of ports of the second gateway.
const (
	PortLAN2 = "lan2" // towards the clients
	PortWAN2 = "wan2" // towards the server
)

// Addresses of what only pairs of gateways have, in the network of the server.
var (
	storeAddr = netip.MustParsePrefix("192.168.89.3/24")
	firstOwn  = netip.MustParsePrefix("192.168.89.97/24") // the gateways' own addresses, beside the shared one
	secondOwn = netip.MustParsePrefix("192.168.89.98/24")

	secondOwn6 = netip.MustParsePrefix("2001:db8:89::98/64")
)

// pairClients is the number of client hosts: one for clients that are admitted, one for those that come later.
const pairClients = 2

// Pair is a LAN with room for two gateways: router, which has the addresses of a single gateway, and standby, which has
// none of these. A device may use both. store is a host for a store that they share.
//
//	client  ── c0 ═══ x1 ┐        ┌ x0 ═══ r0 router  r1 ═══ w0 ┐        ┌ w3 ═══ s0 server
//	client2 ── c1 ═══ x2 ┴ switch ┴ y0 ═══ t0 standby t1 ═══ w1 ┴ uplink ┴ w2 ═══ d0 store
func Pair(p Spec) Topology {
	p.ClientHosts = max(pairClients, p.ClientHosts)
	t := Portal(p)
	if p.Closed[0].IsValid() {
		return t // a router that is no host of the lab's has no second one
	}
	wan := &t.Links[len(t.Links)-1].A
	wan.Addrs = append(wan.Addrs, firstOwn)
	p.addSecond(&t, "standby", p.port("switch", "y0", false))
	return t
}

// addSecond adds a second gateway with a name, between clients and the server, and a host for a store. lan are its
// addresses towards the clients.
func (p Spec) addSecond(t *Topology, name string, clients Port, lan ...netip.Prefix) {
	last := len(t.Links) - 1
	wan, server := t.Links[last].A, t.Links[last].B
	t.Nodes = append(t.Nodes,
		Node{Name: name, Metered: true, Sysctls: with(p.routerSysctls(), queuesFor(p.Clients)),
			Routes: t.Nodes[0].Routes},
		Node{Name: "uplink", Sysctls: client.Sysctls, Switch: true},
		Node{Name: "store", Sysctls: client.Sysctls})
	lan2 := p.port(name, "t0", p.Aggregate && !p.NoAggregation, lan...)
	wan2 := p.port(name, "t1", p.Aggregate, p.family([]netip.Prefix{secondOwn}, secondOwn6)...)
	lan2.Name, wan2.Name = PortLAN2, PortWAN2
	on := func(name string) Port { return p.port("uplink", name, false) }
	t.Links = append(t.Links[:last],
		Link{A: wan, B: on("w0")}, Link{A: lan2, B: clients}, Link{A: wan2, B: on("w1")},
		Link{A: on("w2"), B: p.port("store", "d0", true, storeAddr)}, Link{A: on("w3"), B: server})
	t.Store = storeAddr.Addr()
}

package topology

import (
	"encoding/binary"
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Roaming is two gateways, each with a LAN and a client host of its own, before one server. store is a host for a store
// that they share.
//
//	client  ── c0 ═══ r0 router  r1 ═══ w0 ┐        ┌ w3 ═══ s0 server
//	client2 ── c1 ═══ t0 router2 t1 ═══ w1 ┴ uplink ┴ w2 ═══ d0 store
func Roaming(p Spec) Topology {
	p.ClientHosts = 1
	t := Portal(p)
	if p.Closed[0].IsValid() {
		return t // a router that is no host of the lab's has no second one
	}
	t.LAN2, t.RouterWAN2 = next(t.LAN), secondOwn.Addr()
	t.Gateway2 = moved(t.Gateway, t.LAN, t.LAN2)
	server := 1 // Portal's second node
	t.Nodes[server].Routes = append(t.Nodes[server].Routes, p.routes([]agent.Route{{To: t.LAN2, Via: t.RouterWAN2}},
		agent.Route{To: lan62, Via: secondOwn6.Addr()})...)
	t.Nodes = append(t.Nodes, Node{Name: "client2", Role: backend.RoleClient, Sysctls: client.SysctlsFor(p.Family),
		Routes: p.routes(nil, agent.Route{Via: routerLAN62.Addr()})})
	var lan []netip.Prefix
	if p.leases() {
		lan = append(lan, netip.PrefixFrom(t.Gateway2, t.LAN2.Bits()))
	}
	p.addSecond(&t, "router2", p.limited("client2", "c1", p.family(nil, client62)...), p.family(lan, routerLAN62)...)
	return t
}

// next is the network after one of IPv4, of the same size.
func next(p netip.Prefix) netip.Prefix {
	b := p.Masked().Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+1<<(32-p.Bits()))
	return netip.PrefixFrom(netip.AddrFrom4(b), p.Bits())
}

// moved is the address that has the same place in another network.
func moved(a netip.Addr, from, to netip.Prefix) netip.Addr {
	return offset(to, int(place(a)-place(from.Masked().Addr())))
}

package topology

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Study 4's link between the gateways (its programs' addresses); the networks at both ends are study 1's.
var (
	outer1 = netip.MustParsePrefix("192.168.0.1/24")
	outer2 = netip.MustParsePrefix("192.168.0.2/24")

	serverNet = serverAddr.Masked()
)

// Tunnel is the platform of study 4 (figure 5): two gateways with a network behind each. Without a device they route
// to each other, which is the direct path; a device replaces these routes by its tunnel.
//
//	pc1                         gw1                                                   gw2                     pc2
//	 clients ── c0 ═══ r0 192.168.137.254 ·· o1 192.168.0.1 ═══ o2 192.168.0.2 ·· r1 192.168.89.99 ═══ s0 192.168.89.1
func Tunnel(p Spec) Topology {
	t := Topology{Addressing: p.addressing(), Urgent: p.Urgent, UrgentRouters: p.UrgentRouters}
	lan, wan := p.port("gw1", "r0", p.Aggregate && !p.NoAggregation, routerLAN),
		p.port("gw2", "r1", p.Aggregate, routerWAN)
	near, far := p.port("gw1", "o1", p.Aggregate, outer1), p.port("gw2", "o2", p.Aggregate, outer2)
	near.Shape, far.Shape = p.Between, p.Between
	lan.Name, near.Name, far.Name, wan.Name = PortLAN, PortOuter1, PortOuter2, PortWAN
	if p.leases() && t.LAN != DefaultLAN {
		lan.Addrs = append(lan.Addrs, netip.PrefixFrom(t.Gateway, t.LAN.Bits()))
	}
	t.Outer = [2]netip.Addr{outer1.Addr(), outer2.Addr()}
	t.Nodes = []Node{
		{Name: "gw1", Metered: true, Sysctls: with(routerSysctls, queuesFor(p.Clients)),
			Routes: []agent.Route{{To: serverNet, Via: outer2.Addr()}}},
		{Name: "gw2", Metered: true, Sysctls: with(routerSysctls, queuesFor(p.Clients)),
			Routes: []agent.Route{{To: t.LAN, Via: outer1.Addr()}}},
		{Name: "pc1", Role: backend.RoleClient, Sysctls: client.Sysctls, Routes: []agent.Route{{Via: routerLAN.Addr()}}},
		{Name: "pc2", Role: backend.RoleServer, Sysctls: with(client.Sysctls, queuesFor(p.Clients)),
			Routes: []agent.Route{{Via: routerWAN.Addr()}}},
	}
	t.Links = []Link{
		{A: lan, B: p.port("pc1", "c0", true, clientHost)},
		{A: near, B: far},
		{A: wan, B: p.port("pc2", "s0", true, serverAddr, serviceAddr)},
	}
	return t
}

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
	p.addIPv6(&t.Addressing)
	port := func(node, name string, aggregate bool, v4, v6 netip.Prefix) Port {
		return p.port(node, name, aggregate, p.family([]netip.Prefix{v4}, v6)...)
	}
	lan, wan := port("gw1", "r0", p.Aggregate && !p.NoAggregation, routerLAN, routerLAN6),
		port("gw2", "r1", p.Aggregate, routerWAN, routerWAN6)
	near, far := port("gw1", "o1", p.Aggregate, outer1, outer61), port("gw2", "o2", p.Aggregate, outer2, outer62)
	near.Shape, far.Shape = p.Between, p.Between
	lan.Name, near.Name, far.Name, wan.Name = PortLAN, PortOuter1, PortOuter2, PortWAN
	if p.leases() && t.LAN != DefaultLAN {
		lan.Addrs = append(lan.Addrs, netip.PrefixFrom(t.Gateway, t.LAN.Bits()))
	}
	t.Outer = [2]netip.Addr{outer1.Addr(), outer2.Addr()}
	if p.Family.Has6() {
		t.Outer6 = [2]netip.Addr{outer61.Addr(), outer62.Addr()}
	}
	route := func(v4, v6 agent.Route) []agent.Route { return p.routes([]agent.Route{v4}, v6) }
	ends := client.SysctlsFor(p.Family)
	t.Nodes = []Node{
		{Name: "gw1", Metered: true, Sysctls: with(p.routerSysctls(), queuesFor(p.Clients)),
			Routes: route(agent.Route{To: serverNet, Via: outer2.Addr()},
				agent.Route{To: serverAddr6.Masked(), Via: outer62.Addr()})},
		{Name: "gw2", Metered: true, Sysctls: with(p.routerSysctls(), queuesFor(p.Clients)),
			Routes: route(agent.Route{To: t.LAN, Via: outer1.Addr()}, agent.Route{To: lan6, Via: outer61.Addr()})},
		{Name: "pc1", Role: backend.RoleClient, Sysctls: ends,
			Routes: route(agent.Route{Via: routerLAN.Addr()}, agent.Route{Via: routerLAN6.Addr()})},
		{Name: "pc2", Role: backend.RoleServer, Sysctls: with(ends, queuesFor(p.Clients)),
			Routes: route(agent.Route{Via: routerWAN.Addr()}, agent.Route{Via: routerWAN6.Addr()})},
	}
	serverAddrs := p.family([]netip.Prefix{serverAddr, serviceAddr}, serverAddr6)
	t.Links = []Link{
		{A: lan, B: port("pc1", "c0", true, clientHost, clientHost6)},
		{A: near, B: far},
		{A: wan, B: p.port("pc2", "s0", true, serverAddrs...)},
	}
	return t
}

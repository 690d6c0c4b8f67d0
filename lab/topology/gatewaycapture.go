package topology

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
)

var generatorAddr = netip.MustParsePrefix("192.168.137.1/24")

// GatewayCapture is a home gateway that captures what it forwards (study 2): frames of a generator cross the
// router, with the capturing on its WAN interface.
//
//	generator                    router                             sink
//	192.168.137.1 g0 ═══ r0 192.168.137.254 ·· r1 192.168.89.99 ═══ k0 192.168.89.1
func GatewayCapture(p Spec) Topology {
	port := func(node, name string, aggregate bool, v4, v6 netip.Prefix) Port {
		return p.port(node, name, aggregate, p.family([]netip.Prefix{v4}, v6)...)
	}
	lan, wan := port("router", "r0", p.Aggregate, routerLAN, routerLAN6),
		port("router", "r1", p.Aggregate, routerWAN, routerWAN6)
	lan.Name, wan.Name = PortLAN, PortWAN
	ends := client.SysctlsFor(p.Family)
	t := Topology{
		Nodes: []Node{
			{Name: "router", Metered: true, Sysctls: p.routerSysctls()},
			{Name: "generator", Role: backend.RoleGenerator, Sysctls: ends},
			{Name: "sink", Role: backend.RoleSink, Sysctls: ends,
				Routes: p.routes([]agent.Route{{To: DefaultLAN, Via: routerWAN.Addr()}},
					agent.Route{To: lan6, Via: routerWAN6.Addr()})},
		},
		Links: []Link{
			{A: lan, B: port("generator", "g0", true, generatorAddr, generatorAddr6)},
			{A: wan, B: port("sink", "k0", true, serverAddr, serverAddr6)},
		},
		Addressing: Addressing{
			LAN: DefaultLAN, Gateway: routerLAN.Addr(), RouterWAN: routerWAN.Addr(), ServerIP: serverAddr.Addr()},
		Urgent: p.Urgent,
	}
	p.addIPv6(&t.Addressing)
	return t
}

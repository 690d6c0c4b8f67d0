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
	lan, wan := p.port("router", "r0", p.Aggregate, routerLAN), p.port("router", "r1", p.Aggregate, routerWAN)
	lan.Name, wan.Name = PortLAN, PortWAN
	return Topology{
		Nodes: []Node{
			{Name: "router", Metered: true, Sysctls: routerSysctls},
			{Name: "generator", Role: backend.RoleGenerator, Sysctls: client.Sysctls},
			{Name: "sink", Role: backend.RoleSink, Sysctls: client.Sysctls,
				Routes: []agent.Route{{To: DefaultLAN, Via: routerWAN.Addr()}}},
		},
		Links: []Link{
			{A: lan, B: p.port("generator", "g0", true, generatorAddr)},
			{A: wan, B: p.port("sink", "k0", true, serverAddr)},
		},
		Addressing: Addressing{
			LAN: DefaultLAN, Gateway: routerLAN.Addr(), RouterWAN: routerWAN.Addr(), ServerIP: serverAddr.Addr()},
		Urgent: p.Urgent,
	}
}

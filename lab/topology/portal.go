package topology

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Study 1's addressing (5.2.3).
var (
	DefaultLAN  = netip.MustParsePrefix("192.168.137.0/24")
	routerLAN   = netip.MustParsePrefix("192.168.137.254/24")
	clientHost  = netip.MustParsePrefix("192.168.137.253/24") // further client hosts count down from it
	firstLease  = netip.MustParseAddr("192.168.137.1")
	lastLease   = netip.MustParseAddr("192.168.137.250")
	routerWAN   = netip.MustParsePrefix("192.168.89.99/24")
	serverAddr  = netip.MustParsePrefix("192.168.89.1/24")
	serviceAddr = netip.MustParsePrefix("192.168.89.2/24")
)

// Portal is client – router – server of study 1.
//
//	client host                 router                       server
//	 clients ── c0 ═══════ r0 192.168.137.254 ·· r1 192.168.89.99 ═══════ s0 192.168.89.1
//
// Several client hosts share the router's link by a switch, as machines on one
// LAN do (study 1, 7.2):
//
//	client  ── c0 ═══ x1 ┐
//	client2 ── c1 ═══ x2 ┴ switch · x0 ═══ r0 router …
func Portal(p Spec) Topology {
	if p.Closed[0].IsValid() {
		return p.closed()
	}
	t := Topology{Addressing: p.addressing(), Urgent: p.Urgent, UrgentRouters: p.UrgentRouters}
	p.addIPv6(&t.Addressing)
	toClients := []agent.Route{{To: DefaultLAN, Via: routerWAN.Addr()}}
	if t.LAN != DefaultLAN {
		toClients = append(toClients, agent.Route{To: t.LAN, Via: routerWAN.Addr()})
	}
	toClients = p.routes(toClients, agent.Route{To: lan6, Via: routerWAN6.Addr()},
		agent.Route{To: sessions6, Via: routerWAN6.Addr()})
	t.Nodes = []Node{
		{Name: "router", Metered: true, Sysctls: with(p.routerSysctls(), queuesFor(p.Clients)),
			Routes: p.routes([]agent.Route{{Via: serverAddr.Addr()}}, agent.Route{Via: serverAddr6.Addr()})},
		{Name: "server", Role: backend.RoleServer, Sysctls: with(client.SysctlsFor(p.Family), queuesFor(p.Clients)),
			Routes: toClients},
	}
	onLAN := []netip.Prefix{routerLAN}
	if p.leases() && t.LAN != DefaultLAN {
		onLAN = append(onLAN, netip.PrefixFrom(t.Gateway, t.LAN.Bits()))
	}
	lan, wan := p.port("router", "r0", p.Aggregate && !p.NoAggregation, p.family(onLAN, routerLAN6)...),
		p.port("router", "r1", p.Aggregate, p.family([]netip.Prefix{routerWAN}, routerWAN6)...)
	lan.Name, wan.Name = PortLAN, PortWAN
	p.addClientHosts(&t, lan)
	t.Links = append(t.Links, Link{A: wan, B: p.limited("server", "s0",
		p.family([]netip.Prefix{serverAddr, serviceAddr}, serverAddr6)...)})
	return t
}

var routerSysctls = map[string]string{
	"ipv4/ip_forward":                "1",
	"ipv4/conf/all/rp_filter":        "0",
	"ipv4/conf/default/rp_filter":    "0",
	"ipv4/conf/all/send_redirects":   "0",
	"ipv6/conf/all/disable_ipv6":     "1",
	"ipv6/conf/default/disable_ipv6": "1",
}

// Sysctls are the settings of all hosts of a lab with so many clients of a family, below net/,
// for the record.
func Sysctls(clients int, f client.Family) map[string]string {
	return with(with(client.SysctlsFor(f), Spec{Family: f}.routerSysctls()), queuesFor(clients))
}

// listenQueue is the kernel's default limit of connections that wait to be accepted.
const listenQueue = 4096

// queuesFor returns the sysctls that let so many clients connect to a host at the same
// moment. It returns none if the kernel's defaults suffice.
func queuesFor(clients int) map[string]string {
	if clients <= listenQueue {
		return nil
	}
	n := strconv.Itoa(min(clients, 1<<16-1))
	return map[string]string{"core/somaxconn": n, "ipv4/tcp_max_syn_backlog": n}
}

// with returns a map with the settings of both maps.
func with(settings, more map[string]string) map[string]string {
	both := maps.Clone(settings)
	maps.Copy(both, more)
	return both
}

// addClientHosts puts one client host at the end of the router's link, or a switch and several behind it; where the
// switch is there, without a host for it.
func (p Spec) addClientHosts(t *Topology, router Port) {
	sockets := []Port{router} // one a client host
	switch {
	case p.Cables:
		for range p.ClientHosts - 1 {
			sockets = append(sockets, Port{Node: Outside})
		}
	case p.ClientHosts > 1:
		// A switch has no IPv6 of its own.
		t.Nodes = append(t.Nodes, Node{Name: "switch", Sysctls: client.Sysctls, Switch: true})
		t.Links = append(t.Links, Link{A: router, B: p.port("switch", "x0", false)})
		sockets = nil
		for i := range p.ClientHosts {
			sockets = append(sockets, p.port("switch", fmt.Sprintf("x%d", i+1), false))
		}
	}
	p.addEnds(t, sockets, clientHost, clientHost6, routerLAN.Addr(), routerLAN6.Addr())
}

// addEnds adds the hosts for clients, one at each socket, with addresses that count down.
func (p Spec) addEnds(t *Topology, sockets []Port, addr, addr6 netip.Prefix, gateway, gateway6 netip.Addr) {
	for i, socket := range sockets {
		name := "client"
		if i > 0 {
			name = fmt.Sprintf("client%d", i+1)
		}
		routes := p.routes([]agent.Route{{Via: gateway}}, agent.Route{Via: gateway6})
		t.Nodes = append(t.Nodes,
			Node{Name: name, Role: backend.RoleClient, Sysctls: client.SysctlsFor(p.Family), Routes: routes})
		t.Links = append(t.Links, Link{A: socket, B: p.limited(name, fmt.Sprintf("c%d", i),
			p.family([]netip.Prefix{addr}, addr6)...)})
		addr, addr6 = netip.PrefixFrom(addr.Addr().Prev(), addr.Bits()), netip.PrefixFrom(addr6.Addr().Prev(), addr6.Bits())
	}
}

func (p Spec) port(node, name string, aggregate bool, addrs ...netip.Prefix) Port {
	return Port{Node: node, If: name, Addrs: addrs, Aggregate: aggregate, TxChecksum: !p.NoTxChecksum}
}

// limited is a port at an end of the traffic. The router's own have no rate: the timers of its queues would take CPU
// that no thread of the router has.
func (p Spec) limited(node, name string, addrs ...netip.Prefix) Port {
	port := p.port(node, name, true, addrs...)
	port.Shape = p.Ends
	return port
}

// leases reports whether the lab chooses the clients' network. Otherwise the device does.
func (p Spec) leases() bool { return !p.LAN.IsValid() || p.LAN == DefaultLAN }

// addressing is study 1's addressing if its network is large enough for the clients. In a larger network the
// router has the first address. A device that leases addresses sets that address itself.
func (p Spec) addressing() Addressing {
	a := Addressing{
		LAN: p.LAN, RouterWAN: routerWAN.Addr(), ServerIP: serverAddr.Addr(), ServiceIP: serviceAddr.Addr(),
	}
	size := 1 << 18 // of a larger network, addresses
	switch {
	case p.leases() && p.Clients <= 250: // the leases of DefaultLAN
		a.LAN, a.Gateway, a.FirstLease, a.LastLease = DefaultLAN, routerLAN.Addr(), firstLease, lastLease
		return a
	case p.leases() && p.Clients < 1<<16-256:
		a.LAN, size = netip.MustParsePrefix("10.1.0.0/16"), 1<<16
	case p.leases():
		a.LAN = netip.MustParsePrefix("10.0.0.0/14")
	}
	a.Gateway = a.LAN.Masked().Addr().Next()
	if p.leases() {
		last := a.LAN.Addr().As4() // the last 256 addresses are not leased: the broadcast address is among them
		binary.BigEndian.PutUint32(last[:], binary.BigEndian.Uint32(last[:])+uint32(size)-256)
		a.FirstLease, a.LastLease = a.Gateway.Next(), netip.AddrFrom4(last)
	}
	return a
}

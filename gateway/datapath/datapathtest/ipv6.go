package datapathtest

import (
	"net/netip"
	"testing"
)

// networks6 has a World's IPv6 network for each of its IPv4 networks.
var networks6 = map[netip.Prefix]string{
	netip.MustParsePrefix("10.1.0.0/24"): "2001:db8:1::", netip.MustParsePrefix("192.0.2.0/24"): "2001:db8:2::",
	netip.MustParsePrefix("198.51.100.0/24"): "2001:db8:3::", netip.MustParsePrefix("203.0.113.0/24"): "2001:db8:4::",
}

// Six returns the IPv6 address of the machine with an IPv4 address. Its last 32 bits are the IPv4 address.
func Six(a netip.Addr) netip.Addr {
	for p, p6 := range networks6 {
		if p.Contains(a) {
			return netip.MustParseAddr(p6 + a.String())
		}
	}
	return netip.MustParseAddr("2001:db8:99::" + a.String())
}

// enable6 gives the machines their IPv6 addresses and default routes, and the gateway static neighbours for the server.
func (w *World) enable6(t testing.TB) {
	t.Helper()
	const enable = `for l in $links; do d=/proc/sys/net/ipv6/conf/$l
echo 0 >$d/disable_ipv6; echo 0 >$d/accept_dad; echo 0 >$d/accept_ra; echo 1 >$d/addr_gen_mode; done
for a in $addrs; do ip -6 addr add ${a#*@}/64 dev ${a%@*} nodad; done
`
	at := func(link string, all ...netip.Addr) (out string) {
		for _, a := range all {
			out += " " + link + "@" + Six(a).String()
		}
		return out
	}
	w.Router.Run(t, "sysctl -qw net.ipv6.conf.all.forwarding=1\n"+enable+
		`for n in $near; do ip -6 neigh replace $n lladdr $mac dev wan0 nud permanent; done
ip -6 route add default via $server`,
		"links=lan0 wan0", "addrs="+at(lanLink, Gateway)+at(wanLink, RouterWAN),
		"near="+Six(Server).String()+" "+Six(Second).String(), "mac="+hw(ServerMAC).String(), "server="+Six(Server).String())
	w.Server.Run(t, enable+"ip -6 route add default via $router",
		"links=lo s0", "addrs="+at("s0", Server, Second)+at("lo", Garden, Beside), "router="+Six(RouterWAN).String())
	for _, s := range []Station{w.Alice, w.Bob, w.Intruder} {
		s.Run(t, enable+"ip -6 route add default via $router",
			"links="+clientLink, "addrs="+at(clientLink, s.Addr), "router="+Six(Gateway).String())
	}
}

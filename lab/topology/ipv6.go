package topology

import (
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Study 1's and study 4's addresses in IPv6, with the same last groups, in the networks for documentation (RFC 3849).
// The clients' network is a /64, as SLAAC needs it.
var (
	lan6       = netip.MustParsePrefix("2001:db8:137::/64")
	routerLAN6 = netip.MustParsePrefix("2001:db8:137::254/64")
	// sessions6 is the network of which clients of PPPoE sessions have a /64 each. It lies behind the router.
	sessions6   = netip.MustParsePrefix("2001:db8:1370::/44")
	clientHost6 = netip.MustParsePrefix("2001:db8:137::253/64") // further client hosts count down from it
	// lan62 is the network of the clients of a second gateway that has clients of its own.
	lan62       = netip.MustParsePrefix("2001:db8:138::/64")
	routerLAN62 = netip.MustParsePrefix("2001:db8:138::254/64")
	client62    = netip.MustParsePrefix("2001:db8:138::253/64")
	routerWAN6  = netip.MustParsePrefix("2001:db8:89::99/64")
	serverAddr6 = netip.MustParsePrefix("2001:db8:89::1/64")
	outer61     = netip.MustParsePrefix("2001:db8::1/64")
	outer62     = netip.MustParsePrefix("2001:db8::2/64")

	generatorAddr6 = netip.MustParsePrefix("2001:db8:137::1/64")
)

// family returns the addresses that a port has in labs of the family: those of IPv4, which all labs have, and with IPv6
// those behind them.
func (p Spec) family(v4 []netip.Prefix, v6 ...netip.Prefix) []netip.Prefix {
	if p.Family.Has6() {
		return append(v4, v6...)
	}
	return v4
}

// routes returns routes, and with IPv6 those behind them.
func (p Spec) routes(v4 []agent.Route, v6 ...agent.Route) []agent.Route {
	if p.Family.Has6() {
		return append(v4, v6...)
	}
	return v4
}

// addIPv6 adds the IPv6 addresses of a lab with clients to its addressing.
func (p Spec) addIPv6(a *Addressing) {
	if p.Family.Has6() {
		a.LAN6, a.Gateway6, a.RouterWAN6, a.ServerIP6 = lan6, routerLAN6.Addr(), routerWAN6.Addr(), serverAddr6.Addr()
		a.Sessions6 = sessions6
	}
}

// routerSysctls are the settings of a router. Where clients have IPv6, it forwards that as it forwards IPv4.
func (p Spec) routerSysctls() map[string]string {
	if !p.Family.Has6() {
		return routerSysctls
	}
	return with(with(routerSysctls, client.IPv6Sysctls), map[string]string{
		"ipv6/conf/all/forwarding": "1", "ipv6/conf/default/forwarding": "1",
	})
}

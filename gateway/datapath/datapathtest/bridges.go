package datapathtest

import (
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// places are the behaviours that depend on where the clients are. Run tests all behaviours with clients behind a bridge
// (hub), and these also where the LAN is a bridge of the gateway's machine whose frames netfilter sees, and where the
// clients are directly at the link. With the flag -clients all behaviours are tested at another place.
var places = []behaviour{
	{"OnTheGatewaysBridge", inTurn("DHCPComesThrough", "PacketsAreCounted", "GardenOpensAndCloses", "HTTPGoesToThePortal",
		"NATAndFirewalls"), Shape{Place: netnstest.OnGateway}},
	{"StrangersOnTheGatewaysBridge", inTurn("LANThroughTheGateway", "NothingOfStrangersLeaves"),
		Shape{Place: netnstest.OnGateway}},
	{"ForgedARPOnTheGatewaysBridge", arpGames, Shape{Place: netnstest.OnGateway}},
	{"OthersMarkHTTPOnTheGatewaysBridge", othersMark, Shape{Place: netnstest.OnGateway}},
	{"LinesOnTheGatewaysBridge", onPPPoE(pppoeBehindNAT), Shape{PPPoE: true, Place: netnstest.OnGateway}},
	{"DirectlyAtTheLink", inTurn("DHCPComesThrough", "PacketsAreCounted", "HTTPGoesToThePortal"),
		Shape{Place: netnstest.Direct}},
}

// inTurn tests several behaviours one after the other in one network, which saves time. Behaviours that expect counters
// of 0 come first, and none uses up a client's budget.
func inTurn(names ...string) func(*testing.T, *World) {
	return func(t *testing.T, w *World) {
		for _, name := range names {
			for _, b := range behaviours {
				if b.name == name {
					t.Run(name, func(t *testing.T) { b.check(t, w) })
				}
			}
		}
	}
}

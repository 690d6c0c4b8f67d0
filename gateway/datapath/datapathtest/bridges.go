package datapathtest

import (
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// places: what depends on where the clients are. All behaviours are shown behind a bridge; these again where the LAN is
// a bridge of the gateway's machine whose frames netfilter sees, and directly at the link. With the flag -clients all
// behaviours are shown at another place.
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

// inTurn shows several behaviours one after the other in one network, which saves time. Those that count from zero come
// first, and none uses up a client's budget.
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

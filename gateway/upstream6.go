package gateway

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/routeradv"
	"github.com/gateweigh/gateweigh/gateway/ticker"
)

// upstream6 is whether the machine has a way to the Internet by IPv6. A gateway that loses it is no default router for
// clients until it returns (RFC 7084, G-4 and G-5): they begin connections by IPv4 at once. One that has never had such
// a way routes other networks, and is a router. The zero value is that.
type upstream6 struct {
	seen bool        // of follow's goroutine
	lost atomic.Bool // it was there, and is not
}

// upstreamLook is how often it is looked for.
const upstreamLook = time.Second

// internet6 has the addresses of the Internet (RFC 4291, 2.4): the first of what is assigned.
var internet6 = net.ParseIP("2000::")

// followUpstream6 tells clients when the way to the Internet by IPv6 goes and returns, until ctx ends.
//
// Where each client has a /64 of its own, the gateway stays their router: DNS and the portal are at an address behind
// it. The kernel answers their packets to the Internet with "no route".
func (g *gateway) followUpstream6(ctx context.Context) error {
	if g.cfg.LAN.ClientPrefixes.On() {
		<-ctx.Done()
		return nil
	}
	tick := ticker.Every(upstreamLook)
	defer tick.Stop()
	u := &g.upstream6
	for {
		_, err := netlink.RouteGet(internet6) // fails without a route
		u.seen = u.seen || err == nil
		if lost := u.seen && err != nil; lost != u.lost.Swap(lost) {
			if lost {
				g.log.Warn("no IPv6 route to the Internet: clients are told that this is no default router", "err", err)
			} else {
				g.log.Info("there is an IPv6 route to the Internet again")
			}
			err := g.advertiser.Update(func(a *routeradv.Advertisement) { a.RouterLifetime = u.routerLifetime() })
			if err != nil {
				g.log.Error("clients are not told whether there is a way to the Internet", "err", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// routerLifetime is for how long clients take the gateway as default router; 0: they do not.
func (u *upstream6) routerLifetime() time.Duration {
	if u.lost.Load() {
		return 0
	}
	return routerLifetime
}

package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Where another program leases addresses, a client claims its address by using it.
const (
	// maxClaims bounds the addresses of one MAC address, as the DHCP server bounds leases.
	maxClaims = 4
	// claimTime is how long an unauthenticated client keeps an address that it does not use.
	// A client that still uses its address claims it again.
	claimTime = 5 * time.Minute
)

// claims counts what newcomers were refused.
type claims struct {
	refused atomic.Uint64
	warned  atomic.Int64 // Unix nanoseconds of the last warning
}

// newcomer adds a client whose address another program leased, unless the address can be
// nobody's or its MAC address has enough.
func (g *gateway) newcomer(addr netip.Addr, mac datapath.MAC) {
	select {
	case <-g.known:
	default:
		return
	}
	if why := g.cfg.LAN.Unleasable(addr); why != "" {
		return
	}
	if g.table.Addresses(mac) >= maxClaims {
		g.claims.refuse(g, addr, mac)
		return
	}
	if err := g.table.Lease(session.Key{MAC: mac, Addr: addr}, "", time.Now().Add(min(claimTime, g.cfg.DHCP.Lease))); err != nil {
		g.log.Warn("taking up a client that others leased an address", "addr", addr, "err", err)
	}
}

// refuse logs a refused claim, at most one a minute: clients must not fill the log.
func (c *claims) refuse(g *gateway, addr netip.Addr, mac datapath.MAC) {
	total, now := c.refused.Add(1), time.Now().UnixNano()
	last := c.warned.Load()
	if now-last >= time.Minute.Nanoseconds() && c.warned.CompareAndSwap(last, now) {
		g.log.Warn("a device uses more addresses than it can have", "client", session.Key{MAC: mac, Addr: addr}.String(), "most", maxClaims, "refused", total)
	}
}

// admitted lengthens the claim of a client that has logged in to a lease.
func (g *gateway) admitted(s session.Session) {
	if g.dhcp != nil || s.LeaseEnd.IsZero() {
		return
	}
	if err := g.table.Lease(s.Key, s.Hostname, time.Now().Add(g.cfg.DHCP.Lease)); err != nil {
		g.log.Warn("keeping a client", "addr", s.Addr, "err", err)
	}
}

// renew keeps the entries of logged-in clients with leases from another program while
// they send, because those leases are not reported.
func (g *gateway) renew(ctx context.Context) error {
	every := g.cfg.DHCP.Lease / 4
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		var active []session.Session
		g.table.Each(func(s session.Session) bool {
			if s.State == session.Authenticated && time.Since(s.Seen) < 2*every {
				active = append(active, s)
			}
			return true
		})
		for _, s := range active {
			g.admitted(s)
		}
	}
}

// forgetClaims removes clients without a session whose address this gateway has not
// leased: claims of before dhcp.mode was changed back, for example.
func (g *gateway) forgetClaims(leased []dhcp.Lease) error {
	known := map[netip.Addr]bool{}
	for _, l := range leased {
		known[l.Addr] = true
	}
	var claimed []session.Key
	g.table.Each(func(s session.Session) bool {
		if !known[s.Addr] && s.State != session.Authenticated && !s.LeaseEnd.IsZero() {
			claimed = append(claimed, s.Key)
		}
		return true
	})
	for _, k := range claimed {
		if err := g.table.Forget(k); err != nil {
			return fmt.Errorf("forgetting %s, whose address was not leased: %w", k, err)
		}
	}
	return nil
}

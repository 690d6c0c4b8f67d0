package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/stack"
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

// claims counts what newcomers were refused, and verifies what they got.
type claims struct {
	refused atomic.Uint64
	warned  atomic.Int64 // Unix nanoseconds of the last warning

	mu        sync.Mutex
	ended     bool // guarded by mu
	verifying sync.WaitGroup
}

// verify runs f unless the gateway ends.
func (c *claims) verify(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.verifying.Go(f)
	}
}

// end waits for what is being verified.
func (c *claims) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.verifying.Wait()
}

// newcomer adds a client whose address another program leased, unless the address can be
// nobody's or its MAC address has enough.
func (g *gateway) newcomer(addr netip.Addr, mac datapath.MAC) {
	select {
	case <-g.known:
	default:
		return
	}
	key := session.Key{MAC: mac, Addr: addr}
	switch s, taken := g.table.Get(addr); {
	case taken && s.MAC != mac: // claimed since the data path reported this one
		return
	case g.cfg.LAN.Unleasable(addr) != "":
		return
	case g.has(addr): // besides lan.address
		return
	case g.serves(addr):
		g.claims.refuse(g, key, "a device uses the address of a server in the configuration: log that server in by gatewayd login ADDRESS --mac MAC")
		return
	case g.table.Addresses(mac) >= maxClaims:
		g.claims.refuse(g, key, "a device uses more addresses than it can have")
		return
	}
	if err := g.table.Lease(key, "", time.Now().Add(min(claimTime, g.cfg.DHCP.Lease))); errors.Is(err, session.ErrClosed) {
		return // the daemon ends: see close
	} else if err != nil {
		g.log.Warn("taking up a client that others leased an address", "addr", addr, "err", err)
		return
	}
	g.claims.verify(func() { g.verify(key) })
}

// has reports whether an address is one of this machine's; those it cannot list are not clients'
// either.
func (g *gateway) has(addr netip.Addr) bool {
	own, err := stack.Own()
	if err != nil {
		g.log.Warn("taking up a client that others leased an address", "addr", addr, "err", err)
	}
	return err != nil || slices.Contains(own, addr)
}

// serves reports whether an address is one that the configuration names as a server's.
func (g *gateway) serves(addr netip.Addr) bool {
	is := func(a netip.AddrPort) bool { return a.Addr() == addr }
	for _, s := range g.cfg.RADIUS.Servers() {
		if is(s.Address) || is(s.AcctAddress) {
			return true
		}
	}
	return slices.ContainsFunc(g.cfg.DNS.Upstreams, is) ||
		slices.ContainsFunc(g.cfg.Garden.Prefixes, func(p netip.Prefix) bool { return p.IsSingleIP() && p.Addr() == addr })
}

// verify removes a claim whose client does not answer ARP for the address: a device that
// only sends with others' addresses keeps no owner out. A flood of claims has each wait for its turn.
func (g *gateway) verify(key session.Key) {
	claimed := func() bool {
		s, known := g.table.Get(key.Addr)
		return known && s.Key == key && s.State != session.Authenticated
	}
	there, err := g.arp.ThereInTurn(g.living, key.Addr, key.MAC, claimed)
	if there || err != nil || !claimed() {
		return
	}
	if err := g.table.Forget(key); err != nil {
		g.log.Warn("forgetting a claim", "client", key.String(), "err", err)
		return
	}
	g.claims.refuse(g, key, "a device sent with an address for which it does not answer by ARP")
}

// refuse logs a refused claim, at most one a minute: clients must not fill the log.
func (c *claims) refuse(g *gateway, key session.Key, why string) {
	total, now := c.refused.Add(1), time.Now().UnixNano()
	last := c.warned.Load()
	if now-last >= time.Minute.Nanoseconds() && c.warned.CompareAndSwap(last, now) {
		g.log.Warn("claim of an address refused: "+why, "client", key.String(), "most", maxClaims, "refused", total)
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

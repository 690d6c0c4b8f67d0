package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Where another program leases addresses, a client claims its address by using it.
const (
	// maxClaims bounds the addresses of one MAC address, as the DHCP server bounds leases.
	maxClaims = 4
	// maxBehind bounds the addresses of a repeater's MAC address, by leases and claims alike.
	maxBehind = 250
	// claimTime is how long an unauthenticated client keeps an address that it does not use. A client that still uses its
	// address claims it again.
	claimTime = 5 * time.Minute
	// renewedAtOnce is how many clients' claims are lengthened at once.
	renewedAtOnce = 256
)

// Reasons for which a claim is refused.
const (
	aServers = "a device uses the address of a server in the configuration: log that server in by gatewayd login " +
		"ADDRESS --mac MAC"
	tooMany = "a device uses more addresses than it can have"
)

// newcomerClaims verifies in the background that newcomers really have the addresses that they use, and logs those that
// were refused.
type newcomerClaims struct {
	refused, failed countedWarning

	mu        sync.Mutex
	finished  bool // guarded by mu
	verifying sync.WaitGroup
}

// verify runs f unless the gateway ends.
func (c *newcomerClaims) verify(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.finished {
		c.verifying.Go(f)
	}
}

// finish waits for verifications in progress, and begins no others.
func (c *newcomerClaims) finish() {
	c.mu.Lock()
	c.finished = true
	c.mu.Unlock()
	c.verifying.Wait()
}

// isFinished reports whether the gateway ends.
func (c *newcomerClaims) isFinished() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.finished
}

// openNewcomers begins to take clients up that the data path reports.
func (g *gateway) openNewcomers(ctx context.Context) (opened, error) {
	living, end := context.WithCancel(ctx)
	g.sessionsCtx = living
	close(g.tableOpened)
	return opened{close: func() error { end(); g.claims.finish(); return nil }}, nil
}

// newcomer adds a client whose address another program leased, unless the address can be nobody's or its MAC address
// has enough.
func (g *gateway) newcomer(addr netip.Addr, mac datapath.MAC) {
	select {
	case <-g.tableOpened:
	default:
		return
	}
	key := session.Key{MAC: mac, Addr: addr}
	switch s, taken := g.table.Get(addr); {
	case taken && s.MAC != mac: // claimed since the data path reported this one
		return
	case g.cfg.LAN.Unleasable(addr) != "":
		return
	case g.hasAddress(addr): // besides lan.address
		return
	case g.serves(addr):
		g.claims.refuse(g, key, aServers)
		return
	}
	switch err := g.table.Claim(key, time.Now().Add(min(claimTime, g.cfg.DHCP.Lease)), g.mostOf(mac)); {
	case errors.Is(err, session.ErrTaken):
	case errors.Is(err, session.ErrClosed) && g.claims.isFinished(): // the daemon ends: see claims.end
	case errors.Is(err, session.ErrAddresses):
		g.claims.refuse(g, key, tooMany)
	case err != nil:
		g.claims.failed.warn(g.log,
			"a client that another program leased an address cannot be taken up, and cannot log in: has the disk of state_dir "+
				"room?", "client", key.String(), "err", err)
	default:
		g.leased6(key)
		g.claims.verify(func() { g.verify(key) })
	}
}

// hasAddress reports whether an address is one of this machine's; those it cannot list are not clients'
// either.
func (g *gateway) hasAddress(addr netip.Addr) bool {
	ownAddrs, err := stack.OwnAddresses()
	if err != nil {
		g.claims.failed.warn(
			g.log, "taking up no clients, because this machine's addresses cannot be listed", "addr", addr, "err", err)
	}
	return err != nil || slices.Contains(ownAddrs, addr)
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

// verify removes a claim whose client does not answer ARP for the address: a device that only sends with others'
// addresses keeps no owner out. A flood of claims has each wait for its turn.
func (g *gateway) verify(key session.Key) {
	claimed := func() bool {
		s, known := g.table.Get(key.Addr)
		return known && s.Key == key && s.State != session.Authenticated
	}
	found, err := g.arp.PresentInTurn(g.sessionsCtx, key.Addr, key.MAC, claimed)
	if found {
		g.seen(key.MAC)
	}
	if found || err != nil || !claimed() {
		return
	}
	gone, err := g.table.ForgetStranger(key)
	if err != nil {
		g.claims.failed.warn(g.log, "an address stays with a device that does not answer for it until the claim ends",
			"client", key.String(), "err", err)
	}
	if err != nil || !gone {
		return
	}
	g.claims.refuse(g, key, "a device sent with an address for which it does not answer by ARP")
}

// refuse logs a refused claim.
func (c *newcomerClaims) refuse(g *gateway, key session.Key, reason string) {
	c.refused.warn(g.log, "claim of an address refused: "+reason, "client", key.String(), "most", g.mostOf(key.MAC))
}

// mostOf is how many addresses a MAC address can claim.
func (g *gateway) mostOf(mac datapath.MAC) int {
	if g.cfg.LAN.Repeats(mac) {
		return maxBehind
	}
	return maxClaims
}

// countedWarning logs a warning now and then, with the number of occurrences since the last: clients must not fill the
// log.
type countedWarning struct {
	count  atomic.Uint64
	warned budget.OncePerMinute
}

func (s *countedWarning) warn(log *slog.Logger, text string, args ...any) {
	count := s.count.Add(1)
	s.warned.Do(func() { log.Warn(text, append(args, "count", count)...) })
}

// admitted lengthens the claim of a client that has logged in to a lease.
func (g *gateway) admitted(s session.Session) {
	if s.LeaseEnd.IsZero() || s.PPPoE.Session != 0 || g.dhcp != nil && !g.dhcp.HasClaim(dhcp.MAC(s.MAC), s.Addr) {
		return
	}
	if err := g.table.Keep(s.Key, time.Now().Add(g.cfg.DHCP.Lease)); err != nil {
		g.claims.failed.warn(g.log,
			"a logged-in client loses its address and session when its claim ends: has the disk of state_dir room?", "client",
			s.Key.String(), "err", err)
	}
}

// renew keeps the entries of logged-in clients with leases from another program while they send, because those leases
// are not reported.
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
			if s.State == session.Authenticated && s.PPPoE.Session == 0 && time.Since(s.Seen) < 2*every {
				active = append(active, s)
			}
			return true
		})
		var together sync.WaitGroup // they share writes to the disk
		for some := range slices.Chunk(active, renewedAtOnce) {
			for _, s := range some {
				together.Go(func() { g.admitted(s) })
			}
			together.Wait()
		}
	}
}

// forgetClaims removes clients without a session whose address this gateway has not leased, and that may not be a
// claim: claims of before dhcp.mode was changed back, for example.
func (g *gateway) forgetClaims(leased []dhcp.Lease) error {
	known := map[netip.Addr]bool{}
	for _, l := range leased {
		known[l.Addr] = true
	}
	for _, addr := range g.restoreClaims(known) {
		known[addr] = true
	}
	return g.forgetStrangers(func(s session.Session) bool { return s.Addr.Is4() && !known[s.Addr] })
}

// forgetUnleased removes clients that an operator was about to log in without a lease when the daemon died.
func (g *gateway) forgetUnleased() error {
	return g.forgetStrangers(func(s session.Session) bool { return s.Addr.Is4() && s.LeaseEnd.IsZero() })
}

// forgetStrangers removes the clients without a session that are some of those.
func (g *gateway) forgetStrangers(matches func(session.Session) bool) error {
	var keys []session.Key
	g.table.Each(func(s session.Session) bool {
		if s.State != session.Authenticated && matches(s) {
			keys = append(keys, s.Key)
		}
		return true
	})
	for _, k := range keys {
		if _, err := g.table.ForgetStranger(k); err != nil {
			return fmt.Errorf("forgetting %s, whose address was not leased: %w", k, err)
		}
	}
	return nil
}

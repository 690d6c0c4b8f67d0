package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Beside gatewayd's own DHCP server (dhcp.claims) a device may use an address that nobody leased. Unlike where another
// program leases addresses (newcomers.go), nobody vouches for the device: it gets the address once ARP has shown that
// it has it, and that no other device does.
const (
	// askedMost bounds the addresses that are asked about, or were refused lately.
	askedMost = 512
	// refusedFor is how long an address that was refused is not asked about again: devices go on sending.
	refusedFor = 10 * time.Second
	// keptAtOnce bounds the devices that are asked at once whether they still have their addresses.
	keptAtOnce = 128
)

// ownAddresses are the claims of devices with addresses of their own.
type ownAddresses struct {
	asker                    arp.Prober    // hears devices that are no clients, too
	served                   chan struct{} // closed once the DHCP server is open
	made, conflicts, refused atomic.Uint64

	mu    sync.Mutex
	asked map[netip.Addr]time.Time // guarded by mu: addresses that are asked about (zero), or were refused until then
}

// ownStats are the counts of ownAddresses since the start: addresses that devices got, that they were refused, and of
// these those that another device has.
type ownStats struct{ Made, Refused, Conflicts uint64 }

func (o *ownAddresses) stats() ownStats {
	return ownStats{o.made.Load(), o.refused.Load(), o.conflicts.Load()}
}

// begin notes that an address is asked about. It returns false if it is already, if it was refused lately, and if there
// are too many.
func (o *ownAddresses) begin(addr netip.Addr, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if until, found := o.asked[addr]; found && (until.IsZero() || now.Before(until)) {
		return false
	}
	if len(o.asked) >= askedMost {
		for a, until := range o.asked {
			if !until.IsZero() && !now.Before(until) {
				delete(o.asked, a)
			}
		}
	}
	if len(o.asked) >= askedMost {
		return false
	}
	if o.asked == nil {
		o.asked = map[netip.Addr]time.Time{}
	}
	o.asked[addr] = time.Time{}
	return true
}

// asks reports whether an address is asked about, or is being given to the device that claims it.
func (o *ownAddresses) asks(addr netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	until, found := o.asked[addr]
	return found && until.IsZero()
}

// end notes what became of a question.
func (o *ownAddresses) end(addr netip.Addr, refused bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if refused {
		o.asked[addr] = time.Now().Add(refusedFor)
	} else {
		delete(o.asked, addr)
	}
}

// claimant is newcomer for a device that uses an address beside gatewayd's own DHCP server.
func (g *gateway) claimant(addr netip.Addr, mac datapath.MAC) {
	select {
	case <-g.own.served:
	default:
		return
	}
	key := session.Key{MAC: mac, Addr: addr}
	if _, taken := g.table.Get(addr); taken || !g.cfg.Claimable(addr) || g.cfg.LAN.Unleasable(addr) != "" ||
		g.hasAddress(addr) || !g.own.begin(addr, time.Now()) {
		return
	}
	refuse := func(reason string) {
		g.refuseClaim(key, reason)
		g.own.end(addr, true)
	}
	switch {
	case g.serves(addr):
		refuse(aServers)
	case len(g.table.ClientsOf(mac)) >= g.mostOf(mac):
		refuse(tooMany)
	default:
		g.claims.verify(func() { g.decideClaim(key, refuse) })
	}
}

// refuseClaim counts and logs a claim that was refused.
func (g *gateway) refuseClaim(key session.Key, reason string) {
	g.own.refused.Add(1)
	g.claims.refuse(g, key, reason)
}

// decideClaim asks who has an address, and gives it to the device that claims it if that alone has it. First come,
// first served: while a question is under way, and once an address is a client's, others' claims are not heard.
func (g *gateway) decideClaim(key session.Key, refuse func(reason string)) {
	holders, err := g.own.asker.Holders(g.sessionsCtx, key.Addr)
	others := slices.DeleteFunc(slices.Clone(holders), func(m arp.MAC) bool { return m == arp.MAC(key.MAC) })
	switch {
	case err != nil:
		g.own.end(key.Addr, false)
		if !errors.Is(err, arp.ErrBusy) && g.sessionsCtx.Err() == nil {
			g.claims.failed.warn(
				g.log, "a device with an address of its own is not served", "client", key.String(), "err", err)
		}
	case len(others) > 0:
		g.own.conflicts.Add(1)
		refuse("another device, " + net.HardwareAddr(others[0][:]).String() + ", answers for it by ARP")
	case len(holders) == 0:
		refuse("the device that uses it does not answer for it by ARP")
	default:
		g.takeClaim(key, refuse)
	}
}

// takeClaim gives a device the address that it alone has, unless DHCP has given it away meanwhile.
func (g *gateway) takeClaim(key session.Key, refuse func(reason string)) {
	if !g.dhcp.Claim(dhcp.MAC(key.MAC), key.Addr) {
		g.own.conflicts.Add(1)
		refuse("DHCP has leased, offered or reserved it to another device")
		return
	}
	err := g.table.Claim(key, time.Now().Add(g.claimTerm(false)), g.mostOf(key.MAC))
	if err != nil {
		g.dhcp.Unclaim(dhcp.MAC(key.MAC), key.Addr)
	}
	switch {
	case errors.Is(err, session.ErrAddresses):
		refuse(tooMany)
		return
	case errors.Is(err, session.ErrTaken), errors.Is(err, session.ErrClosed) && g.claims.isFinished():
	case err != nil:
		g.claims.failed.warn(g.log, "a device with an address of its own cannot be taken up, and cannot log in: has the "+
			"disk of state_dir room?", "client", key.String(), "err", err)
	default:
		g.own.made.Add(1)
		g.log.Debug("a device has an address of its own", "client", key.String())
		g.leased6(key)
		g.seen(key.MAC)
	}
	g.own.end(key.Addr, false)
}

// claimTerm is how long a claim lasts until its device is asked again.
func (g *gateway) claimTerm(loggedIn bool) time.Duration {
	if loggedIn {
		return g.cfg.DHCP.Lease
	}
	return min(claimTime, g.cfg.DHCP.Lease)
}

// keepClaims asks devices before their claims end whether they still have their addresses, and lengthens the claims of
// those that do. Claims whose client has gone are given back to the DHCP server.
func (g *gateway) keepClaims(ctx context.Context) error {
	every := g.claimTerm(false) / 6
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
		turns := make(chan struct{}, keptAtOnce)
		var asking sync.WaitGroup
		for _, c := range g.dhcp.Claims() {
			key := session.Key{MAC: datapath.MAC(c.MAC), Addr: c.Addr}
			begins := g.own.asks(key.Addr) // before the look at the table, which a claim is entered in meanwhile
			s, known := g.table.Get(key.Addr)
			switch {
			case begins:
			case !known || s.MAC != key.MAC:
				g.dhcp.Unclaim(dhcp.MAC(key.MAC), key.Addr)
			case time.Until(s.LeaseEnd) < 3*every: // it is asked twice at least
				turns <- struct{}{}
				asking.Go(func() { defer func() { <-turns }(); g.keepClaim(ctx, key) })
			}
		}
		asking.Wait()
	}
}

// keepClaim lengthens a claim if its device answers.
func (g *gateway) keepClaim(ctx context.Context, key session.Key) {
	isClaim := func() bool { return g.dhcp.HasClaim(dhcp.MAC(key.MAC), key.Addr) }
	if found, err := g.arp.PresentInTurn(ctx, key.Addr, key.MAC, isClaim); !found || err != nil {
		return
	}
	s, known := g.table.Get(key.Addr)
	if !known || s.MAC != key.MAC {
		return
	}
	if err := g.table.Keep(key, time.Now().Add(g.claimTerm(s.State == session.Authenticated))); err != nil {
		g.claims.failed.warn(g.log, "a device loses its address and session when its claim ends: has the disk of state_dir "+
			"room?", "client", key.String(), "err", err)
	}
}

// restoreClaims sets the addresses of a former daemon's clients aside that were claims, and returns them. Those with
// leases are in leased.
func (g *gateway) restoreClaims(leased map[netip.Addr]bool) (all []netip.Addr) {
	var keys []session.Key
	g.table.Each(func(s session.Session) bool {
		if s.Addr.Is4() && !leased[s.Addr] && s.PPPoE.Session == 0 && !s.LeaseEnd.IsZero() && g.cfg.Claimable(s.Addr) {
			keys = append(keys, s.Key)
		}
		return true
	})
	for _, k := range keys {
		if g.dhcp.Claim(dhcp.MAC(k.MAC), k.Addr) {
			all = append(all, k.Addr)
		}
	}
	return all
}

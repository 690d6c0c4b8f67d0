package gateway

import (
	"context"
	"net/netip"
	"time"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/config"
)

const (
	// settled is how long the addresses must be here, or not be here, until that says more than keepalived has said:
	// what it says may be lost, as while the daemon does not run.
	settled = 2 * time.Second
	// givenUp is how long keepalived has to take the addresses away from a gateway that must not serve.
	givenUp = 5 * time.Second
)

// presence is since when the address of the LAN is here, or is not.
type presence struct {
	here  bool
	since time.Time
}

// look looks whether the address is here, and returns since when that is so.
func (p *presence) look(cfg *config.Config) (here bool, since time.Duration) {
	if now := sharedAddresses(cfg)[0].isHere(); p.since.IsZero() || now != p.here {
		*p = presence{now, time.Now()}
	}
	return p.here, time.Since(p.since)
}

// awaitTurn returns true when this gateway is to serve, and false when ctx ends.
func (l *pairLife) awaitTurn(ctx context.Context) bool {
	turn, every := l.hasTurn, leadEvery
	if l.cfg.Pair.By == config.ByStore {
		turn, every = l.takesLease, l.cfg.Pair.Lease/6
	}
	for {
		_, changed := l.wanted()
		former, _ := l.known()
		if turn(ctx) {
			l.former = former.Gateway
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		case <-time.After(every):
		}
	}
}

// hasTurn reports whether keepalived has given this gateway the addresses.
func (l *pairLife) hasTurn(context.Context) bool {
	wanted, _ := l.wanted()
	if wanted {
		return true
	}
	here, since := l.presence.look(l.cfg)
	if !here || since < settled {
		return false
	}
	lead, asked := l.known()
	if l.fencedBy() != "" || asked && lead.Gateway != "" && lead.Gateway != l.g.store.Gateway {
		if since > givenUp {
			l.log.Error("keepalived leaves the other gateway's addresses here: is it dead? gatewayd takes them away",
				"serves", lead.Gateway)
			l.dropAddresses()
		}
		return false
	}
	if !asked && time.Since(l.began) < storeAwayFor {
		return false
	}
	l.log.Info("this gateway has the addresses, so that it serves, although keepalived has not said so since it started")
	return l.become(true) == nil
}

// keepTurn keeps this gateway's term until it must no longer serve (errStandby), or ctx ends.
func (l *pairLife) keepTurn(ctx context.Context) error {
	keeps, every := l.keepsAddresses, leadEvery
	if l.cfg.Pair.By == config.ByStore {
		keeps, every = l.keepsLease, l.cfg.Pair.Lease/6
	}
	for {
		_, changed := l.wanted()
		if !keeps(ctx) {
			return errStandby
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(every):
		}
	}
}

// keepsAddresses renews this gateway's term, and reports whether it still has the addresses, and no other one serves.
func (l *pairLife) keepsAddresses(ctx context.Context) bool {
	if wanted, _ := l.wanted(); !wanted || !l.keep(ctx, 0) {
		return false
	}
	if here, since := l.presence.look(l.cfg); !here && since > settled && l.serving.Load() {
		l.log.Warn("keepalived has taken the addresses away")
		_ = l.become(false)
		return false
	}
	return true
}

// keep begins or renews this gateway's term. It returns false where another one serves.
func (l *pairLife) keep(ctx context.Context, lease time.Duration) bool {
	act := l.site.Keep
	if l.site.Term() == 0 && lease == 0 {
		act = l.site.Take
	}
	lead, err := act(ctx, lease)
	if err != nil {
		return true // the store is away: this gateway goes on
	}
	l.note(lead)
	if lead.Gateway == l.g.store.Gateway {
		return true
	}
	l.fence(lead.Gateway)
	return false
}

// takesLease takes the lease in the store, if nobody has it and nobody answers for the LAN's address, and then the
// addresses.
func (l *pairLife) takesLease(ctx context.Context) bool {
	lead, asked := l.known()
	free := lead.Gateway == "" || lead.Gateway == l.g.store.Gateway || lead.Left <= 0
	if !asked || !free || !l.g.store.State().Up || !l.isSynced() || l.answered(ctx) {
		return false
	}
	lead, err := l.site.Take(ctx, l.cfg.Pair.Lease)
	if err != nil || lead.Gateway != l.g.store.Gateway {
		return false
	}
	l.note(lead)
	return l.hold()
}

// answered reports whether another machine answers for the LAN's address: the gateway that has it may only be cut off
// from the store.
func (l *pairLife) answered(ctx context.Context) bool {
	if sharedAddresses(l.cfg)[0].isHere() {
		return false
	}
	asker := arp.Prober{Interface: l.cfg.LAN.Interface, Source: netip.IPv4Unspecified(), AllProtocols: true}
	holders, err := asker.Holders(ctx, l.cfg.LAN.Address.Addr())
	if err != nil {
		l.trouble.Do(func() { l.log.Warn("asking who has the LAN's address", "err", err) })
	}
	return err != nil || len(holders) > 0
}

// hold keeps the addresses here for as long as the lease, and tells neighbours where they were not.
func (l *pairLife) hold() bool {
	for _, a := range sharedAddresses(l.cfg) {
		here := a.isHere()
		err := a.hold(l.cfg.Pair.Lease)
		if err == nil && !here {
			err = a.announce()
		}
		if err != nil {
			l.trouble.Do(func() { l.log.Error("an address of the pair", "err", err) })
		}
	}
	l.held = time.Now()
	return true
}

// keepsLease renews the lease and the addresses. While the store is away this gateway goes on, unless it has been
// stopped for so long that the kernel took the addresses away: then only if nobody else has them.
func (l *pairLife) keepsLease(ctx context.Context) bool {
	within, cancel := context.WithTimeout(ctx, l.cfg.Pair.Lease/3)
	defer cancel()
	if time.Since(l.held) < l.cfg.Pair.Lease {
		l.hold()
		return l.keep(within, l.cfg.Pair.Lease)
	}
	if !l.keep(within, l.cfg.Pair.Lease) || l.answered(ctx) {
		return false
	}
	return l.hold()
}

// known returns what the store said last of who serves; asked: it has said.
func (l *pairLife) known() (lead cluster.Lead, asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lead, l.asked
}

func (l *pairLife) isSynced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

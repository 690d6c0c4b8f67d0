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

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
)

const (
	// leadEvery is how often the store is asked which gateway serves.
	leadEvery = 100 * time.Millisecond
	// storeAwayFor is how long a standby waits for the store before it may serve with what it has itself.
	storeAwayFor = 10 * time.Second
	// updatesWithin is how long updates of all sessions take after a takeover.
	updatesWithin = 10 * time.Second
)

// pairLife is a standby, and what becomes of it, until everything is closed.
type pairLife struct {
	*pair
	g    *gateway
	site *cluster.Site

	serves  atomic.Bool // it is active: records that are written are the site's
	serving atomic.Bool // all that clients reach is open
	began   time.Time
	copying sync.Mutex // held while a standby changes its table or its file of leases

	// Of run's turns.
	presence presence
	former   string    // the gateway that served before
	held     time.Time // when the addresses were held last, with a lease

	mu     sync.Mutex // guards what follows
	lead   cluster.Lead
	synced bool // all that the store had was copied once
	asked  bool // the store has said who serves
	feed
	leases leaseFeed
}

// open begins to follow the other gateway.
func (l *pairLife) open(context.Context) (o opened, err error) {
	l.began = time.Now()
	l.site = l.g.store.Site(l.cfg.Pair.Site, sessionKind(""))
	if copies := l.g.store.mirror(""); copies != nil {
		copies.Of(l.site)
	}
	l.g.store.Line(sessionKind(""), l.g.table.OnLine)
	l.g.store.Mirror(leaseKind).Of(l.site)
	l.leases.copies = map[netip.Addr]cluster.Record{}
	stop := []func(){l.g.store.Follow(sessionKind(""), follower{l}), l.g.store.Follow(leaseKind, leaseFollower{l})}
	l.set(l)
	return opened{run: l.run, close: func() error {
		for _, f := range stop {
			f()
		}
		l.leave()
		return nil
	}}, nil
}

// leave lets the other gateway take the lease once this one's last changes are in the store.
func (l *pairLife) leave() {
	if l.cfg.Pair.By != config.ByStore || !l.serves.Load() {
		return
	}
	l.dropAddresses()
	if l.site.Term() > 0 {
		l.site.LeaveAtClose()
	}
}

// followIn has a table take its clients up as they are: nothing of a standby's ends. Its records are written to the set
// of the site once this gateway serves.
func (l *pairLife) followIn(how *session.Options) {
	how.Resume, how.Ends, how.SaveEvery = true, nil, l.cfg.Pair.Counts
	if written := how.Written; written != nil {
		how.Written = func(r session.Record) {
			if l.serves.Load() {
				written(r)
			}
		}
	}
}

// run is the standby until it is to serve, and then the active gateway.
func (l *pairLife) run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(nil)
	watching.Go(func() { l.follow(ctx) })
	if !l.awaitTurn(ctx) {
		return context.Cause(ctx)
	}
	watching.Go(func() { end(l.keepTurn(ctx)) })
	began := time.Now()
	parts, err := l.takeOver()
	if err == nil {
		err = runParts(ctx, parts, func() {
			l.serving.Store(true)
			l.log.Info("this gateway serves now", "site", l.cfg.Pair.Site, "after", time.Since(began))
		})
	}
	if err != nil && !sharedAddresses(l.cfg)[0].isHere() { // it was taken away meanwhile
		end(errStandby)
	}
	if cause := context.Cause(ctx); errors.Is(cause, errStandby) {
		if err != nil {
			l.log.Error("closing what clients reached", "err", err)
		}
		return cause
	}
	return err
}

// takeOver has the table go on with the clients, and returns the parts that only an active gateway has.
func (l *pairLife) takeOver() ([]part, error) {
	g := l.g
	l.copying.Lock() // nothing is copied any more that is older than what clients do from now on
	l.serves.Store(true)
	l.copying.Unlock()
	if copies := g.store.mirror(""); copies != nil {
		copies.Read(recordsOf(g.table))
	}
	timers := part{"timers of sessions", func(context.Context) (opened, error) { return opened{run: g.table.Run}, nil }}
	page := part{"admin page", func(ctx context.Context) (opened, error) {
		only := func() []*config.Config { return []*config.Config{l.cfg} }
		return g.admin.part(l.cfg, g.log, g.answers(), adminClients{only, g.hasClient}).open(ctx)
	}}
	g.table.TakeOver(l.cfg.Pair.Counts, updatesWithin)
	first := []part{timers, step("address", l.awaitAddress), step("vouchers of the sessions", l.takeUpVouchers),
		{"sessions of the other gateway", l.openRenewal}, step("leases of the other gateway", l.importLeases)}
	return slices.Concat(first, g.terms(), g.services(), []part{page}), nil
}

// awaitAddress waits until the LAN's interface has the address, which keepalived adds at about the same time.
func (l *pairLife) awaitAddress() error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if sharedAddresses(l.cfg)[0].isHere() {
			return nil
		}
	}
	return fmt.Errorf("%s has not got %s, although this gateway is to serve: does keepalived add it?", l.cfg.LAN.Interface,
		l.cfg.LAN.Address)
}

// note keeps what the store said of who serves.
func (l *pairLife) note(lead cluster.Lead) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lead, l.asked = lead, true
}

// showIn adds what is open to a state.
func (l *pairLife) showIn(to *control.Pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to.Active, to.Term = l.lead.Gateway, l.lead.Term
	switch {
	case l.serving.Load():
		to.Role = control.Active
	case l.serves.Load():
		to.Role = control.TakingOver
	case sharedAddresses(l.cfg)[0].isHere() && l.cfg.Pair.By == config.ByKeepalived:
		to.Why = fmt.Sprintf("%s has %s, although this gateway is the standby", l.cfg.LAN.Interface, l.cfg.LAN.Address.Addr())
	case !l.synced && (l.g.store.State().Up || time.Since(l.began) < storeAwayFor):
		to.Why = "it has not copied all sessions of the store yet"
	}
	if word, reason := l.g.dp.Forwarding(); to.Why == "" && (word == "closed" || word == "detached") {
		to.Why = "the data path is " + word + ": " + reason
	}
}

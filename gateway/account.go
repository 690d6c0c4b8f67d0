package gateway

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Bounds of the accounting events that are in flight. An event that is not confirmed within overdueInFlight is overdue:
// it is still waited for, but another event may be sent in its place.
const (
	accountedAtOnce = 64 // new events, and as many that are sent again; overdue ones do not count
	overdueInFlight = time.Second
	overdueMost     = 1024 // overdue events
)

// accounts reports whether accounting is sent to RADIUS servers.
func (g *gateway) accounts() bool { return g.radius != nil && g.cfg.RADIUS.Accounting }

// account sends the table's events to the RADIUS servers, each until a server confirms it. A session's events
// are sent in order; those of different sessions do not wait for each other.
func (g *gateway) account(ctx context.Context) error {
	if err := g.announce(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a := &accounting{g: g, overdue: make(chan struct{}, overdueMost)}
	var lanes sync.WaitGroup
	var errs [2]error
	for i, again := range []bool{false, true} {
		lanes.Go(func() {
			defer stop()
			errs[i] = a.lane(ctx, again)
		})
	}
	lanes.Wait()
	return errors.Join(errs[:]...)
}

// accounting sends the events of sessions to RADIUS servers, and bounds how many are in flight.
type accounting struct {
	g       *gateway
	overdue chan struct{}        // holds an element for each event that gave its place to another
	failed  budget.OncePerMinute // allows the log one message a minute
	logged  atomic.Bool          // the log says that events are not confirmed
}

// lane sends events until ctx ends: with again those that were sent before, otherwise those that were not.
func (a *accounting) lane(ctx context.Context, again bool) error {
	places := make(chan struct{}, accountedAtOnce)
	var sending sync.WaitGroup
	defer sending.Wait()
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		e, err := a.g.table.Take(ctx, again)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		sending.Go(func() { a.send(ctx, e, again, func() { <-places }) })
	}
}

// send sends an event, again where it was tried before, and calls leave once, when another may be sent in its place.
func (a *accounting) send(ctx context.Context, e session.Event, again bool, leave func()) {
	sent := make(chan error, 1)
	go func() { sent <- a.g.accountOne(ctx, e) }()
	var err error
	select {
	case err = <-sent:
		defer leave()
	case <-time.After(overdueInFlight):
		select {
		case a.overdue <- struct{}{}:
			leave()
			defer func() { <-a.overdue }()
		default:
			defer leave()
		}
		err = <-sent
	}
	if err == nil && again && a.logged.CompareAndSwap(true, false) {
		a.g.log.Info("accounting: events that were not confirmed are confirmed again", "waiting", a.g.table.Pending())
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	if a.g.table.Later(e) {
		a.g.log.Error("accounting: no server confirms an event, and servers confirm others: set aside, it is tried every "+
			"ten minutes",
			"user", e.User, "session", e.ID, "kind", e.Kind, "err", err)
		return
	}
	a.failed.Do(func() {
		a.logged.Store(true)
		a.g.log.Warn("accounting; it will be sent again", "err", err)
	})
}

func (g *gateway) accountOne(ctx context.Context, e session.Event) error {
	if g.pair != nil {
		if leftOut, err := g.pair.leavesOut(e); err != nil || leftOut {
			if err == nil {
				err = g.table.Done(e)
			}
			return err
		}
	}
	if g.accounts() {
		if err := g.radius.Account(ctx, e); err != nil {
			return err
		}
	}
	if g.vouchers != nil {
		if err := g.vouchers.EndAccounted(e); err != nil {
			return err
		}
	}
	if g.daily != nil {
		if err := g.daily.EndAccounted(e); err != nil {
			return err
		}
	}
	return g.table.Done(e)
}

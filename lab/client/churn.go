package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Churn describes how guests come and go while clients send. A guest is a further client that leases, logs in, stays
// for a while, logs out and releases its lease.
type Churn struct {
	PerSecond float64       `json:"per_second"` // guests that come each second, evenly spaced
	After     time.Duration `json:"after"`      // from the beginning until the first comes, as in Pace
	Stay      time.Duration `json:"stay"`       // from a guest's login until it logs out
	Admission Admission     `json:"admission"`
}

// Visits counts the visits of guests so far.
type Visits struct {
	Came int `json:"came"` // visits that began
	In   int `json:"in"`   // visits whose guest has leased and logged in
	Gone int `json:"gone"` // of those, visits that ended well: logged out, not admitted any more, lease released
	// Missed counts visits that were due while every guest was still on an earlier visit.
	Missed   int       `json:"missed"`
	LeaseMs  []float64 `json:"lease_ms"` // how long leasing took, for each visit in In
	LoginMs  []float64 `json:"login_ms"` // how long logging in took, for each visit in In
	Failures []string  `json:"failures"` // one text for each visit that failed
}

// churnRun is the time from Visit to Leave, in which guests come and go.
type churnRun struct {
	stop context.CancelFunc // ends the arrivals
	done chan struct{}      // closed once all guests have left

	mu     sync.Mutex // guards visits
	visits Visits
}

// Visit has the pool's guests come and go in turn until Leave is called, also after ctx has ended.
func (p *Pool) Visit(ctx context.Context, churn Churn) error {
	if len(p.guests) == 0 || churn.PerSecond <= 0 {
		return fmt.Errorf("%d guests at %g a second: no guest would come", len(p.guests), churn.PerSecond)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.churn != nil {
		return errors.New("guests come and go already")
	}
	release, err := p.host.hold()
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	arrivals, stop := context.WithCancel(ctx)
	v := &churnRun{stop: stop, done: make(chan struct{})}
	p.churn = v
	go func() {
		defer close(v.done)
		defer release()
		v.run(ctx, arrivals, p.guests, churn)
	}()
	return nil
}

// Leave ends the arrivals, waits until all guests have left, and returns the counts.
// Without guests it does nothing.
func (p *Pool) Leave(context.Context) Visits {
	p.mu.Lock()
	v := p.churn
	p.churn = nil
	p.mu.Unlock()
	if v == nil {
		return Visits{}
	}
	v.stop()
	<-v.done
	return v.visits
}

// run lets guests come until arrivals ends, and waits until all have left.
func (v *churnRun) run(ctx, arrivals context.Context, guests []*Client, churn Churn) {
	var wg sync.WaitGroup
	defer wg.Wait()
	idle := make(chan *Client, len(guests))
	for _, c := range guests {
		idle <- c
	}
	start := time.Now()
	for n := 0; ; n++ {
		sleepUntil(arrivals, start.Add(churn.After+turnAfter(n, churn.PerSecond)))
		if arrivals.Err() != nil {
			return
		}
		select {
		case c := <-idle:
			v.note(func(all *Visits) { all.Came++ })
			wg.Go(func() {
				defer func() { idle <- c }()
				if err := v.visit(ctx, c, churn); err != nil {
					v.note(func(all *Visits) { all.Failures = append(all.Failures, err.Error()) })
				}
			})
		default:
			v.note(func(all *Visits) { all.Missed++ })
		}
	}
}

// visit is one visit of a guest, from lease to release. A guest that was not admitted releases its lease too: if it
// kept the lease, its next visit would not lease again.
func (v *churnRun) visit(ctx context.Context, c *Client, churn Churn) error {
	start := time.Now()
	if _, err := c.net.lease(ctx); err != nil {
		return fmt.Errorf("leasing: %w", err)
	}
	err := v.stay(ctx, c, churn, time.Since(start))
	if failed := c.net.release(ctx); failed != nil && err == nil {
		err = fmt.Errorf("leaving: %w", failed)
	}
	if err == nil {
		v.note(func(all *Visits) { all.Gone++ })
	}
	return err
}

// stay is the part of a visit from login to logout; lease is how long leasing took.
func (v *churnRun) stay(ctx context.Context, c *Client, churn Churn, lease time.Duration) error {
	leased := time.Now()
	if _, err := Login(ctx, c, churn.Admission, c.Num, 0); err != nil {
		return fmt.Errorf("logging in: %w", err)
	}
	in := time.Now()
	v.note(func(all *Visits) {
		all.In++
		all.LeaseMs = append(all.LeaseMs, milliseconds(lease))
		all.LoginMs = append(all.LoginMs, milliseconds(in.Sub(leased)))
	})
	sleepUntil(ctx, in.Add(churn.Stay))
	if err := Logout(ctx, c, churn.Admission, c.Num); err != nil {
		return fmt.Errorf("logging out: %w", err)
	}
	if churn.Admission.Kind == AdmitNone {
		return nil
	}
	still, err := Status(ctx, c, churn.Admission, c.Num)
	if err == nil && still {
		err = errors.New("it logged out, and the portal counts it as admitted")
	}
	return err
}

// note calls change with the counts, locked.
func (v *churnRun) note(change func(*Visits)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.visits)
}

package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Churn says how guests come and go while clients send.
type Churn struct {
	PerSecond float64       `json:"per_second"` // that come, evenly spaced
	After     time.Duration `json:"after"`      // when the first comes, as in Pace
	Stay      time.Duration `json:"stay"`       // from its log-in until a guest logs out
	Admission Admission     `json:"admission"`
}

// Visits counts the visits of guests so far.
type Visits struct {
	Came int `json:"came"`
	In   int `json:"in"`   // leased and logged in
	Gone int `json:"gone"` // of those: logged out, no longer admitted by the portal, lease released
	// Missed are visits that were due while every guest was still there.
	Missed   int       `json:"missed"`
	LeaseMs  []float64 `json:"lease_ms"` // one value a guest that logged in
	LoginMs  []float64 `json:"login_ms"`
	Failures []string  `json:"failures"` // one text a visit that failed
}

// Visiting has guests come and go until Stop.
type Visiting struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex // guards visits
	visits Visits
}

// Visit has the pool's guests come and go in turn: each leases, logs in, stays, logs out
// and releases its lease.
func (p *Pool) Visit(ctx context.Context, churn Churn) (*Visiting, error) {
	if len(p.guests) == 0 || churn.PerSecond <= 0 {
		return nil, fmt.Errorf("%d guests at %g a second: no guest would come", len(p.guests), churn.PerSecond)
	}
	rest, err := p.host.hold()
	if err != nil {
		return nil, err
	}
	v := &Visiting{done: make(chan struct{})}
	comings, cancel := context.WithCancel(ctx)
	v.cancel = cancel
	go func() {
		defer close(v.done)
		defer rest()
		v.run(ctx, comings, p, churn)
	}()
	return v, nil
}

// run lets guests come until comings ends, and waits until they are gone.
func (v *Visiting) run(ctx, comings context.Context, p *Pool, churn Churn) {
	var wg sync.WaitGroup
	defer wg.Wait()
	idle := make(chan *Client, len(p.guests))
	for _, c := range p.guests {
		idle <- c
	}
	start := time.Now()
	for n := 0; ; n++ {
		sleepUntil(comings, start.Add(churn.After+time.Duration(float64(n)/churn.PerSecond*float64(time.Second))))
		if comings.Err() != nil {
			return
		}
		select {
		case c := <-idle:
			v.note(func(all *Visits) { all.Came++ })
			wg.Go(func() {
				defer func() { idle <- c }()
				if err := v.visit(ctx, p, c, churn); err != nil {
					v.note(func(all *Visits) { all.Failures = append(all.Failures, err.Error()) })
				}
			})
		default:
			v.note(func(all *Visits) { all.Missed++ })
		}
	}
}

var errStillIn = errors.New("it logged out, and the portal counts it as admitted")

// visit is one visit of a guest, from lease to release.
func (v *Visiting) visit(ctx context.Context, p *Pool, c *Client, churn Churn) error {
	start := time.Now()
	if _, err := c.net.lease(ctx); err != nil {
		return fmt.Errorf("leasing: %w", err)
	}
	leased := time.Now()
	if _, err := tryLogin(ctx, c, churn.Admission, c.Num, attemptTimeout); err != nil {
		return fmt.Errorf("logging in: %w", err)
	}
	in := time.Now()
	v.note(func(all *Visits) {
		all.In++
		all.LeaseMs = append(all.LeaseMs, float64(leased.Sub(start))/float64(time.Millisecond))
		all.LoginMs = append(all.LoginMs, float64(in.Sub(leased))/float64(time.Millisecond))
	})
	sleepUntil(ctx, in.Add(churn.Stay))
	if err := Logout(ctx, c, churn.Admission, c.Num); err != nil {
		return fmt.Errorf("logging out: %w", err)
	}
	if churn.Admission.Kind != AdmitNone {
		still, err := Status(ctx, c, churn.Admission, c.Num)
		if err != nil {
			return err
		}
		if still {
			return errStillIn
		}
	}
	if err := c.net.release(ctx); err != nil {
		return fmt.Errorf("leaving: %w", err)
	}
	v.note(func(all *Visits) { all.Gone++ })
	return nil
}

func (v *Visiting) note(what func(*Visits)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	what(&v.visits)
}

// Stop ends the arrivals, waits until all guests have left, and returns the counts.
func (v *Visiting) Stop() Visits {
	v.cancel()
	<-v.done
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.visits
}

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/client/persona"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Pace tells when each client leases or logs in: its turn. With the zero value all clients have their turn at once.
type Pace struct {
	PerSecond float64 `json:"per_second,omitempty"` // turns a second, evenly spaced; zero: all at once
	// After is the time from the beginning to the first turn. Client hosts that share a rate have different ones, so that
	// their clients do not act at the same moments.
	After time.Duration `json:"after,omitempty"`
	// Parallel is the largest number of clients that act at once. Then the next turn comes when a client has finished.
	// Zero: any number, as in a login storm.
	Parallel int `json:"parallel,omitempty"`
	// Patience is the time from the beginning after which clients that have not finished give up. Zero: each client has
	// its own limit.
	Patience time.Duration `json:"patience,omitempty"`
}

// Outcome is the result of one client's turn.
type Outcome struct {
	Num    int     `json:"num"`     // the client's number
	TurnMs float64 `json:"turn_ms"` // from the beginning to the client's turn, milliseconds
	// Ms is the time from the client's turn until it succeeded or gave up, milliseconds. It includes LateMs, so it shows
	// when the client host was too busy.
	Ms     float64 `json:"ms"`
	LateMs float64 `json:"late_ms"` // from its turn until it began, milliseconds
	// Tries counts the client's attempts to log in or to lease.
	Tries   int    `json:"tries"`
	Refusal string `json:"refusal,omitempty"` // error of the first attempt that failed
	Error   string `json:"error,omitempty"`   // why the client gave up; empty when it succeeded
}

// Succeeded reports whether the client succeeded.
func (o Outcome) Succeeded() bool { return o.Error == "" }

// FirstFailure returns the error of the first client that gave up, and how many more gave up; nil when all succeeded.
func FirstFailure(outcomes []Outcome) error {
	failed := slices.DeleteFunc(slices.Clone(outcomes), Outcome.Succeeded)
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("client %d: %s", failed[0].Num, failed[0].Error)
	}
	return fmt.Errorf(
		"client %d: %s (and %s)", failed[0].Num, failed[0].Error, words.Counted(len(failed)-1, "more client"))
}

// Tries counts a client's attempts to lease or to log in.
type Tries = persona.Tries

// Lease leases an address for every client and returns the outcomes in the order of the clients. Clients with a static
// address succeed at once.
func (p *Pool) Lease(ctx context.Context, pace Pace) []Outcome {
	done, err := p.host.hold()
	defer done()
	return p.inTurn(ctx, pace, func(ctx context.Context, c *Client) (Tries, error) {
		if err != nil {
			return Tries{}, err
		}
		return c.net.lease(ctx)
	})
}

// Appear leases an address for every client, and calls then once it has one.
func (p *Pool) Appear(ctx context.Context, pace Pace, then func(context.Context, *Client) error) []Outcome {
	done, err := p.host.hold()
	defer done()
	return p.inTurn(ctx, pace, func(ctx context.Context, c *Client) (Tries, error) {
		if err != nil {
			return Tries{}, err
		}
		tries, err := c.net.lease(ctx)
		if err == nil {
			err = then(ctx, c)
		}
		return tries, err
	})
}

// Status asks the portal for every client whether it is admitted. A client that is not has an Error in its outcome.
func (p *Pool) Status(ctx context.Context, adm Admission, pace Pace) []Outcome {
	return p.inTurn(ctx, pace, func(ctx context.Context, c *Client) (Tries, error) {
		in, err := Status(ctx, c, adm, c.Num)
		if err == nil && !in {
			err = errors.New("the portal does not count it as admitted")
		}
		return Tries{Count: 1}, err
	})
}

// Login logs every client in and returns the outcomes in the order of the clients.
func (p *Pool) Login(ctx context.Context, adm Admission, pace Pace) []Outcome {
	return p.inTurn(ctx, pace, func(ctx context.Context, c *Client) (Tries, error) {
		if !c.LocalIP().IsValid() {
			return Tries{}, errors.New("it has no address to log in from")
		}
		return Login(ctx, c, adm, c.Num, attemptLimit(len(p.Clients)))
	})
}

// Arrive has every client lease an address and log in at its turn, as somebody who comes in does. A client that is not
// admitted within limit from its turn gives up.
func (p *Pool) Arrive(ctx context.Context, adm Admission, pace Pace, limit time.Duration) []Outcome {
	done, err := p.host.hold()
	defer done()
	return p.inTurn(ctx, pace, func(ctx context.Context, c *Client) (Tries, error) {
		if err != nil {
			return Tries{}, err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not admitted within %s", limit))
		defer cancel()
		if tries, err := c.net.lease(ctx); err != nil {
			return tries, err
		}
		return Login(ctx, c, adm, c.Num, limit)
	})
}

// inTurn calls do for every client at its turn and waits until all have finished. When ctx ends, clients whose turn has
// not come give up too.
func (p *Pool) inTurn(ctx context.Context, pace Pace, do func(context.Context, *Client) (Tries, error)) []Outcome {
	outcomes := make([]Outcome, len(p.Clients))
	if pace.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, pace.Patience, fmt.Errorf("not through after %s", pace.Patience))
		defer cancel()
	}
	slots := make(chan struct{}, cmp.Or(pace.Parallel, len(p.Clients)))
	start := time.Now()
	var wg sync.WaitGroup
	for i, c := range p.Clients {
		due := start
		if pace.PerSecond > 0 {
			due = start.Add(pace.After + turnAfter(i, pace.PerSecond))
			sleepUntil(ctx, due)
		}
		slots <- struct{}{}
		if pace.Parallel > 0 {
			due = time.Now()
		}
		wg.Go(func() {
			defer func() { <-slots }()
			outcomes[i] = c.takeTurn(ctx, due, do)
			outcomes[i].TurnMs = milliseconds(due.Sub(start))
		})
	}
	wg.Wait()
	return outcomes
}

// turnAfter returns the time from the beginning to the turn of the client that n others precede.
func turnAfter(n int, perSecond float64) time.Duration {
	return time.Duration(float64(n) / perSecond * float64(time.Second))
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// takeTurn calls do for one client, whose turn was due, and returns the outcome.
func (c *Client) takeTurn(
	ctx context.Context, due time.Time, do func(context.Context, *Client) (Tries, error)) Outcome {
	late := time.Since(due)
	tries, err := Tries{}, context.Cause(ctx)
	if err == nil {
		tries, err = do(ctx, c)
	}
	o := Outcome{Num: c.Num, LateMs: milliseconds(late), Ms: milliseconds(time.Since(due)), Tries: tries.Count}
	if tries.Refusal != nil {
		o.Refusal = tries.Refusal.Error()
	}
	if err != nil {
		o.Error = err.Error()
	}
	return o
}

// sleepUntil returns at t, or when ctx ends.
func sleepUntil(ctx context.Context, t time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(t)):
	}
}

// The limit of logins that are decided at the same time.

package session

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// Gate bounds how many logins are decided at a time and how many wait, so that a flood of logins has a bounded cost.
// Clients that sent few wrong passwords go first. When all places are taken, they displace a client that sent more, so
// that a flood of guesses delays the guessers.
type Gate struct {
	working, waiting int // at most

	mu    sync.Mutex // guards what follows
	busy  int
	queue []*waiter // in the order in which they go
}

// waiter is a login that waits.
type waiter struct {
	failures int
	decided  chan bool // with space for one: true, its turn has come; false, it was displaced
}

// NewGate makes a gate; working is at least 1, waiting may be 0.
func NewGate(working, waiting int) *Gate { return &Gate{working: working, waiting: waiting} }

// Enter returns nil when the caller may work; the caller must then call Leave. It returns ErrBusy when too many wait
// that go first, and ctx's error when ctx ends.
func (g *Gate) Enter(ctx context.Context, failures int) error {
	w, err := g.takePlace(failures)
	if w == nil {
		return err
	}
	select {
	case mine := <-w.decided:
		if !mine {
			return ErrBusy
		}
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, w); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	} else if <-w.decided {
		g.handOver() // the turn that came at the same moment
	}
	return ctx.Err()
}

// takePlace takes a free place to work, or one to wait: then there is a waiter.
func (g *Gate) takePlace(failures int) (*waiter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy < g.working {
		g.busy++
		return nil, nil
	}
	if n := len(g.queue); n >= g.waiting {
		if n == 0 || g.queue[n-1].failures <= failures {
			return nil, ErrBusy
		}
		g.queue[n-1].decided <- false
		g.queue = g.queue[:n-1]
	}
	w := &waiter{failures: failures, decided: make(chan bool, 1)}
	place, _ := slices.BinarySearchFunc(g.queue, failures, func(other *waiter, f int) int {
		return cmp.Or(cmp.Compare(other.failures, f), -1) // behind its equals
	})
	g.queue = slices.Insert(g.queue, place, w)
	return w, nil
}

// Leave ends the work that Enter admitted.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.handOver()
}

// handOver hands a place to work to the first that waits. mu is held.
func (g *Gate) handOver() {
	if len(g.queue) == 0 {
		g.busy--
		return
	}
	g.queue[0].decided <- true
	g.queue = slices.Delete(g.queue, 0, 1)
}

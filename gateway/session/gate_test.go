// Tests of Gate, which lets a number of logins work at a time and a number wait. NewGate(working, waiting) makes one;
// Enter(ctx, failures) waits for a place, where logins with fewer failures (wrong passwords) go first; Leave gives the
// place back.

package session

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// waitingAt returns the number of callers that wait at a gate.
func waitingAt(g *Gate) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}

// TestGateTurnsAwayWhenFull: with one place to work and one to wait, a third caller gets ErrBusy.
func TestGateTurnsAwayWhenFull(t *testing.T) {
	g := NewGate(1, 1)
	if err := g.Enter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	waited := make(chan error)
	go func() { waited <- g.Enter(ctx, 0) }()
	for waitingAt(g) == 0 {
		runtime.Gosched()
	}
	if err := g.Enter(t.Context(), 0); !errors.Is(err, ErrBusy) {
		t.Errorf("third caller: %v, want ErrBusy", err)
	}
	stop()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting caller whose context ended: %v", err)
	}
	g.Leave()
	// All have left: as many as at first may enter.
	if err := g.Enter(t.Context(), 0); err != nil {
		t.Error(err)
	}
	g.Leave()
	if g.busy != 0 || len(g.queue) != 0 {
		t.Errorf("%d work and %d wait at an empty gate", g.busy, len(g.queue))
	}
}

// TestGateLetsThoseWithoutFailuresGoFirst: the order is that of failures, and of arrival
// among equals; a newcomer with fewer failures displaces the last.
func TestGateLetsThoseWithoutFailuresGoFirst(t *testing.T) {
	g := NewGate(1, 4)
	if err := g.Enter(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		name string
		err  error
	}
	out := make(chan outcome)
	start := func(name string, failures int) {
		go func() { out <- outcome{name, g.Enter(t.Context(), failures)} }()
	}
	for i, w := range []struct {
		name     string
		failures int
	}{{"guesser", 3}, {"mistyped", 1}, {"first", 0}, {"worst", 9}} {
		start(w.name, w.failures)
		for waitingAt(g) != i+1 {
			runtime.Gosched()
		}
	}
	if err := g.Enter(t.Context(), 9); !errors.Is(err, ErrBusy) {
		t.Errorf("a newcomer with as many failures as the last: %v, want ErrBusy", err)
	}
	start("second", 0)
	if o := <-out; o.name != "worst" || !errors.Is(o.err, ErrBusy) {
		t.Errorf("%q got %v, want that the worst is displaced", o.name, o.err)
	}
	for waitingAt(g) != 4 {
		runtime.Gosched()
	}
	for _, want := range []string{"first", "second", "mistyped", "guesser"} {
		g.Leave()
		if o := <-out; o.name != want || o.err != nil {
			t.Errorf("next came %q, %v; want %q", o.name, o.err, want)
		}
	}
	g.Leave()
}

func TestGateBoundsThoseWhoWork(t *testing.T) {
	const working, callers = 3, 200
	g := NewGate(working, callers)
	var now, most atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if i%5 == 0 {
				go cancel() // some turns end as they come
			}
			defer cancel()
			if err := g.Enter(ctx, i%3); err != nil {
				if i%5 != 0 {
					t.Error(err)
				}
				return
			}
			defer g.Leave()
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			now.Add(-1)
		})
	}
	all.Wait()
	if m := most.Load(); m < 1 || m > working || g.busy != 0 || len(g.queue) != 0 {
		t.Errorf("%d worked at once, want 1 to %d; %d work and %d wait in the end", m, working, g.busy, len(g.queue))
	}
}

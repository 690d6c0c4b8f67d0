package session

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestRejectionIsErrRejected(t *testing.T) {
	err := fmt.Errorf("logging in: %w", Reject("account expired"))
	var asked interface{ RejectMessage() string }
	if !errors.Is(err, ErrRejected) || !errors.As(err, &asked) || asked.RejectMessage() != "account expired" {
		t.Errorf("%v: does not carry its message as an ErrRejected", err)
	}
	if got, want := err.Error(), "logging in: login rejected: account expired"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if got, want := Reject("").Error(), "login rejected"; got != want {
		t.Errorf("error without message %q, want %q", got, want)
	}
}

func TestGateTurnsAwayWhenFull(t *testing.T) {
	g := NewGate(1, 1)
	if err := g.Enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error)
	go func() { waited <- g.Enter(ctx) }()
	for len(g.inside) < 2 { // until the second one is inside
		runtime.Gosched()
	}
	if err := g.Enter(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("third caller: %v, want ErrBusy", err)
	}
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting caller whose context ended: %v", err)
	}
	g.Leave()
	// All have left: as many as at first may enter.
	if err := g.Enter(t.Context()); err != nil {
		t.Error(err)
	}
	g.Leave()
	if len(g.inside) != 0 || len(g.working) != 0 {
		t.Errorf("%d inside and %d working of an empty gate", len(g.inside), len(g.working))
	}
}

func TestGateBoundsThoseWhoWork(t *testing.T) {
	const working, callers = 3, 200
	g := NewGate(working, callers)
	var now, most atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if err := g.Enter(t.Context()); err != nil {
				t.Error(err)
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
	if m := most.Load(); m < 1 || m > working {
		t.Errorf("%d worked at once, want 1 to %d", m, working)
	}
}

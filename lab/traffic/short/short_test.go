package short

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// dialer returns a function that connects to an address.
func dialer(to string) DialFunc {
	return func(ctx context.Context, _ int) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", to) }
}

// TestConnectionsCarryTheirAnswer: each short connection gets its whole answer, and its times are recorded.
func TestConnectionsCarryTheirAnswer(t *testing.T) {
	s, err := Serve(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const bytes = 100_000 // more than one write
	var most atomic.Int64
	to := dialer(s.listener.Addr().String())
	g, err := Start(t.Context(), Config{PerSecond: 500, Bytes: bytes}, func(ctx context.Context, n int) (net.Conn, error) {
		most.Store(int64(n))
		return to(ctx, n)
	})
	if err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "fifty connections", func() bool { return g.Stats().Done >= 50 })
	g.Close()
	g.Close()
	got := g.Stats()
	if got.Failed > 0 || len(got.ConnectUs) != got.Done || len(got.WholeUs) != got.Done || most.Load() < 49 {
		t.Errorf("%d done, %d failed (%s), %d times, client %d", got.Done, got.Failed, got.FirstError, len(got.WholeUs),
			most.Load())
	}
	for i, whole := range got.WholeUs {
		if got.ConnectUs[i] <= 0 || got.FirstByteUs[i] <= 0 || whole < got.ConnectUs[i]+got.FirstByteUs[i] {
			t.Fatalf("connection %d took %g µs, of these %g and %g", i, whole, got.ConnectUs[i], got.FirstByteUs[i])
		}
	}
	// No more than 500 connections a second were due.
	if float64(got.Done+got.Missed) > 500*got.Seconds+2 {
		t.Errorf("%d in %g s", got.Done, got.Seconds)
	}
}

// TestFailuresAreCounted: connections that the server refuses count as failed.
func TestFailuresAreCounted(t *testing.T) {
	s, err := Serve(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	at := s.listener.Addr().String()
	s.Close()
	g, err := Start(t.Context(), Config{PerSecond: 200, Bytes: 1}, dialer(at))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	labtest.Await(t, "refused connections", func() bool { return g.Stats().Failed >= 3 })
	if got := g.Stats(); got.Done > 0 || !strings.HasPrefix(got.FirstError, "connecting: ") {
		t.Errorf("%+v", got)
	}
}

// TestImpossibleConfigs: a generator without a rate, or with answers of no bytes or too many, does not start.
func TestImpossibleConfigs(t *testing.T) {
	for _, cfg := range []Config{
		{PerSecond: 0, Bytes: 1}, {PerSecond: 1, Bytes: 0}, {PerSecond: 1, Bytes: MostBytes + 1}} {
		if _, err := Start(t.Context(), cfg, nil); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// TestTheFirstIsDueAfter: the first connection is made no earlier than Config.After.
func TestTheFirstIsDueAfter(t *testing.T) {
	s, err := Serve(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const after = 100 * time.Millisecond
	first := make(chan time.Time, 1)
	to := dialer(s.listener.Addr().String())
	begun := time.Now()
	g, err := Start(
		t.Context(), Config{PerSecond: 1, After: after, Bytes: 1}, func(ctx context.Context, n int) (net.Conn, error) {
			if n == 0 {
				first <- time.Now()
			}
			return to(ctx, n)
		})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if st := g.Stats(); st.Seconds < 0 {
		t.Errorf("%g s since the first was due", st.Seconds)
	}
	if early := after - (<-first).Sub(begun); early > 0 {
		t.Errorf("the first came %s early", early)
	}
}

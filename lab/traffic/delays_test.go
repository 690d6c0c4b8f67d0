// Tests of delays of streams. newPair makes two namespaces with a link; a Generator at one end sends a run to a Server
// at the other; bothCounts returns the counts of both (netns_test.go).

package traffic

import (
	"testing"
	"time"
)

// TestDelays: quantiles of delays, and the worst of two generators' delays.
func TestDelays(t *testing.T) {
	all := make([]time.Duration, 101)
	for i := range all {
		all[100-i] = time.Duration(i) * time.Millisecond
	}
	if got, want := delays(all), (Delays{50_000, 99_000, 100_000}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := delays(nil); got != (Delays{}) {
		t.Errorf("of no streams %+v", got)
	}
	if got, want := (Delays{1, 5, 6}).Worst(Delays{2, 3, 9}), (Delays{2, 5, 9}); got != want {
		t.Errorf("worst %+v, want %+v", got, want)
	}
}

// TestStreamsTellHowTheyBegan: a generator reports how long its streams took to connect, and to get the server's first
// byte.
func TestStreamsTellHowTheyBegan(t *testing.T) {
	p := newPair(t)
	srv, addr := p.serve(t)
	near, _ := bothCounts(p.start(t, Config{Streams: 20, RateBps: 1e6}, addr), srv)
	for what, d := range map[string]Delays{"connecting": near.Connect, "first byte": near.FirstByte} {
		if d.P50 <= 0 || d.P99 < d.P50 || d.Max < d.P99 {
			t.Errorf("%s: %+v", what, d)
		}
	}
}

package traffic

import (
	"testing"
	"time"
)

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

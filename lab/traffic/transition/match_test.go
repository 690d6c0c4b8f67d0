package transition

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A probe passes the stops of a way: "in" and "out" see the probe with its number, "enter" and "leave" see the outer
// packet of the tunnel, by whose length and time Match finds the probe.

// tunnelled is a way through a tunnel. Outer packets with a probe have 300 bytes.
var tunnelled = Way{
	Run:   Run{Number: 3, Bytes: 200},
	Stops: []Stop{{"in", false}, {"enter", true}, {"leave", true}, {"out", false}},
	Outer: 300,
}

// probeJourney returns what is recorded of probe n, which is written at a moment, ns, and passes a stop every 10 ns.
func probeJourney(n uint32, at int64) (Sent, Received, []Event) {
	return Sent{WriteNs: at, LeftNs: at + 5}, Received{Number: n, ReadNs: at + 50}, []Event{
		{AtNs: at + 10, Tap: "in", Number: n, Run: 3, Bytes: 266}, {AtNs: at + 20, Tap: "enter", Bytes: 300},
		{AtNs: at + 30, Tap: "leave", Bytes: 300}, {AtNs: at + 40, Tap: "out", Number: n, Run: 3, Bytes: 266},
	}
}

// TestMatch changes the records of two probes, and checks what Match counts and when the first probe passed its stops.
func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		spoil func(s []Sent, r *[]Received, e *[]Event)
		want  Counts
		stops []int64 // of the first probe, ns after it was written, 0 where it was not found; nil: not checked
	}{
		{"as it should be", func([]Sent, *[]Received, *[]Event) {}, Counts{Sent: 2}, []int64{10, 20, 30, 40}},
		{"another frame of that length at the same time", func(_ []Sent, _ *[]Received, e *[]Event) {
			*e = append(*e, Event{AtNs: 1025, Tap: "enter", Bytes: 300})
		}, Counts{Sent: 2, Unmatched: 1}, []int64{10, 0, 30, 40}},
		{"another at another time", func(_ []Sent, _ *[]Received, e *[]Event) {
			*e = append(*e, Event{AtNs: 1500, Tap: "enter", Bytes: 300})
		}, Counts{Sent: 2}, []int64{10, 20, 30, 40}},
		{"put together with others", func(_ []Sent, _ *[]Received, e *[]Event) {
			*e = slices.DeleteFunc(*e, func(e Event) bool { return e.AtNs == 1020 })
		}, Counts{Sent: 2, Unmatched: 1}, []int64{10, 0, 30, 40}},
		{"unwrapped at the same interface", func(_ []Sent, _ *[]Received, e *[]Event) {
			*e = append(*e, Event{AtNs: 1035, Tap: "leave", Number: 1, Run: 3, Bytes: 266})
		}, Counts{Sent: 2}, []int64{10, 20, 30, 40}},
		{"of another run", func(_ []Sent, _ *[]Received, e *[]Event) {
			*e = append(*e, Event{AtNs: 1035, Tap: "out", Number: 1, Run: 2, Bytes: 266})
		}, Counts{Sent: 2}, []int64{10, 20, 30, 40}},
		{"sent again, as its sender says", func(s []Sent, _ *[]Received, _ *[]Event) { s[0].Resent = 1 },
			Counts{Sent: 2, Resent: 1}, nil},
		{"seen twice", func(_ []Sent, _ *[]Received, e *[]Event) {
			*e = append(*e, Event{AtNs: 1011, Tap: "in", Number: 1, Run: 3, Bytes: 266})
		}, Counts{Sent: 2, Resent: 1}, nil},
		{"never read", func(_ []Sent, r *[]Received, _ *[]Event) { *r = (*r)[1:] }, Counts{Sent: 2, Lost: 1}, nil},
		{"without a stamp", func(s []Sent, _ *[]Received, _ *[]Event) { s[0].LeftNs = 0 }, Counts{Sent: 2, Unstamped: 1},
			[]int64{10, 20, 30, 40}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s []Sent
			var r []Received
			var e []Event
			for i := range 2 {
				sent, received, events := probeJourney(uint32(i+1), int64(1000*(i+1)))
				s, r, e = append(s, sent), append(r, received), append(e, events...)
			}
			tt.spoil(s, &r, &e)
			m := Match(tunnelled, s, r, e)
			if m.Counts != tt.want {
				t.Errorf("counts: %+v, want %+v", m.Counts, tt.want)
			}
			if tt.stops == nil {
				return
			}
			got := slices.Clone(m.List[0].StopNs)
			for i := range got {
				got[i] = max(0, got[i]-m.List[0].WriteNs)
			}
			if !slices.Equal(got, tt.stops) {
				t.Errorf("the first probe's stops: %v, want %v", got, tt.stops)
			}
		})
	}
}

// TestOverlap: probes that are in the tunnel at the same time are told apart by their order, as long as none is
// missing.
func TestOverlap(t *testing.T) {
	var s []Sent
	var r []Received
	var e []Event
	for n := range int64(4) {
		at := 1000 + 10*n
		s, r = append(s, Sent{WriteNs: at, LeftNs: at + 1}), append(r, Received{uint32(n + 1), at + 400})
		e = append(e, Event{AtNs: at + 2, Tap: "in", Number: uint32(n + 1), Run: 3},
			Event{AtNs: at + 100, Tap: "enter", Bytes: 300},
			Event{AtNs: at + 200, Tap: "leave", Bytes: 300}, Event{AtNs: at + 300, Tap: "out", Number: uint32(n + 1), Run: 3})
	}
	for i, p := range Match(tunnelled, s, r, e).List {
		if want := []int64{2, 100, 200, 300}; p.StopNs[0]-p.WriteNs != want[0] || p.StopNs[1]-p.WriteNs != want[1] ||
			p.StopNs[2]-p.WriteNs != want[2] || p.StopNs[3]-p.WriteNs != want[3] {
			t.Errorf("probe %d: %v after %d, want %v", i+1, p.StopNs, p.WriteNs, want)
		}
	}
	missing := slices.DeleteFunc(slices.Clone(e), func(e Event) bool { return e.AtNs == 1210 })
	m := Match(tunnelled, s, r, missing)
	for i, p := range m.List {
		if p.StopNs[1] == 0 || p.StopNs[2] != 0 {
			t.Errorf("probe %d: %v, want its time at \"enter\", and none at \"leave\", where one is missing", i+1, p.StopNs)
		}
	}
	if m.Counts.Unmatched != 4 {
		t.Errorf("counts: %+v", m.Counts)
	}
}

// TestLengthOfOuterPackets: the length of outer packets is found among other packets. If no length fits or several do,
// that is an error.
func TestLengthOfOuterPackets(t *testing.T) {
	build := func(extra func(at int64) []Event) (s []Sent, e []Event) {
		for i := range 10 {
			at := int64(1000 * (i + 1))
			sent, _, events := probeJourney(uint32(i+1), at)
			s, e = append(s, sent), append(e, append(events, extra(at)...)...)
		}
		return s, e
	}
	w := tunnelled
	w.Outer = 0
	s, e := build(func(at int64) []Event { return []Event{{AtNs: at + 500, Tap: "enter", Bytes: 310}} })
	if n, err := Outer(w, s, e); n != 300 || err != nil {
		t.Errorf("%d, %v, want 300", n, err)
	}
	s, e = build(func(at int64) []Event { // in two parts
		return []Event{{AtNs: at + 21, Tap: "enter", Bytes: 310}, {AtNs: at + 31, Tap: "leave", Bytes: 310}}
	})
	if n, err := Outer(w, s, e); err == nil || !strings.Contains(err.Error(), "10 of 310 bytes") {
		t.Errorf("%d, %v, want an error: two lengths fit", n, err)
	}
	s, _ = build(func(int64) []Event { return nil })
	if n, err := Outer(w, s, nil); err == nil {
		t.Errorf("%d of no frames, want an error", n)
	}
}

// TestCompleteProbes: completeProbes finds the probes of a TCP connection in what arrives, also where one arrives in
// parts, and none in other data.
func TestCompleteProbes(t *testing.T) {
	probe := func(n byte) []byte {
		b := make([]byte, 64)
		copy(b, []byte{0x47, 0x57, 0x54, 0x52, 0, 0, 0, 9, 0, 0, 0, n, 0, 0, 0, 64})
		return b
	}
	var c connection
	for _, step := range []struct {
		data []byte
		want []Received
	}{
		{probe(1), []Received{{Number: 1, ReadNs: 5}}},
		{append(probe(2), probe(3)...), []Received{{2, 5}, {3, 5}}},
		{probe(4)[:40], nil},
		{probe(4)[40:], []Received{{4, 5}}},
		{probe(5), []Received{{Number: 5, ReadNs: 5}}},
		{[]byte("GET / HTTP/1.0\r\n\r\n"), nil},
	} {
		run, got := c.completeProbes(step.data, 5)
		if run != 9 || !reflect.DeepEqual(got, step.want) {
			t.Errorf("%x: run %d, %v, want %v", step.data[:12], run, got, step.want)
		}
	}
}

// TestDistribute: the distribution of four times, ns, has them in µs, and its histogram counts each once.
func TestDistribute(t *testing.T) {
	d := Distribute([]int64{3000, 1000, 2000, 10_000})
	if d.Count != 4 || d.Min != 1 || d.Max != 10 || d.Mean != 4 || d.P50 != 2 || d.P99 != 10 {
		t.Errorf("%+v", d)
	}
	var n int64
	for i, b := range d.Histogram {
		n += b[1]
		if i > 0 && b[0] <= d.Histogram[i-1][0] {
			t.Errorf("buckets are not in order: %v", d.Histogram)
		}
	}
	if n != 4 {
		t.Errorf("the histogram has %d, want 4: %v", n, d.Histogram)
	}
	if d := Distribute(nil); d.Count != 0 || d.Mean != 0 {
		t.Errorf("of nothing: %+v", d)
	}
}

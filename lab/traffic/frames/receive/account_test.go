package receive

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// The tests of this file compare the counts of the receiving eBPF program with those of a simple model in Go. bench is
// a receiver without an interface, whose program the test runs by hand on frames. A frame has a stamp: stream, number
// and sending time.

// model counts the frames of one stream in a simple way.
type model struct {
	came            map[uint64]bool // numbers that have arrived
	next            uint64          // one more than the highest number
	frames, bytes   uint64          // with duplicates
	duplicates      uint64
	reorder         uint64  // frames that arrived after one with a higher number
	jitter, transit float64 // RFC 3550's jitter, and the delay of the last frame, ns
}

// take counts a frame.
func (m *model) take(number uint64, bytes int, transit float64) {
	m.frames++
	m.bytes += uint64(bytes)
	if m.came[number] {
		m.duplicates++
		return
	}
	if len(m.came) > 0 {
		m.jitter += (math.Abs(transit-m.transit) - m.jitter) / 16
	}
	m.came[number] = true
	m.transit = transit
	if number < m.next {
		m.reorder++
	} else {
		m.next = number + 1
	}
}

// check compares the counts of the program for a stream with the model's.
func (m *model) check(t interface{ Errorf(string, ...any) }, which int, s Stream) {
	if s.Frames != m.frames || s.Bytes != m.bytes || s.Duplicates != m.duplicates || s.Reordered != m.reorder ||
		s.Distinct() != uint64(len(m.came)) || s.Missing != m.next-uint64(len(m.came)) {
		t.Errorf("stream %d: %+v, want %+v", which, s, m)
	}
}

// TestAccountsAreThoseOfTheModel: the program counts frames in any order, with duplicates and gaps, as the model does.
func TestAccountsAreThoseOfTheModel(t *testing.T) {
	const streams, numbers = 3, 200
	r := bench(t, Config{Streams: streams, FramesPerStream: numbers})
	rapid.Check(t, func(t *rapid.T) {
		if err := r.Reset(); err != nil {
			t.Fatalf("%v", err)
		}
		models := [streams]model{}
		for i := range models {
			models[i].came = map[uint64]bool{}
		}
		for range rapid.IntRange(0, 60).Draw(t, "frames") {
			stream := rapid.IntRange(0, streams-1).Draw(t, "stream")
			number := rapid.Uint64Range(0, numbers-1).Draw(t, "number")
			bytes := rapid.IntRange(60, 200).Draw(t, "bytes")
			if _, err := r.objs.Receive.Run(
				runOf(frame(bytes, frames.Stamp{Stream: uint16(stream), Number: number}))); err != nil {
				t.Fatalf("%v", err)
			}
			models[stream].take(number, bytes, 0)
		}
		got, err := r.Stats()
		if err != nil {
			t.Fatalf("%v", err)
		}
		var sum uint64
		for i := range models {
			models[i].check(t, i, got.Streams[i])
			sum += models[i].frames
		}
		if got.Frames != sum || got.Stray != 0 || got.Delay.Frames != got.Distinct() {
			t.Errorf("sums %+v, want %d frames", withoutZeros(got), sum)
		}
	})
}

// injectedFaults sends frames over a link, some never, some twice and some after the next, at known places. The counts
// must tell these apart. It does so twice, with a Reset between.
func injectedFaults(t *testing.T, p labtest.Pair) {
	r := open(t, p.Server, Config{})
	s := newSender(t, p.Client, "gwt0")
	for round := range 2 {
		const sent = 5000
		var order []uint64
		var lost, twice, late uint64
		for i := uint64(0); i < sent; i++ {
			switch {
			case i%97 == 5 || i >= sent-3: // also the last
				lost++
			case i%89 == 7:
				order = append(order, i, i)
				twice++
			case i%83 == 11 && i+1 < sent-3 && (i+1)%97 != 5 && (i+1)%89 != 7: // after the next
				order = append(order, i+1, i)
				late++
				i++
			default:
				order = append(order, i)
			}
		}
		for chunk := range slices.Chunk(order, 200) { // the link's ring holds no more
			had := stats(t, r).Frames
			for _, number := range chunk {
				s.send(frame(60, frames.Stamp{Number: number, SentNs: now()}))
			}
			awaitFrames(t, r, had+uint64(len(chunk)))
		}
		got := stats(t, r)
		if got.Frames != uint64(len(order)) || got.Duplicates != twice || got.Reordered != late ||
			got.Lost(sent) != int64(lost) || got.Missing != lost-3 {
			t.Errorf("round %d: %+v; want %d frames, %d lost, %d twice, %d reordered", round, withoutZeros(got), len(order),
				lost,
				twice, late)
		}
		if err := r.Reset(); err != nil {
			t.Fatal(err)
		}
		if got := stats(t, r); got.Frames+got.Missing+got.Delay.Frames+uint64(len(got.Sizes))+got.Delay.MaxNs != 0 {
			t.Errorf("after a reset: %+v", withoutZeros(got))
		}
	}
}

// TestSeveralCPUsAtOnce: the program counts exactly if it runs on several CPUs at the same time, with frames of the
// same streams.
func TestSeveralCPUsAtOnce(t *testing.T) {
	const threads, each, streams = 4, 5000, 2
	r := bench(t, Config{Streams: streams, FramesPerStream: threads * each})
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			for k := range each { // the next thread delivers every tenth frame a second time
				for copies := range 1 + (k%10)/9 {
					number := uint64(k*threads + (i+copies)%threads)
					f := frame(60+k%3, frames.Stamp{Stream: uint16(k % streams), Number: number})
					if _, err := r.objs.Receive.Run(runOf(f)); err != nil {
						errs[i] = err
						return
					}
				}
			}
		})
	}
	wg.Wait()
	got := stats(t, r)
	const all, again = threads * each, threads * each / 10
	if got.Frames != all+again || got.Duplicates != again || got.Distinct() != all || got.Delay.Frames != all ||
		got.Stray != 0 {
		t.Errorf("counts %+v, %v; want %d frames, %d of them again", withoutZeros(got), errs, all+again, again)
	}
	var sizes, delays uint64
	for _, n := range got.Sizes {
		sizes += n
	}
	for _, n := range got.Delay.counts {
		delays += n
	}
	if sizes != all+again || delays != all {
		t.Errorf("%d sizes, %d delays", sizes, delays)
	}
}

// TestDelays: delays and jitter of frames whose stamps say that they left 100 s ago and more. The machine's own delay
// is small in comparison.
func TestDelays(t *testing.T) {
	const second = 1e9
	r := bench(t, Config{Streams: 2})
	ago := []float64{100, 300, 100, 200, 900, 500}
	m := model{came: map[uint64]bool{}}
	var sum float64
	for i, seconds := range ago {
		s := frames.Stamp{Number: uint64(i), SentNs: now() - int64(seconds*second)}
		run(t, r, frame(60, s))
		run(t, r, frame(60, frames.Stamp{Number: uint64(i)})) // again: does not count
		m.take(s.Number, 60, seconds*second)
		sum += seconds * second
	}
	run(t, r, frame(60, frames.Stamp{Stream: 1, SentNs: now() + 1000*second}))
	got := stats(t, r)
	d, first := got.Delay, got.Streams[0]
	for what, v := range map[string][2]float64{
		"jitter": {first.JitterNs, m.jitter}, "mean": {first.MeanNs, sum / 6}, "mean of all": {d.MeanNs(), sum / 7},
		"least": {float64(first.MinNs), 100 * second}, "greatest": {float64(d.MaxNs), 900 * second},
		"median": {d.QuantileNs(0.5), 200 * second}, "99th percentile": {d.QuantileNs(0.99), 900 * second},
	} {
		if math.Abs(v[0]/v[1]-1) > 0.02 {
			t.Errorf("%s: %g ns, want %g", what, v[0], v[1])
		}
	}
	if got.Early != 1 || d.MinNs != 0 || got.Streams[1].MaxNs != 0 {
		t.Errorf("a frame from the future: %+v, least delay %d", withoutZeros(got), d.MinNs)
	}
}

// TestQuantiles compares delays by the program's histogram with sorted values.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Uint64Range(0, 1<<rapid.IntRange(1, 41).Draw(t, "bits")-1), 1, 100).Draw(t, "delays")
		d := Delay{counts: make([]uint64, buckets)}
		for _, v := range values {
			d.include(1, v, v, v)
			d.counts[delayScale.Place(v)]++
		}
		slices.Sort(values)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		want := float64(values[min(int(q*float64(len(values))), len(values)-1)])
		if got := d.QuantileNs(q); math.Abs(got-want) > want/128+0.5 {
			t.Errorf("quantile %g is %g, want %g", q, got, want)
		}
	})
	if q := (Delay{}).QuantileNs(0.5); q != 0 || fmt.Sprint((Delay{}).MeanNs()) != "0" {
		t.Errorf("without frames: %g", q)
	}
}

// TestDelaysSinceAReading: Since subtracts the counts of an earlier reading, and changes neither reading.
func TestDelaysSinceAReading(t *testing.T) {
	before, now := Delay{Frames: 6, SumNs: 22, counts: make([]uint64, buckets)},
		Delay{Frames: 11, SumNs: 163, MinNs: 3, MaxNs: 60, counts: make([]uint64, buckets)}
	before.counts[3], before.counts[7] = 5, 1
	now.counts[3], now.counts[7], now.counts[60] = 5, 4, 2
	got := now.Since(before)
	if got.Frames != 5 || got.SumNs != 141 || got.QuantileNs(0.5) != 7 || got.QuantileNs(0.7) != 60 {
		t.Errorf("%d frames of %d ns together, median %g, 70th percentile %g", got.Frames, got.SumNs, got.QuantileNs(0.5),
			got.QuantileNs(0.7))
	}
	if now.counts[3] != 5 {
		t.Error("the reading was changed")
	}
	if all := now.Since(Delay{}); !slices.Equal(all.counts, now.counts) {
		t.Errorf("since no reading %v, want all", all.counts)
	}
}

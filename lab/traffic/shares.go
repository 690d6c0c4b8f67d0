package traffic

import "math"

// Shares summarise the payload that each stream received since the last Mark, in bytes. The zero value is for no
// streams.
type Shares struct {
	Streams int     `json:"streams"` // number of streams
	Sum     float64 `json:"sum"`     // of the streams' bytes
	Squares float64 `json:"squares"` // sum of their squares
	Min     int64   `json:"min"`     // bytes of the stream with the fewest
	Max     int64   `json:"max"`     // bytes of the stream with the most
}

// With combines the shares of two sets of streams.
func (s Shares) With(o Shares) Shares {
	least := min(s.Min, o.Min)
	if s.Streams == 0 || o.Streams == 0 {
		least = s.Min + o.Min
	}
	return Shares{s.Streams + o.Streams, s.Sum + o.Sum, s.Squares + o.Squares, least, max(s.Max, o.Max)}
}

// Jain returns the fairness index of R. Jain, D. Chiu and W. Hawe (DEC-TR-301, 1984): 1 when all streams carried the
// same, 1/n when one of n streams carried everything. It is 0 when nothing was carried.
func (s Shares) Jain() float64 {
	if s.Squares == 0 {
		return 0
	}
	return s.Sum * s.Sum / (float64(s.Streams) * s.Squares)
}

// Even returns the largest possible Jain when streams carry whole bursts of burst bytes. It is less than 1 when each
// stream has few bursts: some streams then have one burst, and others two.
func (s Shares) Even(burst int) float64 {
	if s.Sum == 0 {
		return 0
	}
	mean := s.Sum / float64(s.Streams) / float64(burst)
	low := math.Floor(mean)
	more := mean - low // share of the streams with one burst more
	return mean * mean / ((1-more)*low*low + more*(low+1)*(low+1))
}

// mark restarts the count of shares.
func (r *run) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = make([]int64, len(r.streams))
	for i := range r.streams {
		r.marks[i] = r.streams[i].bytes.Load()
	}
}

// shares returns the streams' payload since the last mark; zero on the sending side, and before the first mark. The
// caller holds the run's lock.
func (r *run) shares() (s Shares) {
	if r.sends {
		return s
	}
	for i, before := range r.marks {
		n := r.streams[i].bytes.Load() - before
		s = s.With(Shares{1, float64(n), float64(n) * float64(n), n, n})
	}
	return s
}

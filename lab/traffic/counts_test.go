package traffic

import (
	"fmt"
	"time"
)

// counts are the Stats of one end of a run, and further counts that only tests read.
type counts struct {
	Stats
	AtNs           int64 // when the counters were read
	Streams        int   // accepted so far
	SentBytes      int64 // payload the kernel took from this side
	PrimedBytes    int64 // part of SentBytes from before the schedule began
	ShortfallBytes int64 // payload of the schedule that was given up
	MaxLatenessNs  int64 // longest time by which a burst left late
	CPUNs          int64 // on-CPU time of the side's threads together
}

// counts adds the further counts of a run to its Stats.
func (r *run) counts(s Stats) counts {
	c := counts{
		Stats: s, AtNs: time.Now().UnixNano(), Streams: int(r.accepted.Load()), PrimedBytes: r.primed.Load(),
		ShortfallBytes: r.shortfall.Load(), MaxLatenessNs: r.lateness.Load(),
	}
	for i := range r.streams {
		if r.sends {
			c.SentBytes += r.streams[i].bytes.Load()
		}
	}
	for _, t := range s.Threads {
		c.CPUNs += t.CPUNs
	}
	return c
}

func (g *Generator) counts() counts { return g.run.counts(g.Stats()) }

// counts returns the counts of the last n runs.
func (s *Server) counts(n int) (list []counts) {
	all := s.Stats(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.newest(n) {
		list = append(list, r.counts(all[i]))
	}
	return list
}

// countsOf returns the counts of one run, with its threads.
func (s *Server) countsOf(id RunID) counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runByID(id)
	if r == nil {
		return counts{}
	}
	var st Stats
	st.Threads = []ThreadCPU{{"receive", s.CPUNs()}}
	if r.pacer != nil {
		st.Threads = append(st.Threads, ThreadCPU{"send", r.pacer.CPUNs()})
	}
	r.addToStats(&st)
	return r.counts(st)
}

// rate is payload bits per second between two readings.
func rate(a, b counts) float64 {
	bytes := b.SentBytes - a.SentBytes + b.ReceivedBytes - a.ReceivedBytes
	return float64(bytes) * 8 / (float64(b.AtNs-a.AtNs) / 1e9)
}

// describe formats counts for messages of tests.
func describe(s counts) string {
	return fmt.Sprintf("streams %d sent %d received %d bursts %d shortfall %d late %d µs broken %d (%s) cpu %d ms",
		s.Streams, s.SentBytes, s.ReceivedBytes, s.Bursts, s.ShortfallBytes, s.MaxLatenessNs/1000,
		s.Broken, s.FirstError, s.CPUNs/1e6)
}

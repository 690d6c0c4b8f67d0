package transition

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Stop is a tap on the way of a run, in the order in which probes pass them.
type Stop struct {
	Tap string
	// Inside is that probes may pass inside a tunnel's packets.
	Inside bool
}

// Way is where the probes of a run pass.
type Way struct {
	Run   Run
	Stops []Stop
	// Outer is the length of a tunnel's packet with a probe, with its Ethernet header; 0: probes are in the clear everywhere.
	Outer int
}

// Passage is a probe with all its times, ns; 0: not known.
type Passage struct {
	Sent
	Received
	StopNs []int64 // by the way's stops
}

// Passages are the probes of a run whose times are known, and the counts of all.
type Passages struct {
	List   []Passage
	Counts Counts
}

// Counts says what became of the probes of a run. Resent and Lost ones have no times that mean anything and are left out;
// each probe counts once.
//
//	Sent = len(List) + Resent + Lost
type Counts struct {
	Sent   int `json:"sent"`
	Resent int `json:"resent"` // the connection sent segments again
	Lost   int `json:"lost"`   // never read
	// Unstamped probes have no stamp of the kernel's; Unmatched were not found at one of the taps, or not for certain. Their other
	// parts count.
	Unstamped int `json:"unstamped"`
	Unmatched int `json:"unmatched"`
}

// Match puts the times of each probe together. A frame in a tunnel is a probe's when it has the right length, and is the only
// such frame at its tap between the moments at which the probe was certainly before and behind it. Where there are two,
// the time stays unknown: nothing is guessed.
func Match(w Way, s []Sent, r []Received, events []Event) Passages {
	m := matcher{Way: w, clear: map[string]map[uint32][]int64{}, outer: map[string][]int64{}}
	m.sort(events)
	got := map[uint32]Received{}
	for _, p := range r {
		got[p.Number] = p
	}
	out := Passages{Counts: Counts{Sent: len(s)}}
	for i, sent := range s {
		p := Passage{Sent: sent, StopNs: make([]int64, len(w.Stops))}
		n, came := uint32(i+1), false
		p.Received, came = got[n]
		switch {
		case sent.Resent > 0 || m.twice(n):
			out.Counts.Resent++
			continue
		case !came:
			out.Counts.Lost++
			continue
		}
		m.pass(n, &p)
		if slices.Contains(p.StopNs, 0) {
			out.Counts.Unmatched++
		}
		if p.LeftNs == 0 {
			out.Counts.Unstamped++
		}
		out.List = append(out.List, p)
	}
	return out
}

// matcher has the times at each tap: of probes in the clear by number, of frames in a tunnel in their order.
type matcher struct {
	Way
	clear map[string]map[uint32][]int64
	outer map[string][]int64
}

func (m *matcher) sort(events []Event) {
	for _, s := range m.Stops {
		m.clear[s.Tap] = map[uint32][]int64{}
	}
	for _, e := range events {
		switch at := m.clear[e.Tap]; {
		case at == nil:
		case e.Number > 0 && e.Run == m.Run.Number:
			at[e.Number] = append(at[e.Number], e.AtNs)
		case e.Number == 0 && e.Bytes == m.Outer:
			m.outer[e.Tap] = append(m.outer[e.Tap], e.AtNs)
		}
	}
	for _, list := range m.outer {
		slices.Sort(list)
	}
}

// twice reports whether a tap saw a probe twice.
func (m *matcher) twice(n uint32) bool {
	return slices.ContainsFunc(m.Stops, func(s Stop) bool { return len(m.clear[s.Tap][n]) > 1 })
}

// hidden reports whether probes pass a stop in a tunnel's packets. The same tap may see them in the clear as well, when
// the kernel has unwrapped them: that is later.
func (m *matcher) hidden(s Stop) bool { return s.Inside && m.Outer > 0 }

// pass finds a probe's times at the stops: in the clear first, as these bound the others.
func (m *matcher) pass(n uint32, p *Passage) {
	for i, s := range m.Stops {
		if at := m.clear[s.Tap][n]; !m.hidden(s) && len(at) == 1 {
			p.StopNs[i] = at[0]
		}
	}
	for i, s := range m.Stops {
		if !m.hidden(s) {
			continue
		}
		from, to := p.WriteNs, p.ReadNs
		for _, at := range p.StopNs[:i] {
			from = max(from, at)
		}
		for _, at := range p.StopNs[i+1:] {
			if at > 0 {
				to = min(to, at)
			}
		}
		if list := between(m.outer[s.Tap], from, to); len(list) == 1 {
			p.StopNs[i] = list[0]
		}
	}
}

// between are the moments of a sorted list from one on up to another.
func between(list []int64, from, to int64) []int64 {
	first, _ := slices.BinarySearch(list, from)
	last, _ := slices.BinarySearch(list, to+1)
	return list[first:max(first, last)]
}

// least is the share of the probes of which a length must be found for it to be that of their packets.
const least = 0.8

// Outer finds the length of a tunnel's packets with probes, from a run at a time when hardly anything else passes: the one
// length, with the Ethernet header, of which exactly one frame passes each stop inside the tunnel on each probe's way. It is 0
// where probes are in the clear there. That there is no such length, or several, is an error: the tunnel cuts
// probes up, or puts them together.
func Outer(w Way, s []Sent, r []Received, events []Event) (int, error) {
	lengths := map[int]bool{}
	inside := map[string]bool{}
	for _, stop := range w.Stops {
		inside[stop.Tap] = stop.Inside
	}
	for _, e := range events {
		if inside[e.Tap] && e.Number == 0 {
			lengths[e.Bytes] = true
		}
	}
	best := map[int]int{} // probes that were found, by length
	for _, n := range slices.Sorted(maps.Keys(lengths)) {
		w.Outer = n
		best[n] = complete(w, s, r, events)
	}
	w.Outer = 0
	best[0] = complete(w, s, r, events)
	enough := int(least * float64(len(s)))
	found := slices.DeleteFunc(slices.Sorted(maps.Keys(best)), func(n int) bool { return best[n] < max(enough, 1) })
	if len(found) == 1 {
		return found[0], nil
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(best)), func(a, b int) int { return cmp.Compare(best[a], best[b]) })
	return 0, fmt.Errorf("the tunnel's packets with probes have no length of their own: %d lengths fit; %d of %d probes were alone in a packet of %d bytes", len(found), best[most], len(s), most)
}

// complete counts the probes whose times are all known.
func complete(w Way, s []Sent, r []Received, events []Event) (n int) {
	for _, p := range Match(w, s, r, events).List {
		if !slices.Contains(p.StopNs, 0) {
			n++
		}
	}
	return n
}

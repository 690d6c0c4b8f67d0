package transition

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Stop is a tap on the way of a run's probes.
type Stop struct {
	Tap string
	// Inside is true if probes may pass inside a tunnel's packets.
	Inside bool
}

// Way lists the taps that the probes of a run pass, in their order.
type Way struct {
	Run   Run
	Stops []Stop
	// Outer is the length of a tunnel's packet with a probe, with its Ethernet header; 0: probes are in the clear
	// everywhere.
	Outer int
}

// Passage is a probe with all its times, ns; 0: not known.
type Passage struct {
	Sent
	Received
	StopNs []int64 // by the way's stops
}

// Passages has the probes of a run whose times are known, and the counts of all probes.
type Passages struct {
	List   []Passage
	Counts Counts
}

// Counts has the numbers of a run's probes by their fate. Each probe counts once. Resent and Lost probes have no useful
// times, so they are not in the List of Passages.
//
//	Sent = len(List) + Resent + Lost
type Counts struct {
	Sent   int `json:"sent"`   // probes
	Resent int `json:"resent"` // probes whose segments the connection sent again
	Lost   int `json:"lost"`   // probes that the receiver never read
	// Unstamped probes lack a time stamp of the kernel. Unmatched probes were not found for certain at one of the taps.
	// Both are in the List, and their other times count.
	Unstamped int `json:"unstamped"`
	Unmatched int `json:"unmatched"` // not found for certain at a tap
}

// Match puts the times of each probe together. Frames in a tunnel are known by their length and their order: at moments
// at which no probe is in the tunnel, what has entered it must have left it. Where between two such moments a tap saw
// as many frames of that length as probes went in, they are these, in their order; where it saw more or fewer, all of
// their times there stay unknown. Nothing is guessed.
func Match(w Way, s []Sent, r []Received, events []Event) Passages {
	m := matcher{Way: w, clear: map[string]map[uint32][]int64{}, outer: map[string][]int64{}, got: map[uint32]int64{}}
	m.sort(events)
	for _, p := range r {
		m.got[p.Number] = p.ReadNs
	}
	hidden := m.hiddenTimes(s)
	out := Passages{Counts: Counts{Sent: len(s)}}
	for i, sent := range s {
		n := uint32(i + 1)
		read, came := m.got[n]
		switch {
		case sent.Resent > 0 || m.sawTwice(n):
			out.Counts.Resent++
			continue
		case !came:
			out.Counts.Lost++
			continue
		}
		p := Passage{Sent: sent, Received: Received{n, read}, StopNs: make([]int64, len(w.Stops))}
		for k, stop := range w.Stops {
			if m.isHidden(stop) {
				p.StopNs[k] = hidden[stop.Tap][n]
			} else if at := m.clear[stop.Tap][n]; len(at) == 1 {
				p.StopNs[k] = at[0]
			}
		}
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

// matcher has the times at each tap. Those of probes in the clear are by the probe's number, those of a tunnel's
// packets in their order.
type matcher struct {
	Way
	clear map[string]map[uint32][]int64
	outer map[string][]int64
	got   map[uint32]int64 // when each probe was read
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

// sawTwice reports whether a tap saw a probe twice.
func (m *matcher) sawTwice(n uint32) bool {
	return slices.ContainsFunc(m.Stops, func(s Stop) bool { return len(m.clear[s.Tap][n]) > 1 })
}

// isHidden reports whether probes pass a stop inside a tunnel's packets. The same tap may also see them in the clear
// later, after the kernel has unwrapped them.
func (m *matcher) isHidden(s Stop) bool { return s.Inside && m.Outer > 0 }

// tunnelStay is a probe's time in the tunnel.
type tunnelStay struct {
	number   uint32
	from, to int64
}

// tunnelStays lists the stays of all probes in the tunnel, in the order in which they entered it. A probe that was sent
// again has several stays. A probe that never came out stays until the end of the run.
func (m *matcher) tunnelStays(s []Sent) (list []tunnelStay) {
	var in, out string // the last tap before the tunnel, and the first behind it
	first := slices.IndexFunc(m.Stops, m.isHidden)
	for i, stop := range m.Stops {
		switch {
		case m.isHidden(stop):
		case i < first:
			in = stop.Tap
		case out == "":
			out = stop.Tap
		}
	}
	for i, sent := range s {
		n, to := uint32(i+1), int64(math.MaxInt64)
		if read, came := m.got[n]; came {
			to = read
		}
		if at := m.clear[out][n]; len(at) > 0 {
			to = slices.Max(at)
		}
		if in == "" {
			list = append(list, tunnelStay{n, sent.WriteNs, to})
		}
		for _, from := range m.clear[in][n] {
			list = append(list, tunnelStay{n, from, to})
		}
	}
	slices.SortStableFunc(list, func(a, b tunnelStay) int { return cmp.Compare(a.from, b.from) })
	return list
}

// hiddenTimes returns the times of probes at the stops inside the tunnel, by tap and by the probe's number.
func (m *matcher) hiddenTimes(s []Sent) map[string]map[uint32]int64 {
	times := map[string]map[uint32]int64{}
	if m.Outer == 0 {
		return times
	}
	list := m.tunnelStays(s)
	for _, stop := range m.Stops {
		if m.isHidden(stop) {
			times[stop.Tap] = map[uint32]int64{}
		}
	}
	for len(list) > 0 {
		n, end := 1, list[0].to
		for n < len(list) && list[n].from <= end {
			end = max(end, list[n].to)
			n++
		}
		for tap, at := range times {
			assign(at, list[:n], momentsBetween(m.outer[tap], list[0].from, end))
		}
		list = list[n:]
	}
	return times
}

// assign takes the i-th frame for that of the i-th probe. It does so only if there are as many frames as probes, and
// each frame passed while its probe was in the tunnel.
func assign(times map[uint32]int64, probes []tunnelStay, frames []int64) {
	if len(frames) != len(probes) {
		return
	}
	for i, p := range probes {
		if frames[i] < p.from || frames[i] > p.to {
			return
		}
	}
	for i, p := range probes {
		times[p.number] = frames[i]
	}
}

// momentsBetween returns the moments of a sorted list from one moment up to another.
func momentsBetween(list []int64, from, to int64) []int64 {
	first, _ := slices.BinarySearch(list, from)
	last := len(list)
	if to < math.MaxInt64 {
		last, _ = slices.BinarySearch(list, to+1)
	}
	return list[first:max(first, last)]
}

const (
	// leastShare is the smallest share of the probes that must have a length, so that it counts as the length of their
	// packets: some are put together while a busy CPU keeps the tunnel's program waiting.
	leastShare = 0.5
	// leadFactor is the factor by which frames of this length must outnumber those of any other length.
	leadFactor = 3
)

// Outer finds the length of a tunnel's packets with probes, from a run at a time when hardly anything else passes: the
// one length, with the Ethernet header, that most frames have at each stop inside the tunnel. It is 0 where probes are
// in the clear there. That there is no such length, or several, is an error: the tunnel cuts probes up, or puts them
// together.
func Outer(w Way, s []Sent, events []Event) (int, error) {
	count := map[string]map[int]int{} // by tap and length; 0 is probes in the clear
	for _, stop := range w.Stops {
		if stop.Inside {
			count[stop.Tap] = map[int]int{}
		}
	}
	for _, e := range events {
		if at := count[e.Tap]; at != nil {
			if e.Number > 0 {
				e.Bytes = 0
			}
			at[e.Bytes]++
		}
	}
	outer, most, next := mostCommonLength(count)
	if most > int(leastShare*float64(len(s))) && most >= leadFactor*next {
		return outer, nil
	}
	return 0, fmt.Errorf(
		"the tunnel's packets with probes have no length of their own: %d probes made %s", len(s), framesPerTap(count))
}

// mostCommonLength returns the length that most frames have, at all taps together, the number of these frames, and the
// number of frames of the second most common length.
func mostCommonLength(count map[string]map[int]int) (length, most, next int) {
	everywhere := map[int]int{}
	for _, at := range count {
		for n := range at {
			everywhere[n] = math.MaxInt
			for _, other := range count {
				everywhere[n] = min(everywhere[n], other[n])
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(everywhere)) {
		switch {
		case everywhere[n] > most:
			length, most, next = n, everywhere[n], most
		case everywhere[n] > next:
			next = everywhere[n]
		}
	}
	return length, most, next
}

// framesPerTap describes the frames that passed each tap, for messages.
func framesPerTap(count map[string]map[int]int) string {
	var parts []string
	for _, tap := range slices.Sorted(maps.Keys(count)) {
		var lengths []string
		for _, n := range slices.Sorted(maps.Keys(count[tap])) {
			lengths = append(lengths, fmt.Sprintf("%d of %d bytes", count[tap][n], n))
		}
		parts = append(parts, fmt.Sprintf("at %q %s", tap, cmp.Or(strings.Join(lengths, ", "), "nothing")))
	}
	return strings.Join(parts, "; ")
}

package experiment

import (
	"time"

	"github.com/gateweigh/gateweigh/lab/result"
)

const (
	// segmentBits is the payload of a full TCP segment with time stamps.
	segmentBits = 1448 * 8
	// halvesPart is the share of a window in which bursts may go out in halves: with
	// more of them a burst has less than four fifths of its segments, which the trials'
	// self-test rejects.
	halvesPart = 0.25
)

// turn is how long it takes until each stream of a load has sent a burst.
func (t Traffic) turn(clients int, mbps float64, direction string) time.Duration {
	streams := float64(clients)
	if direction == result.Both {
		streams *= 2
	}
	return time.Duration(streams * float64(t.BurstSegments) * segmentBits / (mbps * 1e6) * float64(time.Second))
}

// longestTurn is that of the plan's streams over TCP, and which clients and load it is of;
// zero without any.
func (e *Experiment) longestTurn() (longest time.Duration, clients int, mbps float64) {
	if e.Traffic.Protocol != ProtocolTCP {
		return 0, 0, 0
	}
	for _, n := range e.Clients {
		device, clean := e.Sides(Block{Clients: n})
		for _, side := range []Side{device, clean} {
			for _, load := range e.loads(n) {
				for _, direction := range e.Directions {
					turn := side.Traffic.turn(side.Clients, load, direction)
					if side.Traffic.Kind == TrafficStreams && turn > longest {
						longest, clients, mbps = turn, side.Clients, load
					}
				}
			}
		}
	}
	return longest, clients, mbps
}

// checkWarmup refuses a warm-up that ends long before each stream has sent its first
// burst. TCP sends that in two halves, and what is measured would be other packets than
// were asked for.
func (e *Experiment) checkWarmup(report func(key, format string, args ...any)) {
	turn, clients, mbps := e.longestTurn()
	if e.Warmup+time.Duration(halvesPart*float64(e.Window)) >= turn {
		return
	}
	const step = 100 * time.Millisecond
	report("warmup", "%s: a turn of all streams (clients = %d, %g Mbit/s, bursts of %d segments) takes %s, and the first burst of each goes out in halves: want %s",
		e.Warmup, clients, mbps, e.Traffic.BurstSegments, turn.Round(step/10), (turn + step - 1).Truncate(step))
}

// checkDatagrams refuses loads over UDP of which a window holds hardly a burst: how much
// is delivered in it would be chance. TCP's are refused by their warm-up.
func (e *Experiment) checkDatagrams(report func(key, format string, args ...any)) {
	if e.Traffic.Protocol != ProtocolUDP || e.Traffic.Kind != TrafficStreams {
		return
	}
	const least = 4 // bursts in a window
	for _, n := range e.Clients {
		for _, load := range e.loads(n) {
			if each := e.Traffic.turn(1, load, ""); each > e.Window/least {
				report("traffic.burst_segments", "%d: at %g Mbit/s such a burst is sent every %s, and a window of %s is to hold %d: fewer segments, a longer window or more load",
					e.Traffic.BurstSegments, load, each.Round(time.Millisecond), e.Window, least)
				return
			}
		}
	}
}

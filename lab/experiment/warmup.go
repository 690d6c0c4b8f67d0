package experiment

import (
	"math"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// halvesPart is the share of a window in which bursts may go out in halves: with
// more of them a burst has less than four fifths of its segments, which the trials'
// self-test rejects.
const halvesPart = 0.25

// turn is how long it takes until each stream of a load has sent a burst of TCP segments.
func (s Side) turn(mbps float64, direction string) time.Duration {
	streams := float64(s.Clients)
	if direction == result.Both {
		streams *= 2
	}
	segmentBits := float64(8 * traffic.SegmentBytes(client.KindOf(s.Client).MTU, false))
	return time.Duration(streams * float64(s.Traffic.BurstSegments) * segmentBits / (mbps * 1e6) * float64(time.Second))
}

// WarmupOf is how long a load on a pair's sides runs before its first window: as long as
// asked for, or until each stream has sent its first burst where that takes longer. TCP sends the
// first burst in two halves, so a window with first bursts would measure other packets than were
// asked for; a UDP stream is known to its receiver only from its first burst on.
func (e *Experiment) WarmupOf(mbps float64, direction string, sides ...Side) time.Duration {
	var turn time.Duration
	for _, s := range sides {
		if traffic.KindOf(s.Traffic.Kind).Bursts {
			turn = max(turn, s.turn(mbps, direction))
		}
	}
	if e.Warmup+time.Duration(halvesPart*float64(e.Window)) >= turn {
		return e.Warmup
	}
	const step = 100 * time.Millisecond
	return (turn + step - 1).Truncate(step)
}

// checkTurns refuses loads so small for their streams that the warm-up would exceed its bound.
func (e *Experiment) checkTurns(report Report) {
	for _, n := range e.Clients {
		device, clean := e.Sides(n)
		for _, load := range e.Loads(n) {
			for _, direction := range e.Directions {
				warmup := e.WarmupOf(load, direction, device, clean)
				if warmup <= maxWindow {
					continue
				}
				least := load * float64(warmup) / float64(maxWindow)
				report("clients",
					"%d: at %g Mbit/s, in bursts of %s, it takes %s until each has sent one, and a load warms up for %s at most: "+
						"fewer clients, shorter bursts, or %.0f Mbit/s",
					n, load, words.Counted(e.Traffic.BurstSegments, "segment"), warmup.Round(time.Second), maxWindow, math.Ceil(least))
				return
			}
		}
	}
}

// checkVisits refuses guests so rare that a block may end before the first of them comes.
func (e *Experiment) checkVisits(report Report) {
	if e.Client.Churn == 0 {
		return
	}
	for _, n := range e.Clients {
		device, clean := e.Sides(n)
		for _, direction := range e.Directions {
			var loaded time.Duration // of a block
			for _, load := range e.Loads(n) {
				loaded += e.WarmupOf(load, direction, device, clean) + time.Duration(e.Windows)*e.Window
			}
			if e.Client.Churn*loaded.Seconds() < 1 {
				report("client.churn",
					"%g: a block's loads last %s, in which not one guest comes: more guests a second, more windows or longer ones",
					e.Client.Churn, loaded)
				return
			}
		}
	}
}

// checkDatagrams refuses loads over UDP of which a window holds hardly a burst: how much
// is delivered in it would be chance.
func (e *Experiment) checkDatagrams(report Report) {
	if e.Traffic.Protocol != ProtocolUDP || !traffic.KindOf(e.Traffic.Kind).Bursts {
		return
	}
	const least = 4 // bursts in a window
	for _, n := range e.Clients {
		for _, load := range e.Loads(n) {
			one := Side{Client: e.Client.Kind, Clients: 1, Traffic: e.Traffic}
			if each := one.turn(load, ""); each > e.Window/least {
				report("traffic.burst_segments",
					"%d: at %g Mbit/s such a burst is sent every %s, and a window of %s is to hold %d: fewer segments, a longer "+
						"window or more load",
					e.Traffic.BurstSegments, load, each.Round(time.Millisecond), e.Window, least)
				return
			}
		}
	}
}

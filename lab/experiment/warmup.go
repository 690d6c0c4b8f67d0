package experiment

import (
	"math"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// maxHalves is the largest share of a window in which streams may still send their first burst, which TCP sends in two
// halves. With more of them bursts have on average less than four fifths of their segments, and the self-test rejects
// the trial.
const maxHalves = 0.25

// burstTime returns how long it takes until each stream of a load has sent one burst of TCP segments.
func (s Side) burstTime(mbps float64, direction string) time.Duration {
	streams := float64(s.Clients)
	if direction == result.Both {
		streams *= 2
	}
	segmentBits := float64(8 * traffic.SegmentBytes(s.Family.PacketMTU(client.KindOf(s.Client).MTU), false))
	return time.Duration(streams * float64(s.Traffic.BurstSegments) * segmentBits / (mbps * 1e6) * float64(time.Second))
}

// WarmupOf returns how long a load runs on a pair's sides before its first window: Warmup, or the time until each
// stream has sent its first burst where that is longer. TCP sends a first burst in two halves, so a window with first
// bursts would measure other packets than the experiment asks for. A receiver knows a UDP stream only from its first
// burst on.
func (e *Experiment) WarmupOf(mbps float64, direction string, sides ...Side) time.Duration {
	var turn time.Duration
	for _, s := range sides {
		if traffic.KindOf(s.Traffic.Kind).Bursts {
			turn = max(turn, s.burstTime(mbps, direction))
		}
	}
	if e.Warmup+time.Duration(maxHalves*float64(e.Window)) >= turn {
		return e.Warmup
	}
	const step = 100 * time.Millisecond
	return (turn + step - 1).Truncate(step)
}

// checkWarmups refuses loads that are so small for their number of streams that the warm-up would be too long.
func (e *Experiment) checkWarmups(report Report) {
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

// checkVisits refuses guests that are so rare that a block may end before the first one comes.
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

// checkDatagrams refuses loads over UDP of which a window holds hardly a burst, because chance would then decide how
// much is delivered in the window.
func (e *Experiment) checkDatagrams(report Report) {
	if e.Traffic.Protocol != ProtocolUDP || !traffic.KindOf(e.Traffic.Kind).Bursts {
		return
	}
	const least = 4 // bursts of all streams together in a window
	for _, n := range e.Clients {
		for _, load := range e.Loads(n) {
			one := Side{Client: e.Client.Kind, Clients: 1, Traffic: e.Traffic}
			if each := one.burstTime(load, ""); each > e.Window/least {
				report("traffic.burst_segments",
					"%d: at %g Mbit/s such a burst is sent every %s, and a window of %s is to hold %d: fewer segments, a longer "+
						"window or more load",
					e.Traffic.BurstSegments, load, each.Round(time.Millisecond), e.Window, least)
				return
			}
		}
	}
}

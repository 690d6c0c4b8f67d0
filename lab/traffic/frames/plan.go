// Package frames describes traffic of exact frames: which sizes follow each other, when each
// frame is due, and which stream it belongs to. A Plan says all of that before anything is sent,
// so three counts can be compared: frames that were due (intended), that a link took (offered) and that arrived
// (forwarded; RFC 2285).
// Package send carries plans out, package receive accounts for each frame.
package frames

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Frame is one frame of a plan.
type Frame struct {
	Bytes  uint16 // from the destination's MAC address to the end of the payload, without FCS
	Stream uint16
	Due    int64 // ns since the start
}

// MaxStreams is the largest number of streams in a plan. A stamp has 16 bits for it.
const MaxStreams = 1 << 16

// Config describes a plan.
type Config struct {
	Sizes    Sizes
	Schedule Schedule
	Streams  int           // frames go to streams 0 to Streams-1 in turn; 0 means 1
	Burst    int           // frames that are due together, at the first one's time; 0 means 1. The rate is the same
	Count    int64         // frames; 0: no limit
	For      time.Duration // only frames due before this time; 0: no limit. Without Count and For a plan has no end
	Seed     uint64        // of the order of sizes: the same seed gives the same order on any machine
	GapSeed  uint64        // of Poisson gaps and of the places of scattered bursts
	// Scatter puts each burst at a random place of its interval, at a constant mean rate. Otherwise two generators with
	// the same period keep the phase between their bursts. If the bursts of one come just after those of the other, the
	// machine is still awake, and they seem to cost less.
	Scatter  bool
	LinkMbps float64 // bit rate of the link that frames are meant for; a faster plan is refused. 0: any rate
}

// Plan is a sequence of frames. It has one reader.
type Plan struct {
	cfg        Config
	sizes      order
	clock      clock
	framesLeft int64 // frames that Count leaves
	stream     uint16
	overBudget bool
	burst      struct { // the burst of the last frame
		due  int64
		left int // frames that it still has
	}
	interval int64     // interval in which a burst is scattered, ns; 0: bursts are not scattered
	chance   *rand.PCG // gives the places of bursts in their intervals
}

// order puts sizes one after the other.
type order interface {
	sizes(batch []Frame)
}

// clock sets the due times of frames. The first frame is due at 0 or after the first gap. No frame is due earlier than
// the frame before it.
type clock interface {
	dues(batch []Frame)
}

// NewPlan checks a configuration and returns its plan, at its start.
func NewPlan(cfg Config) (*Plan, error) {
	if cfg.Streams == 0 {
		cfg.Streams = 1
	}
	switch {
	case cfg.Streams < 0 || cfg.Streams > MaxStreams:
		return nil, fmt.Errorf("%d streams: a plan has 1 to %d", cfg.Streams, MaxStreams)
	case cfg.Burst < 0:
		return nil, fmt.Errorf("bursts of %d frames: a burst has at least 1", cfg.Burst)
	case cfg.Count < 0:
		return nil, fmt.Errorf("%d frames: a plan has at least 1, or 0 for no limit", cfg.Count)
	case cfg.For < 0:
		return nil, fmt.Errorf("frames for %s: a plan's time is positive, or 0 for no limit", cfg.For)
	case cfg.Schedule.AtOnce && cfg.Count == 0:
		return nil, errors.New("frames that are all due at once need a count: a time does not end them")
	case cfg.Sizes.empty():
		return nil, errors.New("the plan names no frame sizes: choose a mix, a histogram or a capture")
	}
	clock, err := cfg.Schedule.clock(cfg.Sizes, cfg.GapSeed)
	if err != nil {
		return nil, err
	}
	if err := cfg.fits(); err != nil {
		return nil, err
	}
	interval, err := cfg.interval()
	if err != nil {
		return nil, err
	}
	p := &Plan{cfg: cfg, sizes: cfg.Sizes.order(cfg.Seed), clock: clock, framesLeft: math.MaxInt64, interval: interval,
		chance: rand.NewPCG(cfg.GapSeed, seedOfPlaces)}
	if cfg.Count > 0 {
		p.framesLeft = cfg.Count
	}
	return p, nil
}

// Fill puts the plan's next frames into batch and returns their number. It is less than len(batch) only at the plan's
// end.
func (p *Plan) Fill(batch []Frame) int {
	if p.overBudget || p.framesLeft <= 0 {
		return 0
	}
	batch = batch[:min(int64(len(batch)), p.framesLeft)]
	p.sizes.sizes(batch)
	p.clock.dues(batch)
	p.makeBurst(batch)
	p.assignStreams(batch)
	n := p.countInTime(batch)
	p.framesLeft -= int64(n)
	return n
}

// interval is the time over which a burst is scattered, ns. 0: bursts are not scattered.
func (c Config) interval() (int64, error) {
	if !c.Scatter {
		return 0, nil
	}
	if c.Schedule.Poisson || c.Schedule.Gaps != nil || c.Schedule.AtOnce {
		return 0, errors.New("only bursts at a constant rate are scattered")
	}
	return int64(float64(max(c.Burst, 1)) / c.rate().PacketsPerSecond * 1e9), nil
}

// makeBurst makes the frames of a burst due at one time.
func (p *Plan) makeBurst(batch []Frame) {
	if p.cfg.Burst < 2 && p.interval == 0 {
		return
	}
	for i := range batch {
		if p.burst.left == 0 {
			p.burst.due, p.burst.left = batch[i].Due, max(p.cfg.Burst, 1)
			if p.interval > 0 {
				p.burst.due += chooseBelow(p.chance.Uint64(), p.interval)
			}
		}
		batch[i].Due = p.burst.due
		p.burst.left--
	}
}

// assignStreams gives frames to streams one after the other.
func (p *Plan) assignStreams(batch []Frame) {
	last, s := uint16(p.cfg.Streams-1), p.stream
	for i := range batch {
		batch[i].Stream = s
		if s == last {
			s = 0
		} else {
			s++
		}
	}
	p.stream = s
}

// countInTime counts the frames that are due before the plan's time is over.
func (p *Plan) countInTime(batch []Frame) int {
	n := len(batch)
	if p.cfg.For == 0 || n == 0 || batch[n-1].Due < int64(p.cfg.For) {
		return n
	}
	p.overBudget = true
	for n > 0 && batch[n-1].Due >= int64(p.cfg.For) {
		n--
	}
	return n
}

// MaxBytes is the size of the plan's longest frame.
func (p *Plan) MaxBytes() int { return p.cfg.Sizes.Longest() }

// Streams returns the number of streams to which the plan's frames belong.
func (p *Plan) Streams() int { return p.cfg.Streams }

// Rate is the plan's mean rate.
func (p *Plan) Rate() Rate { return p.cfg.rate() }

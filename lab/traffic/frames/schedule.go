package frames

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
)

// Schedule says when frames are due. Exactly one of PacketsPerSecond, Mbps, Gaps and AtOnce is set.
type Schedule struct {
	PacketsPerSecond float64
	Mbps             float64 // bits of frames as Frame.Bytes counts them, in the mean of the mix's period
	Poisson          bool    // gaps between frames due at a rate are exponential; otherwise all are the same
	Gaps             *Trace  // as in a capture, again and again
	Speed            float64 // how much faster than the capture; 0 means 1
	AtOnce           bool    // all frames are due at the start: a sender sends as fast as it can
}

// Limits of rates: 10⁹ frames/s, one an hour.
const (
	minGapNs = 1
	maxGapNs = 3600e9
	maxSpeed = 1000
)

// clock returns the clock of a schedule; an error if the schedule's fields do not go together.
func (s Schedule) clock(sizes Sizes, seed uint64) (clock, error) {
	set := 0
	for _, is := range []bool{s.PacketsPerSecond != 0, s.Mbps != 0, s.Gaps != nil, s.AtOnce} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		return nil, errors.New("a schedule has exactly one of: packets/s, Mbit/s, gaps of a capture, all at once")
	case s.AtOnce && s.Poisson, s.Gaps != nil && s.Poisson:
		return nil, errors.New("gaps of a Poisson process need packets/s or Mbit/s")
	case s.Gaps == nil && s.Speed != 0:
		return nil, errors.New("a speed needs gaps of a capture")
	case s.AtOnce:
		return atOnce{}, nil
	case s.Gaps != nil:
		return s.Gaps.clock(s.Speed)
	}
	gap, err := s.gap(sizes)
	if err != nil {
		return nil, err
	}
	if s.Poisson {
		return newPoisson(gap, seed), nil
	}
	return newConstant(gap), nil
}

// gap is the mean time between two frames, ns.
func (s Schedule) gap(sizes Sizes) (*big.Rat, error) {
	rate, unit := s.PacketsPerSecond, "packets/s"
	if s.Mbps != 0 {
		rate, unit = s.Mbps, "Mbit/s"
	}
	per, err := exactDecimal(rate)
	if err != nil || per.Sign() <= 0 {
		return nil, fmt.Errorf("a rate of %v %s: rates are above 0", rate, unit)
	}
	gap := new(big.Rat).SetInt64(1e9)
	if s.Mbps != 0 {
		gap.SetFrac64(sizes.periodBytes()*8*1000, int64(sizes.Period()))
	}
	gap.Quo(gap, per)
	if gap.Cmp(new(big.Rat).SetInt64(minGapNs)) < 0 || gap.Cmp(new(big.Rat).SetInt64(maxGapNs)) > 0 {
		return nil, fmt.Errorf("%v %s would be a frame every %s ns: the lab's schedules have gaps from 1 ns to 1 hour", rate,
			unit, gap.FloatString(3))
	}
	return gap, nil
}

// atOnce is the clock of frames that are all due at 0.
type atOnce struct{}

func (atOnce) dues(batch []Frame) {
	for i := range batch {
		batch[i].Due = 0
	}
}

// constant counts time in whole ns and a rest in fractions of the gap: frame k is due at exactly
// ⌊k·gap⌋, however long the plan.
type constant struct {
	due, whole       int64
	rest, part, unit uint64 // a gap is whole + part/unit
}

func newConstant(gap *big.Rat) *constant {
	whole, part := new(big.Int).DivMod(gap.Num(), gap.Denom(), new(big.Int))
	// The unit is at most a rate's 12 digits times the period: below 2⁶¹.
	return &constant{whole: whole.Int64(), part: part.Uint64(), unit: gap.Denom().Uint64()}
}

func (c *constant) dues(batch []Frame) {
	due, rest := c.due, c.rest
	for i := range batch {
		batch[i].Due = due
		due += c.whole
		if rest += c.part; rest >= c.unit {
			rest -= c.unit
			due++
		}
	}
	c.due, c.rest = due, rest
}

// poisson has independent exponential gaps. The first frame is due after the first of them.
type poisson struct {
	due    int64
	rest   uint64 // · 2⁻³² ns
	mean   uint64 // · 2⁻²⁰ ns: below 2⁶²
	chance *rand.PCG
}

func newPoisson(gap *big.Rat, seed uint64) *poisson {
	mean := new(big.Int).Lsh(gap.Num(), 20)
	mean.Div(mean, gap.Denom())
	return &poisson{mean: mean.Uint64(), chance: rand.NewPCG(seed, seedOfGaps)}
}

func (p *poisson) dues(batch []Frame) {
	due, rest := p.due, p.rest
	for i := range batch {
		hi, lo := bits.Mul64(exponential(p.chance.Uint64()), p.mean) // · 2⁻⁵² ns
		due += int64(hi<<12 | lo>>52)
		rest += lo >> 20 & (1<<32 - 1)
		due += int64(rest >> 32)
		rest &= 1<<32 - 1
		batch[i].Due = due
	}
	p.due, p.rest = due, rest
}

// Rate returns the mean rate of a plan over the period of its sizes. All fields are 0 if all frames are due at once.
type Rate struct {
	PacketsPerSecond float64
	Mbps             float64 // of frames, from the destination's MAC address without FCS
	WireMbps         float64 // of a link: with FCS, preamble and the least gap
}

// rate returns the mean rate of a plan with this configuration.
func (c Config) rate() Rate {
	r := Rate{PacketsPerSecond: c.Schedule.PacketsPerSecond}
	bytes := c.Sizes.MeanBytes()
	switch {
	case c.Schedule.Mbps != 0:
		r.PacketsPerSecond = c.Schedule.Mbps * 1e6 / 8 / bytes
	case c.Schedule.Gaps != nil:
		r.PacketsPerSecond = c.Schedule.Gaps.packetsPerSecond(c.Schedule.Speed)
	}
	r.Mbps = r.PacketsPerSecond * bytes * 8 / 1e6
	r.WireMbps = r.PacketsPerSecond * (bytes + WireOverhead) * 8 / 1e6
	return r
}

// fits returns an error if the plan's rate is higher than the link can carry.
func (c Config) fits() error {
	if c.LinkMbps == 0 {
		return nil
	}
	if math.IsNaN(c.LinkMbps) || c.LinkMbps < 0 {
		return fmt.Errorf("a link of %v Mbit/s: a link's rate is above 0, or 0 where it is not known", c.LinkMbps)
	}
	if r := c.rate(); r.WireMbps > c.LinkMbps {
		mean := (c.Sizes.MeanBytes() + WireOverhead) * 8 // bits
		return fmt.Errorf(
			"%.6g packets/s of %.6g bytes in the mean are due every %.6g ns, and take %.6g ns each on a link of %v Mbit/s: "+
				"ask for at most %.6g packets/s (%.6g Mbit/s of frames)",
			r.PacketsPerSecond, c.Sizes.MeanBytes(), 1e9/r.PacketsPerSecond, mean*1e3/c.LinkMbps, c.LinkMbps,
			math.Floor(c.LinkMbps*1e6/mean), c.LinkMbps*c.Sizes.MeanBytes()*8/mean)
	}
	return nil
}

package bench

import (
	"context"
	"math"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// CourseStep is the length of a step in courses.
const CourseStep = 100 * time.Millisecond

// ReadWithCourse is ReadTwice, and what happened in between. The routers read their own meters, and the first client
// host times its round trips, so nothing crosses between hosts and lab until the window has ended.
func ReadWithCourse(ctx context.Context, length time.Duration, sides ...*Bench) (
	before, after []Snapshot, courses []result.SideCourse, err error) {
	begin := func() error {
		return backend.Each(sides, func(_ int, s *Bench) error { return s.startCourse(ctx, length) })
	}
	if before, after, err = readAround(ctx, length, begin, sides...); err != nil {
		return nil, nil, nil, err
	}
	courses, err = Each(sides, func(_ int, s *Bench) (result.SideCourse, error) { return s.takeCourse(ctx, length) })
	return before, after, courses, err
}

func (s *Bench) startCourse(ctx context.Context, length time.Duration) error {
	links := map[string][]string{
		result.Up: {s.Lab.Port(topology.PortWAN)}, result.Down: {s.Lab.Port(topology.PortLAN)},
		result.Both: {s.Lab.Port(topology.PortLAN), s.Lab.Port(topology.PortWAN)},
	}
	q := agent.Course{Step: CourseStep, Length: length, Links: links[s.Load.Direction]}
	return backend.Each(s.Routers, func(_ int, h *backend.Host) error { return h.StartCourse(ctx, q) })
}

func (s *Bench) takeCourse(ctx context.Context, length time.Duration) (c result.SideCourse, err error) {
	steps := int((length + CourseStep/2) / CourseStep)
	routers, err := Each(s.Routers, func(_ int, h *backend.Host) ([]meter.Moment, error) { return h.TakeCourse(ctx) })
	if err != nil {
		return c, err
	}
	for _, moments := range routers {
		mbps, pct := bySteps(moments, steps)
		c.LinkMbps, c.CorePct = sumOf(c.LinkMbps, mbps), sumOf(c.CorePct, pct)
	}
	c.RTTUs, err = s.Hosts[0].RTTCourse(ctx, CourseStep)
	c.RTTUs = c.RTTUs[:min(len(c.RTTUs), steps)]
	for _, list := range [][]float64{c.LinkMbps, c.CorePct, c.RTTUs} {
		for i, v := range list {
			list[i] = threeDigits(v)
		}
	}
	return c, err
}

// bySteps are the rate of the links and the CPU, percent of a core, of each step since the first reading. A step
// without a reading at its end has the mean of the time between the readings around it.
func bySteps(moments []meter.Moment, steps int) (mbps, pct []float64) {
	for i := 1; i < len(moments); i++ {
		a, b := moments[i-1], moments[i]
		seconds := float64(b.Ns-a.Ns) / 1e9
		passed := time.Duration(b.Ns - moments[0].Ns)
		for len(mbps) < steps && passed > time.Duration(len(mbps))*CourseStep+CourseStep/2 { // a step's middle
			mbps = append(mbps, Mbps(b.TxBytes-a.TxBytes, seconds))
			pct = append(pct, float64(b.CPUNs-a.CPUNs)/1e7/seconds)
		}
	}
	return mbps, pct
}

// sumOf adds two lists as far as both go; nil is no list.
func sumOf(a, b []float64) []float64 {
	if a == nil {
		return b
	}
	a = a[:min(len(a), len(b))]
	for i := range a {
		a[i] += b[i]
	}
	return a
}

// threeDigits rounds to three significant digits, which keeps records short.
func threeDigits(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	if unit < 1 { // a division by a whole number prints short, a product with a fraction does not
		return math.Round(v/unit) / math.Round(1/unit)
	}
	return math.Round(v/unit) * unit
}

package studies

import (
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// places are where claims along the clients can be judged, best first: the study's
// load, then other loads from the highest down, and of each load every run that
// has it in the order given. Each is the experiment at one load, of one run alone,
// so that what is compared there was measured in one sitting. At the study's load
// a run counts with whatever levels it has, at others with the devices that it has
// at all of the study's.
func places(d design, runs []namedRun) []experiment {
	var loads []float64
	for _, run := range runs {
		for _, s := range run.Sweeps {
			if at := d; s.OfferedMbps.Known() && float64(s.OfferedMbps) != d.Load {
				if at.Load = float64(s.OfferedMbps); at.is(s) {
					loads = append(loads, at.Load)
				}
			}
		}
	}
	slices.Sort(loads)
	loads = append(slices.Compact(loads), d.Load)
	slices.Reverse(loads)
	var out []experiment
	for _, load := range loads {
		at := d
		at.Load = load
		for _, run := range runs {
			x := newExperiment(at, []namedRun{run})
			x.of = run.Summary
			if load != d.Load {
				x.dropPartial()
			}
			if x.measured() {
				out = append(out, x)
			}
		}
	}
	return out
}

// dropPartial forgets the routers that lack one of the study's levels.
func (x *experiment) dropPartial() {
	for i, r := range x.Routers {
		if len(r.levels) < len(x.Levels) {
			x.Routers[i] = router{DUT: r.DUT, Heading: r.Heading, Name: r.Name, Published: r.Published}
		}
	}
}

// measuredClients reports whether any run goes along the clients so that a claim
// can be judged there.
func (s study1) measuredClients() bool { return len(s.places) > 0 }

// has reports whether a device was measured in either experiment.
func (s study1) has(dut string) bool {
	return s.load.router(dut).measured() || s.clientsOf(dut).router(dut).measured()
}

// clientsOf is the experiment along the clients that has figures of a device: at
// the study's load if any run has it there, else the best place that has.
func (s study1) clientsOf(dut string) experiment {
	if s.clients.router(dut).measured() {
		return s.clients
	}
	for _, x := range s.places {
		if x.router(dut).measured() {
			return x
		}
	}
	return s.clients
}

// judgedAt is where a claim that needs some levels is judged of devices: the first
// place at which all of them carried these levels, and at another load than the
// study's every level of the study. ok is false where there is none.
func (s study1) judgedAt(levels []float64, duts ...string) (x experiment, ok bool) {
	for _, x := range s.places {
		needed := levels
		if x.Load != s.clients.Load {
			needed = x.Levels
		}
		lacks := func(dut string) bool {
			r := x.router(dut)
			return slices.ContainsFunc(needed, func(at float64) bool { return !r.carries(at) })
		}
		if !slices.ContainsFunc(duts, lacks) {
			return x, true
		}
	}
	return experiment{}, false
}

// elsewhere says that a claim was not judged at the study's load, at which it was,
// and why; empty where it was.
func (s study1) elsewhere(x experiment, levels []float64, duts ...string) string {
	if x.Load == s.clients.Load {
		return ""
	}
	var why []string
	devices := map[string][]string{}
	for _, dut := range duts {
		text := s.clients.lack(s.clients.router(dut), levels)
		if text == "" {
			continue
		}
		if devices[text] == nil {
			why = append(why, text)
		}
		devices[text] = append(devices[text], dut)
	}
	for i, text := range why {
		why[i] = fmt.Sprintf(text, listed(devices[text]))
	}
	if len(why) == 0 {
		why = append(why, "no run has all of them")
	}
	heavier := ""
	if x.Load < s.clients.Load {
		heavier = "; a client weighs more beside less traffic"
	}
	return fmt.Sprintf("; judged at %s in total, not at the study's %s, where %s%s", mbps(x.Load), mbps(s.clients.Load), listed(why), heavier)
}

// lack says of a router, whose name is left out, why it cannot be judged by some
// levels; empty when it can.
func (x experiment) lack(r router, levels []float64) string {
	limited, absent := x.short(r, levels)
	switch {
	case !r.measured():
		return "no run has %s"
	case len(limited) == len(x.Levels):
		return "%s could not carry the load with any number of clients"
	case len(limited) > 0:
		return "%s could not carry the load " + x.by() + " " + listed(limited)
	case len(absent) > 0:
		return "%s was not measured " + x.by() + " " + listed(absent)
	}
	return ""
}

// short are the levels of those given at which a router could not carry the load,
// and those at which it was not measured.
func (x experiment) short(r router, levels []float64) (limited, absent []string) {
	for _, at := range levels {
		l, ok := r.levels[at]
		switch {
		case !ok:
			absent = append(absent, x.at(at))
		case l.atLimit():
			limited = append(limited, x.at(at))
		}
	}
	return limited, absent
}

// lightLoad is a load that devices can carry which are at their limit: some 60 %
// of the least they did with any number of clients, in whole hundreds of Mbit/s; 0
// where that is none.
func (x experiment) lightLoad(devices ...router) float64 {
	least := x.Load
	limited := false
	for _, r := range devices {
		for _, l := range r.levels {
			limited = limited || l.atLimit()
			if link := float64(l.LinkMbps.Mean); link < least {
				least = link
			}
		}
	}
	if x.Along != analysis.AlongClients || !limited {
		return 0
	}
	return 100 * math.Floor(0.6*least/100)
}

// lighter is how to measure a device at such a load; empty where there is none.
func (x experiment) lighter(r router) string {
	load := x.lightLoad(r)
	if load == 0 {
		return ""
	}
	return fmt.Sprintf("`gateweigh run %s --set duts=%s --set offered_mbps=%g` has a load it can carry, for `gateweigh report RUN --with RUN2`; ",
		x.Run, r.DUT, load)
}

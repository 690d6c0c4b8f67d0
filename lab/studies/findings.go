package studies

import (
	"fmt"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/words"
)

// subject is the device or the pair for which a claim is judged.
type subject struct {
	id, name string
	pair     Pair
}

// findings lists the findings of each claim, then one for each device of the study that no run measured.
func (b studyInRuns) findings() []analysis.Finding {
	out := []analysis.Finding{}
	if len(b.missingSweeps(b.Sweeps)) == len(b.Sweeps) {
		return out
	}
	for _, c := range b.Claims {
		n := len(out)
		for _, j := range b.judged {
			if j.claim == c.ID {
				out = append(out, j.Finding)
			}
		}
		if len(out) == n {
			out = append(out, b.untested(c))
		}
	}
	for _, sc := range b.Scenarios[1:] {
		if !b.wasMeasured(sc.DUT, b.Sweeps) {
			out = append(out, analysis.Finding{
				Study: b.Number, ID: "not-measured/" + sc.DUT, Claim: fmt.Sprintf("What the study says of %s.", sc.Name),
				Here: sc.DUT + ": not in this run.", Expect: sc.Obtain,
			})
		}
	}
	return out
}

// judge applies a claim's criterion to a subject.
func (b studyInRuns) judge(c Claim, s subject) judgement {
	j := judgement{claim: c.ID, metric: c.Metric, why: c.Why, subject: s}
	for _, sweep := range c.Sweeps {
		j.sweeps = append(j.sweeps, b.sweeps[sweep])
	}
	c.Judge(&j)
	if b.emulated && c.Absolute {
		j.Holds, j.Open, j.Expect = nil, false,
			"Everything takes an emulated CPU longer: only a kernel that has the device itself, without --kernel, can tell."
	}
	if p := s.pair; p.First != "" {
		j.Pair = p.First + " against " + p.Second
	}
	j.Study, j.ID, j.Claim = b.Number, c.ID+"/"+s.id, c.Text
	j.Here = s.name + ": " + j.Here + "." + words.When(j.study != "", " Study: "+j.study+".")
	return j
}

// missingSweeps returns those sweeps that no run has.
func (b studyInRuns) missingSweeps(sweeps []*Sweep) []*Sweep {
	held := func(s *Sweep) bool { return slices.ContainsFunc(b.sweeps[s], repetition.measured) }
	return slices.DeleteFunc(slices.Clone(sweeps), held)
}

// untested returns the finding of a claim without judgements. Runs lack a sweep or devices for it.
func (b studyInRuns) untested(c Claim) analysis.Finding {
	lacking := b.missingSweeps(c.Sweeps)
	if len(lacking) == 0 {
		lacking = c.Sweeps
	}
	var commands []string
	for _, s := range lacking {
		commands = append(commands, s.command())
	}
	return analysis.Finding{Study: b.Number, ID: c.ID, Claim: c.Text, Here: "Not in this run.",
		Expect: words.Listed(slices.Compact(commands)) + " measures it." +
			words.When(len(lacking) < len(c.Sweeps) && c.Sweeps[0].Run != c.Sweeps[1].Run, " "+bothRuns)}
}

// subjects lists the subjects of a claim. For routers, these are the routers measured in any sweep, first the study's
// in its order, then the others by name. For pairs, the devices measured in the claim's sweeps decide.
func (b studyInRuns) subjects(c Claim) []subject {
	var out []subject
	in := c.Sweeps
	if c.Subjects == pairs {
		for _, p := range b.Pairs {
			if p.Claim != "" && p.Claim != c.ID {
				continue
			}
			if p.Study || b.wasMeasured(p.First, in) && b.wasMeasured(p.Second, in) && !b.wasMeasured(p.InPlaceOf, in) {
				out = append(out, subject{p.First + "-" + p.Second, p.First + " and " + p.Second + p.Remark, p})
			}
		}
		return out
	}
	// A device that another sweep has is named as missing.
	measured := func(dut string) bool { return b.wasMeasured(dut, b.Sweeps) }
	if len(in) > 0 && in[0].Free {
		measured = func(dut string) bool {
			return !slices.ContainsFunc(in, func(s *Sweep) bool { return !b.wasMeasured(dut, []*Sweep{s}) })
		}
	}
	var ofStudy, others []string
	for _, sc := range b.Scenarios {
		ofStudy = append(ofStudy, sc.DUT)
	}
	for _, s := range b.Sweeps {
		for _, x := range b.sweeps[s] {
			for _, r := range x.Routers[len(ofStudy):] {
				others = append(others, r.DUT)
			}
		}
	}
	slices.Sort(others)
	for _, dut := range append(ofStudy, slices.Compact(others)...) {
		if c.Only != nil && !slices.Contains(c.Only, dut) {
			continue
		}
		if measured(dut) && (!isRouter(dut, ofStudy[0]) || c.Subjects == routers) {
			out = append(out, subject{id: dut, name: dut})
		}
	}
	return out
}

// wasMeasured reports whether a device was measured in any of the sweeps.
func (b studyInRuns) wasMeasured(dut string, in []*Sweep) bool {
	return slices.ContainsFunc(in, func(s *Sweep) bool { return b.sweeps[s].firstWith(dut).router(dut).measured() })
}

// missing says which experiments fill the tables and figures that the runs cannot fill.
func (b studyInRuns) missing() []string {
	var out []string
	for _, s := range b.Sweeps {
		if !b.sweeps[s].study().measured() && s.Forms != "" {
			out = append(out, fmt.Sprintf("%s of study %d are not in this run: %s measures them.",
				s.Forms, b.Number, s.command()))
		}
	}
	return out
}

// unmeasured sets the finding for a router that was not measured.
func (j *judgement) unmeasured(x repetition, r router) {
	j.Here, j.Expect = "not measured in "+x.Run, x.command("duts="+r.DUT)+" measures it."
}

// uncountedReason says why a router's figures cannot decide a claim about steps: the device did not carry the load, or
// the run has levels within a step. It is empty if neither is true, and then the intervals leave the claim open.
func (x repetition) uncountedReason(r router, steps []levelStep) string {
	var levels []float64
	for _, st := range steps {
		levels = append(levels, st.from, st.to)
	}
	slices.Sort(levels)
	divided := words.ListOf(steps, func(st levelStep) string {
		return words.When(r.hasLevelsWithin(st), fmt.Sprintf("%g and %s", st.from, x.levelText(st.to)))
	})
	if text := x.blocked(r, slices.Compact(levels)...); text != "" || divided == "" {
		return text
	}
	return "The run has levels between " + divided + "; leave them out, or " + x.command("duts="+r.DUT) +
		" has the study's alone."
}

// blocked says why a claim about proportions cannot be judged by the router's figures at the levels. It is empty when
// it can.
func (x repetition) blocked(r router, levels ...float64) string {
	limited, absent := x.limitedAndAbsent(r, levels)
	duts, load := "duts="+r.DUT, x.lightLoad(r)
	lighter := x.command(duts, fmt.Sprintf("%s=%g", x.Held, load)) +
		" has a load it can carry, for `gateweigh report RUN --with RUN2`; "
	switch {
	case len(limited) > 0:
		return "It could not carry the load " + x.atAll(limited...) + notKnown + "; " + words.When(load > 0, lighter) +
			x.command(duts, "mode=solo") +
			" leaves it the routers' CPU alone; where that is not enough, a faster machine is needed."
	case len(absent) > 0:
		return "Not measured " + x.atAll(absent...) + "; " + x.command(duts) + " has these levels."
	}
	return ""
}

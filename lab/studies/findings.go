package studies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"

	"github.com/gateweigh/gateweigh/lab/words"
)

// subject is what a claim is judged for: one device, or a pair.
type subject struct {
	id, name string
	pair     Pair
}

func (b beside) findings() []analysis.Finding {
	out := []analysis.Finding{}
	if !slices.ContainsFunc(b.Sweeps, func(s *Sweep) bool { return b.sweeps[s].measured() }) {
		return out
	}
	for _, c := range b.Claims {
		lacking, subjects := b.lacking(c), b.subjects(c.Of, c.Sweeps)
		switch {
		case len(lacking) == 0 && len(subjects) == 0:
			out = append(out, b.untested(c, c.Sweeps))
		case len(lacking) > 0:
			f := b.untested(c, lacking)
			if len(lacking) < len(c.Sweeps) {
				f.Expect += " " + bothRuns
			}
			out = append(out, f)
		default:
			for _, s := range subjects {
				out = append(out, b.finding(c, s))
			}
		}
	}
	return append(out, b.notMeasured()...)
}

// lacking are the sweeps a claim is judged by that no run holds.
func (b beside) lacking(c Claim) []*Sweep {
	return slices.DeleteFunc(slices.Clone(c.Sweeps), func(s *Sweep) bool { return b.sweeps[s].measured() })
}

// subjects are the routers measured in any sweep, the study's in its order, then
// the others by name; or the pairs by what was measured in the claim's sweeps.
func (b beside) subjects(of subjects, in []*Sweep) []subject {
	var out []subject
	if of == pairs {
		for _, p := range b.Pairs {
			if p.Study || b.has(p.First, in) && b.has(p.Second, in) && !b.has(p.InPlaceOf, in) {
				out = append(out, subject{p.First + "-" + p.Second, p.First + " and " + p.Second + p.Remark, p})
			}
		}
		return out
	}
	known, others := map[string]bool{}, []string{}
	for _, s := range b.Sweeps {
		for _, x := range b.sweeps[s].all() {
			for _, r := range x.Routers {
				if r.measured() && r.Published == "" {
					others = append(others, r.DUT)
				}
				known[r.DUT] = known[r.DUT] || r.measured()
			}
		}
	}
	slices.Sort(others)
	for i, sc := range b.Scenarios {
		if known[sc.DUT] && (i > 0 || of == routers) {
			out = append(out, one(sc.DUT))
		}
	}
	for _, dut := range slices.Compact(others) {
		out = append(out, one(dut))
	}
	return out
}

func one(dut string) subject { return subject{id: dut, name: dut} }

// has reports whether a device was measured in any of some sweeps.
func (b beside) has(dut string, in []*Sweep) bool {
	return slices.ContainsFunc(in, func(s *Sweep) bool { return b.sweeps[s].of(dut).router(dut).measured() })
}

func (b beside) finding(c Claim, s subject) analysis.Finding {
	j := c.Judge(asked{b, c, s})
	here := s.name + ": " + j.here + "."
	if j.study != "" {
		here += " Study: " + j.study + "."
	}
	return analysis.Finding{Study: b.Number, ID: c.ID + "/" + s.id, Claim: c.Text, Here: here, Holds: j.holds, Open: j.open, Expect: j.expect}
}

// untested is the finding of a claim whose sweeps no run holds.
func (b beside) untested(c Claim, lacking []*Sweep) analysis.Finding {
	var commands []string
	for _, s := range lacking {
		commands = append(commands, s.command())
	}
	return analysis.Finding{Study: b.Number, ID: c.ID, Claim: c.Text, Here: "Not in this run.", Expect: strings.Join(commands, " and ") + " measures it."}
}

// notMeasured are the study's devices that no run measured, a finding each.
func (b beside) notMeasured() []analysis.Finding {
	var out []analysis.Finding
	for _, sc := range b.Scenarios[1:] {
		if !b.has(sc.DUT, b.Sweeps) {
			out = append(out, analysis.Finding{
				Study: b.Number, ID: "not-measured/" + sc.DUT, Claim: fmt.Sprintf("What the study says of %s.", sc.Name),
				Here: sc.DUT + ": not in this run.", Expect: sc.Obtain,
			})
		}
	}
	return out
}

// missing says which runs give the tables and figures that these cannot fill.
func (b beside) missing() []string {
	var out []string
	for _, s := range b.Sweeps {
		if !b.sweeps[s].study.measured() {
			out = append(out, fmt.Sprintf("%s of study %d are not in this run: %s measures them.", s.Forms, b.Number, s.command()))
		}
	}
	return out
}

// unmeasured is the judgement on a router that the repetition lacks.
func (x repetition) unmeasured(r router) judgement {
	return judgement{here: "not measured in " + x.Run, expect: x.command("duts="+r.DUT) + " measures it."}
}

// unsettled is for steps that neither bear a claim out nor refute it: figures that
// cannot carry it, steps the run did not take, or intervals that leave it open.
func (j *judgement) unsettled(x repetition, r router, steps []step) {
	var levels []float64
	var divided []string // the run has levels in between
	for _, st := range steps {
		levels = append(levels, st.from, st.to)
		if inc, _ := r.rises[st]; !inc.next {
			divided = append(divided, fmt.Sprintf("%g and %s", st.from, x.at(st.to)))
		}
	}
	slices.Sort(levels)
	if j.expect = x.blocked(r, slices.Compact(levels)...); j.expect != "" {
		return
	}
	if len(divided) > 0 {
		j.expect = fmt.Sprintf("The run has levels between %s; leave them out, or %s has the study's alone.", words.Listed(divided), x.command("duts="+r.DUT))
		return
	}
	j.settle(across, "")
}

// blocked says why the router's figures at the levels cannot carry a claim about
// proportions; empty when they can.
func (x repetition) blocked(r router, levels ...float64) string {
	limited, absent := x.short(r, levels)
	duts, lighter := "duts="+r.DUT, ""
	if load := x.lightLoad(r); load > 0 {
		lighter = x.command(duts, fmt.Sprintf("%s=%g", x.Held, load)) + " has a load it can carry, for `gateweigh report RUN --with RUN2`; "
	}
	switch {
	case len(limited) > 0:
		return "It could not carry the load " + x.atAll(limited) + notKnown + "; " + lighter + x.command(duts, "mode=solo") +
			" leaves it the routers' CPU alone; where that is not enough, a faster machine is needed."
	case len(absent) > 0:
		return "Not measured " + x.atAll(absent) + "; " + x.command(duts) + " has these levels."
	}
	return ""
}

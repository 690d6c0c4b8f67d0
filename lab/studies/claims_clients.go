package studies

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// bandwidthDominates weighs ten times the bandwidth, at 100 clients, against a
// hundred times the clients, at 1 Gbit/s. The claim holds when the lower bound
// of the factor by which the first raises CPU is above the upper bound of that
// of the second, and does not when it is the other way round. Where the device
// cannot carry 1 Gbit/s, the highest level it carries is taken: less than ten
// times the bandwidth can prove the claim, but not disprove it. Nor can clients at
// less than 1 Gbit/s: what each costs by itself then weighs more than in the study.
func bandwidthDominates(s study1, dut string) judgement {
	ends := []float64{s.clients.Levels[0], s.clients.Levels[len(s.clients.Levels)-1]}
	x, carried := s.judgedAt(ends, dut)
	if !carried {
		x = s.clientsOf(dut)
	}
	load, clients := s.load.router(dut), x.router(dut)
	switch {
	case !load.measured():
		return s.load.unmeasured(load)
	case !clients.measured():
		return x.unmeasured(clients)
	}
	j := judgement{study: publishedDominance(s, dut)}
	first, top := s.load.Levels[0], s.load.highestCarried(load)
	j.here = "no factors to compare in runs " + load.Run + " and " + clients.Run
	if top <= first {
		j.expect = s.load.blocked(load, s.load.Levels...)
		return j
	}
	if j.expect = x.blocked(clients, ends...); j.expect != "" {
		return j
	}
	byLoad, byClients := load.factor(first, top), clients.factor(ends[0], ends[1])
	j.here = fmt.Sprintf("%g times the bandwidth takes %s times the CPU (%g to %g Mbit/s; run %s), %g times the clients %s times (%g to %g; run %s); %s%s",
		top/first, bracketed(byLoad), first, top, load.Run, ends[1]/ends[0], bracketed(byClients), ends[0], ends[1], clients.Run,
		blocks(byLoad, byClients), s.elsewhere(x, ends, dut))
	j.figure = fmt.Sprintf("× %s by %g × the bandwidth, × %s by %g × the clients", bracketed(byLoad), top/first, bracketed(byClients), ends[1]/ends[0])
	j.detail = fmt.Sprintf("%s; %g to %g Mbit/s, clients at %s", blocks(byLoad, byClients), first, top, mbps(x.Load))
	full, known := top == s.load.Levels[len(s.load.Levels)-1], byLoad.HasInterval() && byClients.HasInterval()
	switch {
	case known && byLoad.Lo > byClients.Hi:
		j.holds = yes()
	case full && x.Load == s.clients.Load && known && byLoad.Hi < byClients.Lo:
		j.holds = no()
		j.expect = "A gateway that walks a list of clients for each packet costs more with each of them; the study's do not."
	case !full:
		j.expect = s.load.blocked(load, s.load.Levels...)
	case known && byLoad.Hi < byClients.Lo:
		j.expect = fmt.Sprintf("At %s in total a client weighs more beside the traffic than at the study's %s: such a run can prove the claim, and not disprove it.", mbps(x.Load), mbps(s.clients.Load))
	default:
		j.leaveOpen()
	}
	return j
}

// factor is that by which CPU rises between two levels of the study, block by
// block where blocks hold both.
func (r router) factor(from, to float64) analysis.Estimate {
	span, ok := r.rise(from, to)
	if !ok {
		return nothing()
	}
	return ratioOf(span.RelativePct)
}

// highestCarried is the highest level the router carried, 0 when it did not
// carry the lowest or was not measured there.
func (x experiment) highestCarried(r router) float64 {
	highest := 0.0
	for _, at := range x.Levels {
		if r.carries(at) {
			highest = at
		}
	}
	if !r.carries(x.Levels[0]) {
		return 0
	}
	return highest
}

func publishedDominance(s study1, dut string) string {
	byLoad, ok := s.load.publishedSpan(dut)
	byClients, also := s.clients.publishedSpan(dut)
	if !ok || !also {
		return ""
	}
	return fmt.Sprintf("%s and %s times", digits(byLoad), digits(byClients))
}

// publishedSpan is by how much the study's CPU rises from its lowest level to its highest.
func (x experiment) publishedSpan(dut string) (analysis.Number, bool) {
	return x.router(dut).publishedFactor(step{x.Levels[0], x.Levels[len(x.Levels)-1]})
}

// largestStepFirst judges the steps between numbers of clients by their net
// increase. The claim holds when the lower bound of the step from 1 to 10 is
// above 0 and above the upper bounds of the others. It does not when another's
// lower bound is above its upper bound, or when the relative increase from 1 to
// 10 stays below δ, where there is no rise to speak of.
func largestStepFirst(s study1, dut string) judgement {
	x := s.forClients(s.clients.Levels, dut)
	r := x.router(dut)
	if !r.measured() {
		return x.unmeasured(r)
	}
	steps := x.stepsTo(x.Levels[len(x.Levels)-1])
	nets := x.netIncreases(r, steps)
	j := judgement{here: x.describeSteps(r, steps, nets), study: x.publishedSteps(r, steps)}
	j.here += s.elsewhere(x, x.Levels, dut)
	first, _ := r.step(steps[0].from, steps[0].to)
	overtaken, above := false, nets[0].Lo > 0
	for _, net := range nets[1:] {
		overtaken = overtaken || net.Lo > nets[0].Hi
		above = above && nets[0].Lo > net.Hi
	}
	switch {
	case overtaken:
		j.holds, j.expect = no(), perClient
	case nets[0].HasInterval() && float64(first.RelativePct.Hi) <= 100*r.Delta:
		j.holds, j.expect = no(), heldBursts
	case above:
		j.holds = yes()
	default:
		j.unsettled(x, r, steps)
	}
	return j
}

// netIncreases of the steps; absent where a level cannot carry the claim, and
// comparisons with what is absent are false.
func (x experiment) netIncreases(r router, steps []step) []analysis.Estimate {
	var out []analysis.Estimate
	for _, st := range steps {
		net := nothing()
		if inc, ok := r.step(st.from, st.to); ok && x.blocked(r, st.from, st.to) == "" {
			net = inc.NetPct
		}
		out = append(out, net)
	}
	return out
}

func (x experiment) describeSteps(r router, steps []step, nets []analysis.Estimate) string {
	var known []analysis.Estimate
	var figures []string
	for i, st := range steps {
		if net := nets[i]; net.Mean.Known() {
			inc, _ := r.step(st.from, st.to)
			known = append(known, net)
			figures = append(figures, fmt.Sprintf("%s points (%s %%) from %g to %g clients", bracketed(net), bracketed(inc.RelativePct), st.from, st.to))
		}
	}
	if len(known) == 0 {
		return "no step that counts in run " + r.Run
	}
	return fmt.Sprintf("CPU rises by %s%s; %s; run %s", listed(figures), besideClean(x.risesBeside(r, steps)), blocks(known...), r.Run)
}

// risesBeside are the steps that can carry a claim.
func (x experiment) risesBeside(r router, steps []step) []analysis.Span {
	var out []analysis.Span
	for _, st := range steps {
		if inc, ok := r.step(st.from, st.to); ok && x.blocked(r, st.from, st.to) == "" {
			out = append(out, analysis.Span{RelativePct: inc.RelativePct, RatioPct: inc.RatioPct})
		}
	}
	return out
}

// besideClean is by how much the portal's overhead ratio rises. The clean router
// beside it is on the same machine at the same time, so these figures are free of
// the drift that those of CPU alone hold.
func besideClean(spans []analysis.Span) string {
	var figures []string
	for _, span := range spans {
		if span.RatioPct.HasInterval() {
			figures = append(figures, bracketed(span.RatioPct)+" %")
		}
	}
	if len(figures) == 0 {
		return ""
	}
	return fmt.Sprintf("; over the clean router beside it, by %s", listed(figures))
}

// Why clients may cost otherwise here than in the study.
const (
	perClient    = "A gateway with one rule a client, checked in turn, costs more with every client; the study's look clients up in a table."
	machineSpeed = "CPU falls here. The machine's own speed may have changed between blocks; the rise over the clean router beside it leaves that out."
	heldBursts   = "The length of bursts moves a router's CPU by a factor of two. In the study it was free to change with the number of clients; " +
		"the lab holds it, so what is left is the cost of the clients themselves."
)

// publishedSteps are the study's net increases.
func (x experiment) publishedSteps(r router, steps []step) string {
	var parts []string
	largest, first := analysis.Number(0), analysis.Number(0)
	for i, st := range steps {
		from, hasFrom := r.published(st.from)
		to, hasTo := r.published(st.to)
		if !hasFrom || !hasTo {
			return ""
		}
		net := netIncrease(from, to)
		if i == 0 {
			first = net
		}
		largest = max(largest, net)
		parts = append(parts, digits(net))
	}
	if len(parts) == 0 {
		return ""
	}
	text := listed(parts) + " points"
	if largest > first {
		text += ", so that its own table does not show what its text says"
	}
	return text
}

// lastStepNegligible judges the relative increase from 50 to 100 clients: the
// claim holds when its interval lies within δ, and does not when it lies wholly
// outside. The study took no intervals and calls a rise of 2.76 % negligible.
func lastStepNegligible(s study1, dut string) judgement { return s.negligible(dut, step{50, 100}) }

// beyondTenNegligible judges the relative increase from 10 to 100 clients in the
// same way. The study's own figures rise by 5.6, 7.7 and 20.4 %: its text is of
// single steps that become smaller.
func beyondTenNegligible(s study1, dut string) judgement { return s.negligible(dut, step{10, 100}) }

func (s study1) negligible(dut string, st step) judgement {
	ends := []float64{st.from, st.to}
	x := s.forClients(ends, dut)
	r := x.router(dut)
	if !r.measured() {
		return x.unmeasured(r)
	}
	j := judgement{here: fmt.Sprintf("no step from %g to %s that counts in run %s", st.from, x.at(st.to), r.Run)}
	if factor, ok := r.publishedFactor(st); ok {
		j.study = digits(100*(factor-1)) + " %"
	}
	span, ok := r.rise(st.from, st.to)
	if !ok || x.blocked(r, ends...) != "" {
		j.unsettled(x, r, []step{st})
		return j
	}
	j.here = fmt.Sprintf("CPU rises by %s %% from %g to %s%s; %s; run %s%s", bracketed(span.RelativePct), st.from, x.at(st.to),
		besideClean([]analysis.Span{span}), blocks(span.RelativePct), r.Run, s.elsewhere(x, ends, dut))
	j.figure = "CPU rises by " + bracketed(span.RelativePct) + " %"
	if span.RatioPct.HasInterval() {
		j.figure += ", over the clean router's by " + bracketed(span.RatioPct) + " %"
	}
	j.detail = fmt.Sprintf("%s; %g to %s, %s", blocks(span.RelativePct), st.from, x.at(st.to), x.held())
	switch within(ratioOf(span.RelativePct), r.Delta) {
	case inside:
		j.holds = yes()
	case outside:
		j.holds, j.expect = no(), perClient
		if span.RelativePct.Hi < 0 {
			j.expect = machineSpeed
		}
	default:
		j.leaveOpen()
	}
	return j
}

// forClients is where a claim along the clients is judged of a device: where it
// carried the levels, or where it has figures at all.
func (s study1) forClients(levels []float64, dut string) experiment {
	if x, ok := s.judgedAt(levels, dut); ok {
		return x
	}
	return s.clientsOf(dut)
}

// side says where an interval of a ratio lies.
type side int

const (
	across side = iota // on a bound, or without an interval
	inside
	outside
)

// within places an interval of a ratio against [1/(1+tolerance), 1+tolerance].
func within(e analysis.Estimate, tolerance float64) side {
	lo, hi := analysis.Number(1/(1+tolerance)), analysis.Number(1+tolerance)
	switch {
	case !e.HasInterval():
		return across
	case e.Lo >= lo && e.Hi <= hi:
		return inside
	case e.Hi < lo || e.Lo > hi:
		return outside
	}
	return across
}

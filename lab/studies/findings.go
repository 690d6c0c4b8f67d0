package studies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

// claim is one claim of the study that is judged router by router.
type claim struct {
	ID   string
	Text string // in our own words, with its section
	// Load and Clients are the experiments it needs.
	Load, Clients bool
	Portals       bool // judged of portals, not of the clean router
	judge         func(study1, string) judgement
}

// judgement is what the runs say of a claim for one router.
type judgement struct {
	holds  *bool
	here   string // figures with intervals and n, without a full stop
	study  string // the study's figures for the same router; empty when it has none
	expect string // see analysis.Finding
	open   bool   // the intervals let the claim both hold and fail
	// figure and detail are here in short, for a table; empty when there is none.
	// least is the figure of doubles, which is judged at many levels.
	figure, detail string
	least          analysis.Estimate
}

// leaveOpen is for intervals that let the claim both hold and fail.
func (j *judgement) leaveOpen() { j.open, j.expect = true, wide }

// unsettled is for steps that neither bear the claim out nor refute it: figures
// that cannot carry it, steps the run did not take, or intervals that leave it open.
func (j *judgement) unsettled(x experiment, r router, steps []step) {
	if j.expect = x.blocked(r, levelsOf(steps)...); j.expect != "" {
		return
	}
	if j.expect = x.divided(r, steps); j.expect == "" {
		j.leaveOpen()
	}
}

// claims are in the order in which a reader asks.
var claims = []claim{
	{ID: "bandwidth-dominates", Load: true, Clients: true, judge: bandwidthDominates,
		Text: "Bandwidth is the dominant factor for CPU, ahead of the number of clients (5.4.3, 6.1)."},
	{ID: "portals-double-cpu-at-any-bandwidth", Load: true, Portals: true, judge: doublesOverLoad,
		Text: "A captive portal more than doubles CPU at every bandwidth, 100 Mbit/s to 1 Gbit/s (table 5.1, 6.1)."},
	{ID: "portals-double-cpu-with-any-clients", Clients: true, Portals: true, judge: doublesOverClients,
		Text: "A captive portal more than doubles CPU with any number of clients, 1 to 100 (5.4.3)."},
	{ID: "linear-to-800-mbps", Load: true, judge: nearlyLinear,
		Text: "CPU follows bandwidth almost linearly up to 800 Mbit/s (5.3.3, 6.1)."},
	{ID: "more-than-proportional-at-1-gbps", Load: true, judge: moreThanProportional,
		Text: "From 800 Mbit/s to 1 Gbit/s CPU rises by more than in proportion (5.3.3, 6.1)."},
	{ID: "largest-step-1-to-10-clients", Clients: true, judge: largestStepFirst,
		Text: "The largest rise of CPU is from 1 to 10 clients (5.4.3, 6.1)."},
	{ID: "negligible-beyond-10-clients", Clients: true, judge: beyondTenNegligible,
		Text: "Beyond 10 clients the rise of CPU slows down so much that their number hardly matters (after 5.4.3 and 6.1: it slows down considerably)."},
	{ID: "negligible-50-to-100-clients", Clients: true, judge: lastStepNegligible,
		Text: "From 50 to 100 clients CPU hardly rises any more (5.4.3, 6.1)."},
}

func findings(s study1) []analysis.Finding {
	out := []analysis.Finding{}
	if !s.load.measured() && !s.measuredClients() {
		return out
	}
	for _, c := range claims {
		if lacking := c.lacking(s); len(lacking) > 0 {
			f := untested(c.ID, c.Text, lacking)
			if len(lacking) < len(c.needs(s)) {
				f.Expect += " `gateweigh report RUN --with RUN2` takes both runs together."
			}
			out = append(out, f)
			continue
		}
		routers := c.routers(s)
		if len(routers) == 0 {
			out = append(out, untested(c.ID, c.Text, c.needs(s)))
		}
		for _, dut := range routers {
			out = append(out, finding(c.ID+"/"+dut, c.Text, dut, c.judge(s, dut)))
		}
	}
	return append(append(out, convergence(s)...), notMeasured(s)...)
}

// needs are the experiments the claim is judged by.
func (c claim) needs(s study1) []experiment {
	var out []experiment
	if c.Load {
		out = append(out, s.load)
	}
	if c.Clients {
		out = append(out, s.clients)
	}
	return out
}

// lacking are those of them that no run holds.
func (c claim) lacking(s study1) []experiment {
	return slices.DeleteFunc(c.needs(s), func(x experiment) bool {
		return x.measured() || x.Along == analysis.AlongClients && s.measuredClients()
	})
}

// routers are those a claim is judged for: all that were measured in either
// experiment, the study's in its order, then the others by name.
func (c claim) routers(s study1) []string {
	var out, others []string
	for _, x := range append([]experiment{s.load, s.clients}, s.places...) {
		for _, r := range x.Routers {
			if !r.measured() || c.Portals && r.DUT == analysis.Clean {
				continue
			}
			if len(r.Published) > 0 {
				out = append(out, r.DUT)
			} else {
				others = append(others, r.DUT)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return place(a) - place(b) })
	slices.Sort(others)
	return slices.Compact(append(out, others...))
}

// place is that of a device among the study's scenarios.
func place(dut string) int {
	return slices.IndexFunc(scenarios, func(s scenario) bool { return s.DUT == dut })
}

// notMeasured are the study's portals that no run measured, a finding each.
func notMeasured(s study1) []analysis.Finding {
	var out []analysis.Finding
	for i, sc := range scenarios[1:] {
		if s.has(sc.DUT) {
			continue
		}
		expect := "CoovaChilli is measured where its program, chilli, is on PATH: `gateweigh run portal-bandwidth --set duts=coovachilli`."
		if i == 1 {
			expect = "The portal is proprietary. gatewayd stands in for it, handing every packet to user space by NFQUEUE: `gateweigh run portal-bandwidth --set duts=gateway-nfqueue`."
		}
		out = append(out, analysis.Finding{
			Study: 1, ID: "not-measured/" + sc.DUT, Claim: fmt.Sprintf("What the study says of %s.", sc.Name),
			Here: sc.DUT + ": not in this run.", Expect: expect,
		})
	}
	return out
}

func finding(id, text, subject string, j judgement) analysis.Finding {
	here := subject + ": " + j.here + "."
	if j.study != "" {
		here += " Study: " + j.study + "."
	}
	return analysis.Finding{Study: 1, ID: id, Claim: text, Here: here, Holds: j.holds, Open: j.open, Expect: j.expect}
}

// untested is the finding of a claim whose experiment no run holds.
func untested(id, text string, lacking []experiment) analysis.Finding {
	var runs []string
	for _, x := range lacking {
		runs = append(runs, "gateweigh run "+x.Run)
	}
	return analysis.Finding{
		Study: 1, ID: id, Claim: text, Here: "Not in this run.",
		Expect: fmt.Sprintf("`%s` measures it.", strings.Join(runs, "` and `")),
	}
}

func missing(s study1) []string {
	var out []string
	for _, x := range []experiment{s.load, s.clients} {
		if !x.measured() {
			out = append(out, fmt.Sprintf("Tables %s to %s and %s to %s and figures %s and %s of study 1 are not in this run: `gateweigh run %s` measures them.",
				x.Compare, x.Steps[2], x.Sampled[0], x.Sampled[2], x.Figures[0], x.Figures[1], x.Run))
		}
	}
	return out
}

// router finds a device; one that is not there was not measured.
func (x experiment) router(dut string) router {
	if i := slices.IndexFunc(x.Routers, func(r router) bool { return r.DUT == dut }); i >= 0 {
		return x.Routers[i]
	}
	return router{DUT: dut, Name: dut}
}

// unmeasured is the judgement on a router that the experiment lacks.
func (x experiment) unmeasured(r router) judgement {
	return judgement{
		here:   "not measured in " + x.Run,
		expect: fmt.Sprintf("`gateweigh run %s --set duts=%s` measures it.", x.Run, r.DUT),
	}
}

// blocked says why the router's figures at the levels cannot carry a claim about
// proportions; empty when they can.
func (x experiment) blocked(r router, levels ...float64) string {
	limited, absent := x.short(r, levels)
	switch {
	case len(limited) > 0:
		return fmt.Sprintf("It could not carry the load %s %s, and CPU of traffic that was not carried is not known; "+
			"%s`gateweigh run %s --set duts=%s --set mode=solo` leaves it the routers' CPU alone; where that is not enough, a faster machine is needed.",
			x.by(), listed(limited), x.lighter(r), x.Run, r.DUT)
	case len(absent) > 0:
		return fmt.Sprintf("Not measured %s %s; `gateweigh run %s --set duts=%s` has these levels.", x.by(), listed(absent), x.Run, r.DUT)
	}
	return ""
}

// divided says which steps between levels that were measured the run did not take,
// because it has levels in between; empty when it took them all.
func (x experiment) divided(r router, steps []step) string {
	var parts []string
	for _, st := range steps {
		if _, ok := r.step(st.from, st.to); !ok {
			parts = append(parts, fmt.Sprintf("%g and %s", st.from, x.at(st.to)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("The run has levels between %s; leave them out, or `gateweigh run %s --set duts=%s` has the study's alone.",
		listed(parts), x.Run, r.DUT)
}

// wide is what a verdict lacks when an interval lets the claim both hold and fail.
const wide = "The interval leaves it open; more blocks narrow it (`--set blocks=N`)."

// Why figures of the lab may differ from those of the study's machines.
const (
	asLab        = "The lab has veth pairs where the study had NICs: no driver, no interrupts, no line rate."
	cheaperClean = "The clean router here has no NIC driver and no interrupts to pay for, so what a portal adds is weighed against less, " +
		"and ratios come out larger than the study's."
)

func yes() *bool { v := true; return &v }
func no() *bool  { v := false; return &v }

// Tests of findings: whether a claim of a study holds in a run. simulate makes a run from a description and a course
// (measuredCourse), which says how much dearer a bit is in a cell than proportional; bandwidth and clients are such
// runs over loads and over numbers of clients (simulated_test.go).

package studies_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// verdicts of a finding, in words.
const (
	holds     = "holds"
	failsText = "does not hold"
	leftOpen  = "left open"
	untested  = "not tested"
)

func verdictOf(f analysis.Finding) string {
	switch {
	case f.Open:
		return leftOpen
	case f.Holds == nil:
		return untested
	case *f.Holds:
		return holds
	}
	return failsText
}

// expectedFinding is a run and what must be found in it.
type expectedFinding struct {
	name string
	runs []analysis.Summary
	id   string
	want string
	here string // must be in Here
	// expect must be in Expect, which must be there unless the claim holds and
	// expect is empty.
	expect string
}

func checkJudged(t *testing.T, cases []expectedFinding) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			f := findingByID(t, study1Outcome(tt.runs...).Findings, tt.id)
			if verdictOf(f) != tt.want {
				t.Errorf("%s, want %s: %s", verdictOf(f), tt.want, f.Here)
			}
			if !strings.Contains(f.Here, tt.here) {
				t.Errorf("here %q does not say %q", f.Here, tt.here)
			}
			if !strings.Contains(f.Expect, tt.expect) || (f.Expect == "") != (tt.expect == "" && tt.want == holds) {
				t.Errorf("expect %q, want %q", f.Expect, tt.expect)
			}
			if f.Study != 1 || f.Claim == "" || f.Open && f.Holds != nil {
				t.Errorf("finding %+v", f)
			}
		})
	}
}

func oneSummary(s analysis.Summary) []analysis.Summary { return []analysis.Summary{s} }

// TestClaimsOfDoubledLoad judges the claims that a portal doubles the CPU of a load. Long: a table of runs, each with
// the outcome it must have.
func TestClaimsOfDoubledLoad(t *testing.T) {
	chilli := portal("coovachilli", 5)
	fewBlocks := bandwidthSpec(chilli)
	fewBlocks.Blocks = 1
	threeLevels := bandwidthSpec(chilli)
	threeLevels.Offered = []float64{100, 200, 400}
	saturated := chilli
	saturated.MaxMbps = 500
	const load, many = "portals-double-cpu-at-any-bandwidth/", "portals-double-cpu-with-any-clients/"
	checkJudged(t, []expectedFinding{
		{"dear everywhere", oneSummary(bandwidth(proportional, chilli)), load + "coovachilli", holds,
			"at 1000 Mbit/s; n = 12 blocks; run portal-bandwidth", "larger than the study's"},
		{"as dear as in the study", oneSummary(bandwidth(proportional, portal("coovachilli", 2.3))), load + "coovachilli",
			holds,
			"Study: 2.12, 2.17, 2.24, 2.39 and 2.47.", ""},
		{"at its limit, and dear", oneSummary(bandwidth(proportional, saturated)), load + "coovachilli", holds,
			"at 800 Mbit/s (at its limit)", "no NIC driver"},
		{"cheap everywhere", oneSummary(bandwidth(proportional, portal("opennds", 1.7))), load + "opennds", failsText, "1.7",
			"in the kernel"},
		{"cheap at one level",
			oneSummary(bandwidth(onlyDevice("coovachilli", overLoad(map[float64]float64{100: 1, 200: 1, 400: 1, 800: 1,
				1000: 0.3})), chilli)),
			load + "coovachilli", failsText, "1.5", "veth pairs"},
		{"about two", oneSummary(bandwidth(proportional, portal("opennds", 2))), load + "opennds", leftOpen, "2.0",
			"more blocks"},
		{"one block", oneSummary(simulate("portal-bandwidth", fewBlocks, proportional)), load + "coovachilli", leftOpen,
			"no interval", "more blocks"},
		{"three levels", oneSummary(simulate("portal-bandwidth", threeLevels, proportional)), load + "coovachilli", untested,
			"400 Mbit/s", "Not measured at 800 Mbit/s and 1000 Mbit/s"},
		{"not measured", oneSummary(bandwidth(proportional, portal("opennds", 2.5))), "not-measured/coovachilli", untested,
			"not in this run", "--set duts=coovachilli"},
		{"cannot be had", oneSummary(bandwidth(proportional, chilli)), "not-measured/gateway-nfqueue", untested,
			"not in this run",
			"proprietary"},
		{"in the other experiment only",
			[]analysis.Summary{bandwidth(proportional, portal("opennds", 2.5)), clients(proportional, chilli)},
			load + "coovachilli", untested, "not measured in portal-bandwidth",
			"`gateweigh run portal-bandwidth --set duts=coovachilli`"},
		{"no portal at all", oneSummary(bandwidth(proportional)), "portals-double-cpu-at-any-bandwidth", untested,
			"Not in this run",
			"`gateweigh run portal-bandwidth`"},
		{"no such sweep", oneSummary(clients(proportional, chilli)), "portals-double-cpu-at-any-bandwidth", untested,
			"Not in this run", "`gateweigh run portal-bandwidth`"},
		{"with any clients", oneSummary(clients(proportional, chilli)), many + "coovachilli", holds, "with 1 client,",
			"larger than the study's"},
		{"not with one client",
			oneSummary(clients(onlyDevice("coovachilli", overClients(map[int]float64{1: 0.3, 10: 1, 50: 1, 100: 1})), chilli)),
			many + "coovachilli", failsText, "1.5", ""},
	})
}

func TestLinear(t *testing.T) {
	chilli := portal("coovachilli", 5)
	saturated := chilli
	saturated.MaxMbps = 500
	// CPU as the square root of bandwidth: a bit costs less the more there are.
	root := overLoad(map[float64]float64{100: 1, 200: 0.7071, 400: 0.5, 800: 0.3536, 1000: 0.3162})
	// A constant share of half of what 100 Mbit/s cost bends nothing.
	constant := overLoad(map[float64]float64{100: 1.5, 200: 1.25, 400: 1.125, 800: 1.0625, 1000: 1.05})
	dearer := overLoad(map[float64]float64{100: 1, 200: 1, 400: 1, 800: 1, 1000: 1.2})
	const linear, last = "linear-to-800-mbps/", "more-than-proportional-at-1-gbps/"
	few := bandwidthSpec(chilli)
	few.Blocks, few.Windows, few.AABlocks = 2, 1, 0
	finer := bandwidthSpec(chilli)
	finer.Offered = []float64{100, 200, 300, 400, 800, 900, 1000}
	checkJudged(t, []expectedFinding{
		{"proportional", oneSummary(bandwidth(proportional, chilli)), linear + "clean", holds, "Study: 0.87 and 0.82.", ""},
		{"a constant share", oneSummary(bandwidth(constant, chilli)), linear + "coovachilli", holds, "R²", ""},
		{"square root", oneSummary(bandwidth(root, chilli)), linear + "coovachilli", failsText, "0.7", "each costs less"},
		{"square root of the clean router", oneSummary(bandwidth(root, chilli)), linear + "clean", failsText, "0.7",
			"each costs less"},
		{"at its limit from 800", oneSummary(bandwidth(proportional, saturated)), linear + "coovachilli", untested,
			"from 200 to 400", "could not carry the load at 800 Mbit/s"},
		{"two blocks of one window", oneSummary(simulate("portal-bandwidth", few, proportional)), linear + "coovachilli",
			leftOpen,
			"", "more blocks"},
		{"no such sweep", oneSummary(clients(proportional, chilli)), "linear-to-800-mbps", untested, "",
			"`gateweigh run portal-bandwidth`"},

		{"dearer at the top", oneSummary(bandwidth(dearer, chilli)), last + "coovachilli", holds, "Study: 1.30.", ""},
		{"dearer at the top, clean", oneSummary(bandwidth(dearer, chilli)), last + "clean", holds, "Study: 1.26.", ""},
		{"proportional at the top", oneSummary(bandwidth(proportional, chilli)), last + "coovachilli", failsText, "1.0",
			"line rate"},
		{"cheaper at the top", oneSummary(bandwidth(root, chilli)), last + "coovachilli", failsText, "0.8", "line rate"},
		{"at its limit", oneSummary(bandwidth(dearer, saturated)), last + "coovachilli", untested, "no step",
			"--set mode=solo"},
		{"two blocks of one window, top", oneSummary(simulate("portal-bandwidth", few, proportional)), last + "coovachilli",
			leftOpen, "", "more blocks"},
		{"another device", oneSummary(bandwidth(dearer, portal("mine", 1.1))), last + "mine", holds, "mine: ", ""},
		{"a level between, linear", oneSummary(simulate("portal-bandwidth", finer, proportional)), linear + "coovachilli",
			untested,
			"", "levels between 200 and 400 Mbit/s; leave them out"},
		{"a level between, top", oneSummary(simulate("portal-bandwidth", finer, proportional)), last + "coovachilli",
			untested,
			"no step", "levels between 800 and 1000 Mbit/s; leave them out"},
	})
}

// TestClients judges the claims on how CPU grows with clients. Long: a table of runs, each with the outcome it must
// have.
func TestClients(t *testing.T) {
	chilli, nds := portal("coovachilli", 5), portal("opennds", 2.5)
	saturated := chilli
	saturated.MaxMbps = 500
	asStudy := overClients(map[int]float64{1: 0.68, 10: 0.94, 50: 0.99, 100: 1})
	with75 := overClients(map[int]float64{1: 0.68, 10: 0.94, 50: 0.99, 75: 0.995, 100: 1})
	growing := overClients(map[int]float64{1: 1, 10: 1.1, 50: 1.5, 100: 2})
	few := clientsSpec(chilli)
	few.Blocks, few.Windows, few.AABlocks = 2, 1, 0
	finer := clientsSpec(chilli)
	finer.Clients = []int{1, 10, 50, 75, 100}
	const first, last = "largest-step-1-to-10-clients/", "negligible-50-to-100-clients/"
	const beyond = "negligible-beyond-10-clients/"
	checkJudged(t, []expectedFinding{
		{"as in the study", oneSummary(clients(asStudy, chilli)), first + "coovachilli", holds,
			"Study: 6.82, 1.42 and 0.20 points.",
			""},
		{"as in the study, clean", oneSummary(clients(asStudy, chilli)), first + "clean", holds, "run portal-clients", ""},
		{"one rule a client", oneSummary(clients(onlyDevice("opennds", growing), nds)), first + "opennds", failsText,
			"; over the clean router beside it, by ", "every client"},
		{"free of clients", oneSummary(clients(proportional, chilli)), first + "coovachilli", failsText, "from 1 to 10",
			"bursts"},
		{"two steps alike", oneSummary(clients(overClients(map[int]float64{1: 1, 10: 1.1, 50: 1.2, 100: 1.2}), chilli)),
			first + "coovachilli", leftOpen, "from 1 to 10", "more blocks"},
		{"at its limit", oneSummary(clients(asStudy, saturated)), first + "coovachilli", untested, "no step",
			"could not carry the load with 1 client, 10 clients"},
		{"two blocks of one window", oneSummary(simulate("portal-clients", few, asStudy)), first + "coovachilli", leftOpen,
			"",
			"more blocks"},
		{"the study against itself", oneSummary(clients(asStudy, portal("gateway-nfqueue", 3))), first + "gateway-nfqueue",
			holds,
			"its own table does not show", ""},
		{"no such sweep", oneSummary(bandwidth(proportional, chilli)), "largest-step-1-to-10-clients", untested, "",
			"`gateweigh run portal-clients`"},

		{"as in the study, last", oneSummary(clients(asStudy, chilli)), last + "coovachilli", holds, "Study: 0.89 %.", ""},
		{"one rule a client, last", oneSummary(clients(onlyDevice("opennds", growing), nds)), last + "opennds", failsText,
			"from 50 to 100 clients", "every client"},
		{"at its limit, last", oneSummary(clients(asStudy, saturated)), last + "coovachilli", untested, "",
			"could not carry"},
		{"two blocks of one window, last", oneSummary(simulate("portal-clients", few, asStudy)), last + "coovachilli",
			leftOpen, "",
			"more blocks"},
		{"a level between", oneSummary(simulate("portal-clients", finer, with75)), first + "coovachilli", untested,
			"from 10 to 50 clients", "levels between 50 and 100 clients; leave them out"},
		{"a level between, last", oneSummary(simulate("portal-clients", finer, with75)), last + "coovachilli", holds,
			"from 50 to 100 clients", ""},
		{"beyond 10, as in the study", oneSummary(clients(asStudy, chilli)), beyond + "coovachilli", failsText,
			"from 10 to 100 clients; over the clean router", "every client"},
		{"beyond 10, free of clients", oneSummary(clients(proportional, chilli)), beyond + "coovachilli", holds,
			"Study: 7.66 %.",
			""},
		{"beyond 10, cheaper", oneSummary(clients(overClients(map[int]float64{1: 1, 10: 1, 50: 0.8, 100: 0.7}), chilli)),
			beyond + "coovachilli", failsText, "-", "CPU falls here"},
		{"beyond 10, two blocks", oneSummary(simulate("portal-clients", few, asStudy)), beyond + "coovachilli", leftOpen, "",
			"more blocks"},
		{"beyond 10, at its limit", oneSummary(clients(asStudy, saturated)), beyond + "coovachilli", untested,
			"no step from 10 to 100 clients", "--set offered_mbps=300` has a load it can carry"},
		{"no such sweep, last", oneSummary(bandwidth(proportional, chilli)), "negligible-50-to-100-clients", untested, "",
			"`gateweigh run portal-clients`"},
	})
}

func TestDominance(t *testing.T) {
	chilli, nds := portal("coovachilli", 5), portal("opennds", 2.5)
	saturated := chilli
	saturated.MaxMbps = 500
	load, steady := bandwidth(proportional, chilli, nds), clients(proportional, chilli, nds)
	steep := clients(onlyDevice("opennds", overClients(map[int]float64{1: 0.05, 10: 0.2, 50: 0.5, 100: 1})), chilli, nds)
	even := clients(onlyDevice("opennds", overClients(map[int]float64{1: 0.1, 10: 0.2, 50: 0.5, 100: 1})), chilli, nds)
	limited := bandwidth(proportional, saturated)
	const id = "bandwidth-dominates/"
	checkJudged(t, []expectedFinding{
		{"clean", []analysis.Summary{load, steady}, id + "clean", holds, "Study: 10.1 and 1.47 times.", ""},
		{"a portal", []analysis.Summary{steady, load}, id + "coovachilli", holds, "(1 to 100; run portal-clients)", ""},
		{"up to what it carries", []analysis.Summary{limited, steady}, id + "coovachilli", holds, "4 times the bandwidth",
			""},
		{"clients cost more", []analysis.Summary{load, steep}, id + "opennds", failsText, "100 times the clients",
			"list of clients"},
		{"even", []analysis.Summary{load, even}, id + "opennds", leftOpen, "10 times the bandwidth", "more blocks"},
		{"less than ten times the bandwidth proves no contrary",
			[]analysis.Summary{limited, clients(overClients(map[int]float64{1: 0.05, 10: 0.2, 50: 0.5, 100: 1}), chilli)},
			id + "coovachilli", untested, "100 times the clients", "could not carry"},
		{"at its limit with clients", []analysis.Summary{load, clients(proportional, saturated)}, id + "coovachilli",
			untested, "no factors", "--set mode=solo"},
		{"one sweep", oneSummary(load), "bandwidth-dominates", untested, "",
			"`gateweigh run portal-clients` measures it. `gateweigh report RUN --with RUN2`"},
		{"in one sweep only", []analysis.Summary{load, clients(proportional, chilli)}, id + "opennds", untested,
			"not measured in portal-clients", "--set duts=opennds"},
	})
}

func TestPortalsCompared(t *testing.T) {
	chilli, nfqueue, nds := portal("coovachilli", 5), portal("gateway-nfqueue", 5), portal("opennds", 2.5)
	saturated := chilli
	saturated.MaxMbps = 500
	with := func(c measuredCourse, duts ...analysistest.DUT) []analysis.Summary {
		return oneSummary(clients(c, duts...))
	}
	narrowing := onlyDevice("gateway-nfqueue", overClients(map[int]float64{1: 1.3, 10: 0.9, 50: 1, 100: 1}))
	widening := onlyDevice("gateway-nfqueue", overClients(map[int]float64{1: 1, 10: 1.1, 50: 1.2, 100: 1.3}))
	noisy := clientsSpec(chilli, nfqueue)
	noisy.Blocks, noisy.BlockSD = 3, 0.1
	nearer := clientsSpec(portal("coovachilli", 8), nfqueue)
	nearer.BlockSD = 0.02
	const converge, alike = "portals-converge/", "portals-alike-with-100-clients/"
	const pair, other = "coovachilli-gateway-nfqueue", "coovachilli-opennds"
	checkJudged(t, []expectedFinding{
		{"narrowing", with(narrowing, chilli, nfqueue), converge + pair, holds,
			"Study: × 1.27 with 1 client and × 1.03 with 100 clients.", ""},
		{"widening", with(widening, chilli, nfqueue), converge + pair, failsText, "100 clients", "not the study's"},
		{"narrowing within the noise", oneSummary(simulate("portal-clients", noisy, narrowing)), converge + pair, leftOpen,
			"n = 3 blocks", "more blocks"},
		{"as it was", with(proportional, chilli, nfqueue), converge + pair, failsText, "with 100 clients",
			"the same with 1 client already"},
		{"apart as before", with(proportional, portal("coovachilli", 8), nfqueue), converge + pair, failsText, "× 1.6",
			"paid for each packet"},
		{"nearer, but by less than δ or not",
			oneSummary(simulate("portal-clients", nearer, onlyDevice("coovachilli", overClients(
				map[int]float64{1: 1.05, 10: 1, 50: 1, 100: 1})))), converge + pair, leftOpen, "0.9", "more blocks"},
		{"alike", with(narrowing, chilli, nfqueue), alike + pair, holds, "Study: × 1.03 with 100 clients.", ""},
		{"not alike", with(widening, chilli, nfqueue), alike + pair, failsText, "0.7", "not the study's"},
		{"only one of them", with(proportional, chilli), converge + pair, untested, "gateway-nfqueue not measured",
			"proprietary"},
		{"neither", with(proportional, portal("mine", 1)), alike + pair, untested, "gateway-nfqueue not measured",
			"proprietary"},
		{"one gateway, two mechanisms",
			with(onlyDevice("gateway-nfqueue", overClients(map[int]float64{1: 0.6, 10: 0.8, 50: 0.9,
				100: 0.97})), portal("gateway-tun", 5), nfqueue),
			converge + "gateway-tun-gateway-nfqueue", holds, "one gateway, two mechanisms", ""},
		{"another pair", with(proportional, chilli, nds), alike + other, failsText, "not the study's pair", "in the kernel"},
		{"at its limit", with(proportional, saturated, nds), converge + other, untested, "no factors", "could not carry"},
		{"no such sweep", oneSummary(bandwidth(proportional, chilli)), "portals-converge", untested, "",
			"`gateweigh run portal-clients`"},
	})
}

// TestRunsWithoutSweepsOfTheStudy: a run that holds neither sweep says nothing of the study.
func TestRunsWithoutSweepsOfTheStudy(t *testing.T) {
	quick := bandwidthSpec(portal("coovachilli", 5))
	quick.Clients = []int{20}
	down := bandwidthSpec(portal("coovachilli", 5))
	down.Directions = []string{"down"}
	for name, runs := range map[string][]analysis.Summary{
		"no run": nil, "20 clients": oneSummary(simulate("quick", quick, proportional)),
		"download": oneSummary(simulate("down", down, proportional)),
	} {
		if f := study1Outcome(runs...).Findings; len(f) != 0 || f == nil {
			t.Errorf("%s: findings %v", name, f)
		}
		if tables, figures := study1Outcome(runs...).Tables, study1Outcome(runs...).Figures; len(tables)+len(figures) != 0 {
			t.Errorf("%s: %d tables, %d figures", name, len(tables), len(figures))
		}
		missing := study1Outcome(runs...).Missing
		if len(missing) != 2 || !strings.Contains(missing[0], "Tables 5.1 to 5.4 and A.1 to A.3 and figures 5.5 and A.1") ||
			!strings.Contains(missing[1], "`gateweigh run portal-clients`") {
			t.Errorf("%s: missing %q", name, missing)
		}
	}
}

// TestFindingsAreStable: IDs are unique, findings of a claim stand together, and
// the same runs give the same findings.
func TestFindingsAreStable(t *testing.T) {
	runs := []analysis.Summary{
		bandwidth(proportional, portal("opennds", 2.5), portal("coovachilli", 5)),
		clients(proportional, portal("coovachilli", 5), portal("allowlist", 1)),
	}
	findings := study1Outcome(runs...).Findings
	ids, claims := map[string]bool{}, map[string]bool{}
	for i, f := range findings {
		if ids[f.ID] {
			t.Errorf("two findings %s", f.ID)
		}
		ids[f.ID] = true
		if (i == 0 || findings[i-1].Claim != f.Claim) && claims[f.Claim] {
			t.Errorf("%s stands apart from its claim", f.ID)
		}
		claims[f.Claim] = true
	}
	// Ten claims, and one finding for the portal that cannot be had.
	if len(claims) != 11 || findings[len(findings)-1].ID != "not-measured/gateway-nfqueue" {
		t.Errorf("%d claims, want 11; the last finding is %s", len(claims), findings[len(findings)-1].ID)
	}
	for i, f := range study1Outcome(runs...).Findings {
		if f.Here != findings[i].Here || f.ID != findings[i].ID || f.Expect != findings[i].Expect {
			t.Errorf("%s: another finding from the same runs", f.ID)
		}
	}
}

// TestLabsThatDifferHaveNoPart: the ratio of labs that differ in more than the device judges no
// claim, whichever run completes another.
func TestLabsThatDifferHaveNoPart(t *testing.T) {
	plain := bandwidth(overLoad(map[float64]float64{100: 1, 200: 1, 400: 1, 800: 1, 1000: 1}), portal("opennds", 3))
	sides := bandwidth(overLoad(map[float64]float64{100: 1, 200: 1, 400: 1, 800: 1, 1000: 1}), portal("coovachilli", 3))
	sides.Sides = &result.Sides{Device: "clients of kind persona", Clean: "clients of kind macvlan"}
	if diff := cmp.Diff(study1Outcome(plain).Findings, study1Outcome(plain, sides).Findings); diff != "" {
		t.Errorf("a run with other labs changes the findings:\n%s", diff)
	}
	if out := studies.Beside(sides, plain); out != nil {
		t.Errorf("beside a run with other labs there is %+v", out)
	}
}

// Tests of where in a run a claim is judged. simulate makes a run from a description and a course (measuredCourse),
// which says how much dearer a bit is in a cell than proportional; bandwidth and clients are such runs over loads and
// over numbers of clients (simulated_test.go).

package studies_test

import (
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// runAtOtherLoad is a run over the clients at another load than the study's.
func runAtOtherLoad(offered float64, c measuredCourse, duts ...analysistest.DUT) analysis.Summary {
	spec := clientsSpec(duts...)
	spec.Offered = []float64{offered}
	return simulate("portal-clients", spec, c)
}

// TestWhereClaimsAreJudged: at the study's load where the devices carry it, else at
// the highest load at which they carried every level, in one run. Long: a table of runs, each with the place it is
// judged at.
func TestWhereClaimsAreJudged(t *testing.T) {
	tun, nfqueue := portal("gateway-tun", 5), portal("gateway-nfqueue", 8)
	tun.MaxMbps, nfqueue.MaxMbps = 600, 500
	slow := portal("gateway-nfqueue", 8)
	slow.MaxMbps = 350
	full := clients(proportional, tun, nfqueue)
	narrowing := onlyDevice("gateway-nfqueue", overClients(map[int]float64{1: 1, 10: 0.9, 50: 0.8, 100: 0.7}))
	light := runAtOtherLoad(300, narrowing, tun, nfqueue)
	growing := overClients(map[int]float64{1: 1, 10: 1.5, 50: 1.5, 100: 1.5})
	partial := clientsSpec(tun, nfqueue)
	partial.Clients, partial.Offered = []int{1, 100}, []float64{400}
	both := clientsSpec(tun, nfqueue)
	both.Offered = []float64{300, 1000}
	runs := func(list ...analysis.Summary) []analysis.Summary { return list }
	const converge, alike, own = "portals-converge/", "portals-alike-with-100-clients/", "gateway-tun-gateway-nfqueue"
	const double, first, beyond = "portals-double-cpu-with-any-clients/", "largest-step-1-to-10-clients/",
		"negligible-beyond-10-clients/"
	const limited = "judged at 300 Mbit/s in total, not at the study's 1 Gbit/s, where gateway-tun and gateway-nfqueue " +
		"could not carry the load with 1 client and 100 clients"
	checkJudged(t, []expectedFinding{
		{"no load that both carry", oneSummary(full), converge + own, untested, "no factors that count",
			"--set duts=gateway-tun,gateway-nfqueue --set offered_mbps=300` has a load both can carry"},
		{"a lighter run", runs(full, light), converge + own, holds, limited, ""},
		{"the lighter run first", runs(light, full), converge + own, holds, limited, ""},
		{"the lighter run alone", oneSummary(light), converge + own, holds,
			"where no run has gateway-tun and gateway-nfqueue", ""},
		{"both loads in one run", oneSummary(simulate("portal-clients", both, narrowing)), converge + own, holds, limited,
			""},
		{"the highest they carry", runs(full, light, runAtOtherLoad(400, proportional, tun, nfqueue)), converge + own,
			failsText,
			"judged at 400 Mbit/s in total", "paid for each packet"},
		{"the highest that both carry", runs(full, light, runAtOtherLoad(400, proportional, tun, slow)), converge + own,
			holds,
			"judged at 300 Mbit/s in total", ""},
		{"every level", runs(full, light, simulate("portal-clients", partial, proportional)), converge + own, holds,
			"judged at 300 Mbit/s in total", ""},
		{"a load above the study's", runs(full, light, runAtOtherLoad(2000, proportional, tun, nfqueue)), converge + own,
			holds,
			"judged at 300 Mbit/s in total", ""},
		{"what they carry at the study's load", runs(light, clients(proportional, portal("gateway-tun", 5), portal(
			"gateway-nfqueue", 8))), converge + own, failsText, "run portal-clients (run 2).", "paid for each packet"},
		{"never in one run", runs(clients(proportional, tun), runAtOtherLoad(300, proportional, nfqueue)), converge + own,
			untested,
			"not measured in the same run", "--set duts=gateway-tun,gateway-nfqueue` measures both"},
		{"alike", runs(full, light), alike + own, failsText,
			"where gateway-tun and gateway-nfqueue could not carry the load with 100 clients", "one gateway here"},

		{"steps", runs(full, runAtOtherLoad(300, growing, tun)), first + "gateway-tun", holds,
			"where gateway-tun could not carry the load with any number of clients", ""},
		{"beyond 10", runs(full, runAtOtherLoad(300, growing, tun)), beyond + "gateway-tun", holds,
			"could not carry the load with 10 clients and 100 clients", ""},
		{"the clean router carries it", runs(full, runAtOtherLoad(300, growing, tun)), beyond + "clean", holds,
			"run portal-clients (run 1). Study", ""},
		{"double", runs(full, light), double + "gateway-tun", holds, "judged at 300 Mbit/s", ""},
		{"double, at its limit", oneSummary(full), double + "gateway-tun", holds, "with 1 client (at its limit), ", ""},
		{"bandwidth", runs(full, light, bandwidth(proportional, tun, nfqueue)), "bandwidth-dominates/gateway-tun", holds,
			"judged at 300 Mbit/s", ""},
	})
}

// TestTablesStayAtTheStudysLoad: a run at another load fills none of the study's
// tables and figures.
func TestTablesStayAtTheStudysLoad(t *testing.T) {
	light := runAtOtherLoad(300, proportional, portal("coovachilli", 5))
	if tables, figures := study1Outcome(light).Tables, study1Outcome(light).Figures; len(tables)+len(figures) != 0 {
		t.Errorf("%d tables, %d figures", len(tables), len(figures))
	}
	full := clients(proportional, portal("coovachilli", 5))
	checkNear(t, "of the study's load",
		tableValue(t, table(t, study1Outcome(light, full).Tables, "table-5.5"), 10, "CPU Chilli").Here.Mean,
		5*8/1.046, 1.5)
}

func TestQuestions(t *testing.T) {
	tun, nfqueue, ebpf := portal("gateway-tun", 5), portal("gateway-nfqueue", 8), portal("gateway-ebpf", 0.8)
	tun.MaxMbps, nfqueue.MaxMbps = 600, 500
	a := questions(
		clients(proportional, tun, nfqueue, ebpf, portal("another", 3)), runAtOtherLoad(300, proportional, tun, nfqueue),
		bandwidth(proportional, tun, ebpf))
	var rows []string
	words := map[string]string{}
	for _, row := range a.Rows {
		rows = append(rows, row.DUT)
		var out []string
		for _, answer := range row.Answers {
			word := "-"
			if answer.Asked {
				word = verdictOf(analysis.Finding{Holds: answer.Holds, Open: answer.Open})
				if (word == untested) != (answer.Figure == "") || answer.Finding == "" ||
					answer.Figure != "" && !strings.Contains(answer.Detail, "blocks") {
					t.Errorf("%s: %+v", row.DUT, answer)
				}
			}
			out = append(out, word)
		}
		words[row.DUT] = strings.Join(out, ", ")
	}
	if got := strings.Join(rows, " "); got != "gateway-tun gateway-nfqueue gateway-ebpf another" || len(a.Questions) != 4 {
		t.Errorf("rows %q, questions %q", got, a.Questions)
	}
	for dut, want := range map[string]string{
		"gateway-tun":     "holds, holds, holds, does not hold",
		"gateway-nfqueue": "holds, not tested, holds, does not hold",
		"gateway-ebpf":    "does not hold, holds, holds, -",
		"another":         "holds, not tested, holds, -",
	} {
		if words[dut] != want {
			t.Errorf("%s: %s, want %s", dut, words[dut], want)
		}
	}
	answers := a.Rows[0].Answers
	for i, want := range []string{"least × ", "by 4 × the bandwidth", "CPU rises by ", "factor between them × "} {
		if !strings.Contains(answers[i].Figure, want) {
			t.Errorf("%s: %q does not say %q", a.Questions[i], answers[i].Figure, want)
		}
	}
	if d := a.Rows[1].Answers[0].Detail; !strings.Contains(d, "over bandwidth not tested") {
		t.Errorf("double of one sweep alone: %q", d)
	}
	if d := answers[3].Detail; !strings.Contains(
		d, "n = 12 blocks; gateway-tun over gateway-nfqueue; 1 and 100 clients, 300 Mbit/s") {
		t.Errorf("detail %q", d)
	}
}

// TestQuestionsNotTested: without its experiment a question is not tested.
func TestQuestionsNotTested(t *testing.T) {
	if rows := questions().Rows; len(rows) != 0 {
		t.Errorf("answers without a run: %+v", rows)
	}
	a := questions(bandwidth(proportional, portal("gateway-tun", 5), portal("opennds", 2.5)))
	if len(a.Rows) != 2 {
		t.Fatalf("%d rows", len(a.Rows))
	}
	for _, row := range a.Rows {
		for i, answer := range row.Answers {
			// TUN and NFQUEUE do not concern openNDS, and only double CPU needs no clients.
			asked := i < 3 || row.DUT == "gateway-tun"
			if tested := answer.Holds != nil; tested != (i == 0) || answer.Asked != asked || asked != (answer.Finding != "") {
				t.Errorf("%s %s %+v", row.DUT, a.Questions[i], answer)
			}
		}
	}
	if d := a.Rows[0].Answers[0].Detail; !strings.Contains(d, "over clients not tested") {
		t.Errorf("double of bandwidth alone: %q", d)
	}
}

func questions(runs ...analysis.Summary) studies.Answers { return study1Outcome(runs...).Answers }

package studies

import (
	"math"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestCriteriaOnTheStudyItself gives the study's own figures, as if they had
// been measured without any noise, to the criteria its claims are judged by.
// They must find what the study finds, but for the one sentence that its own
// table 5.8 contradicts.
func TestCriteriaOnTheStudyItself(t *testing.T) {
	var runs []analysis.Summary
	for _, d := range designs {
		runs = append(runs, d.asMeasured())
	}
	// Nor do its tables have what its text says of the clients beyond 10 together: it
	// goes from step to step.
	contradicted := []string{
		"largest-step-1-to-10-clients/gateway-nfqueue", "negligible-beyond-10-clients/clean",
		"negligible-beyond-10-clients/coovachilli", "negligible-beyond-10-clients/gateway-nfqueue",
	}
	judged := 0
	for _, f := range Findings(runs...) {
		if f.Holds == nil {
			t.Errorf("%s is not tested: %s %s", f.ID, f.Here, f.Expect)
			continue
		}
		judged++
		if want := !slices.Contains(contradicted, f.ID); *f.Holds != want {
			t.Errorf("%s: holds %v, want %v: %s", f.ID, *f.Holds, want, f.Here)
		}
	}
	// Two claims on portals and six on all routers, and two on the pair.
	if want := 2*2 + 6*3 + 2; judged != want {
		t.Errorf("%d findings, want %d", judged, want)
	}
}

// asMeasured is the summary of a run that measured just what the study prints.
func (d design) asMeasured() analysis.Summary {
	s := analysis.Summary{Experiment: d.Run, Mode: result.ModeDuet, Delta: 0.05}
	published := readPublished(d.File)
	for _, sc := range scenarios {
		sweep := analysis.Sweep{
			DUT: sc.DUT, Along: d.Along, Clients: d.Clients, OfferedMbps: analysis.Number(d.Load), Direction: upload, Profile: perPacket,
		}
		rows := published.Rows[sc.Published]
		for i, row := range rows {
			sweep.Levels = append(sweep.Levels, analysis.Level{
				Level: analysis.Number(row.Level), LinkMbps: sharp(row.LinkMbps),
				CPUSampled: sharp(row.CPUSampled), CPUNormalised: sharp(row.CPUNormalised),
			})
			if i > 0 {
				factor := row.CPUNormalised / rows[i-1].CPUNormalised
				sweep.Increments = append(sweep.Increments, analysis.Increment{
					From: analysis.Number(rows[i-1].Level), To: analysis.Number(row.Level),
					NetPct: sharp(row.CPUNormalised - rows[i-1].CPUNormalised), RelativePct: sharp(100 * (factor - 1)),
					Proportion: sharp(factor / (row.Level / rows[i-1].Level)),
				})
			}
			for j := range max(i-1, 0) {
				sweep.Spans = append(sweep.Spans, analysis.Span{From: analysis.Number(rows[j].Level), To: analysis.Number(row.Level),
					RelativePct: sharp(100 * (row.CPUNormalised/rows[j].CPUNormalised - 1))})
			}
			cell := analysis.Cell{
				DUT: sc.DUT, Clients: d.Clients, OfferedMbps: analysis.Number(row.Level), Direction: upload, Profile: perPacket,
				OverheadRatio: sharp(row.CPUNormalised / published.Rows["clean"][i].CPUNormalised),
			}
			if d.Along == analysis.AlongClients {
				cell.Clients, cell.OfferedMbps = int(row.Level), analysis.Number(d.Load)
			}
			if sc.DUT != analysis.Clean {
				s.Cells = append(s.Cells, cell)
			}
		}
		s.Sweeps = append(s.Sweeps, sweep)
	}
	if d.Along == analysis.AlongClients {
		s.Quotients = append(s.Quotients, d.quotient(published.Rows[scenarios[1].Published], published.Rows[scenarios[2].Published]))
	}
	return s
}

// quotient is that of the study's two portals.
func (d design) quotient(a, b []publishedRow) analysis.Quotient {
	q := analysis.Quotient{DUT: scenarios[1].DUT, Over: scenarios[2].DUT, OfferedMbps: analysis.Number(d.Load), Direction: upload, Profile: perPacket}
	first := math.Abs(math.Log(a[0].CPUNormalised / b[0].CPUNormalised))
	for i := range a {
		log := math.Log(a[i].CPUNormalised / b[i].CPUNormalised)
		q.Levels = append(q.Levels, analysis.QuotientLevel{Clients: int(a[i].Level), Ratio: sharp(math.Exp(log)), Widening: sharp(math.Exp(math.Abs(log) - first))})
	}
	return q
}

// sharp is an estimate without noise.
func sharp(v float64) analysis.Estimate {
	n := analysis.Number(v)
	return analysis.Estimate{Mean: n, Lo: n, Hi: n, N: 6}
}

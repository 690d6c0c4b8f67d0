package studies

import (
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
	const contradicted = "largest-step-1-to-10-clients/gateway-nfqueue"
	judged := 0
	for _, f := range Findings(runs...) {
		if f.Holds == nil {
			t.Errorf("%s is not tested: %s %s", f.ID, f.Here, f.Expect)
			continue
		}
		judged++
		if want := f.ID != contradicted; *f.Holds != want {
			t.Errorf("%s: holds %v, want %v: %s", f.ID, *f.Holds, want, f.Here)
		}
	}
	// Two claims on portals and five on all routers, and two on the pair.
	if want := 2*2 + 5*3 + 2; judged != want {
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
	return s
}

// sharp is an estimate without noise.
func sharp(v float64) analysis.Estimate {
	n := analysis.Number(v)
	return analysis.Estimate{Mean: n, Lo: n, Hi: n, N: 6}
}

// Tests of study 4, of tunnels. simulate makes a run from a description and a course (measuredCourse), which says how
// much dearer a bit is in a cell than proportional; bandwidth and clients are such runs over loads and over numbers of
// clients (simulated_test.go).

package studies_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/measure/rate"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// tunnelLoads are those of figures 8 to 11.
func tunnelLoads() (list []float64) {
	for mbps := 5.; mbps <= 90; mbps += 5 {
		list = append(list, mbps)
	}
	return append(list, 200, 400)
}

// tunnels is a run of gateways whose CPU is 0.3 % of a core and a slope, % of a core per Gbit/s: where the flow enters,
// and where it leaves. The direct path's is 12. Beyond the study's loads the gateways take half as much.
func tunnels(blocks int, slopes map[string][2]float64) analysis.Summary {
	spec := analysistest.Spec{Seed: 4, Clients: []int{1}, Offered: tunnelLoads(), Blocks: blocks, Windows: 1, AABlocks: 1,
		BlockSD: 0.01, WindowSD: 0.01, MachineSD: 0.01}
	for _, dut := range []string{"ipip", "openvpn-none", "openvpn-blowfish"} {
		spec.DUTs = append(spec.DUTs, portal(dut, 2))
	}
	run := analysistest.Run(spec)
	run.Environment.Experiment = "tunnel-cpu"
	rng := rand.New(rand.NewPCG(4, 4))
	for i := range run.Trials {
		t := &run.Trials[i]
		set := func(m *cost.Measurement, slope [2]float64) {
			m.Metrics = map[string]float64{}
			for n, name := range []string{cost.EnterNs, cost.LeaveNs} {
				m.Metrics[name] = 1e7 * m.Seconds * (0.3 + slope[n]*m.DeliveredMbps/1000) * (1 + 0.01*rng.NormFloat64())
				if m.DeliveredMbps > 100 {
					m.Metrics[name] /= 2
				}
			}
		}
		direct := [2]float64{12, 12}
		set(&cost.SidesOf(*t).Clean, direct)
		if set(&cost.SidesOf(*t).DUT, direct); !t.AA {
			set(&cost.SidesOf(*t).DUT, slopes[t.Cell.Text(result.DUT)])
		}
	}
	return measure.Summarise(run, analysis.Options{})
}

func study4(t *testing.T, s analysis.Summary) studies.Outcome {
	t.Helper()
	for _, o := range studies.Beside(s) {
		if o.Study == 4 {
			return o
		}
	}
	t.Fatal("no study 4")
	return studies.Outcome{}
}

// TestSlopesOfTunnels: each claim on CPU follows from the slopes, those of the study's own gateways among them.
func TestSlopesOfTunnels(t *testing.T) {
	for _, c := range []struct {
		what                      string
		ipip, openvpn, blowfish   [2]float64
		far, little, enter, leave bool
	}{
		{"as the study has it", [2]float64{13, 13}, [2]float64{60, 60}, [2]float64{60 * 1.45, 60 * 1.24}, true, true, true,
			true},
		{"dear encryption, cheap OpenVPN", [2]float64{20, 20}, [2]float64{30, 30}, [2]float64{120, 120}, false, false, false,
			false},
	} {
		o := study4(t, tunnels(
			4, map[string][2]float64{"ipip": c.ipip, "openvpn-none": c.openvpn, "openvpn-blowfish": c.blowfish}))
		for id, want := range map[string]bool{
			"cpu-linear-entering/clean": true, "cpu-linear-leaving/openvpn-none": true, "cpu-linear-entering/ipip": true,
			"openvpn-far-above-ipsec/openvpn-none-ipip": c.far, "ipsec-slightly-above-direct/ipip-clean": c.little,
			"encryption-entering/openvpn-blowfish-openvpn-none": c.enter,
			"encryption-leaving/openvpn-blowfish-openvpn-none":  c.leave,
		} {
			if f := findingByID(t, o.Findings, id); f.Holds == nil || *f.Holds != want {
				t.Errorf("%s: %s does not come to %v: %s %s", c.what, id, want, f.Here, f.Expect)
			}
		}
		if len(o.Figures) != 4 || len(o.Figures[0].Panels[0].Series) != 4 || len(o.Figures[2].Panels[0].Series) != 2 {
			t.Errorf("%s: %d figures", c.what, len(o.Figures))
		}
	}
}

// TestOneBlockHasNoInterval: without an interval nothing is judged of a tunnel. The direct path stands beside each, so
// it has one.
func TestOneBlockHasNoInterval(t *testing.T) {
	o := study4(t, tunnels(
		1, map[string][2]float64{"ipip": {13, 13}, "openvpn-none": {60, 60}, "openvpn-blowfish": {60 * 1.45, 60 * 1.24}}))
	open := 0
	for _, f := range o.Findings {
		if f.Holds != nil && !strings.HasSuffix(f.ID, "/clean") {
			t.Errorf("%s comes to %v: %s", f.ID, *f.Holds, f.Here)
		}
		if f.Open {
			open++
		}
	}
	if open < 7 {
		t.Errorf("%d findings are left open: %+v", open, o.Findings)
	}
}

// TestRatesOfTunnels: the table has the study's rates beside the run's, at 100 Mbit/s alone.
func TestRatesOfTunnels(t *testing.T) {
	run := result.Run{
		Environment: result.Environment{Measure: rate.Name, Experiment: "tunnel-rate", Mode: result.ModeSolo}}
	for block := range 3 {
		for dut, mbps := range map[string]float64{"clean": 95.5, "openvpn-none": 93.1, "openvpn-blowfish": 60} {
			for _, link := range []float64{0, 100, 1000} {
				r := &rate.Trial{Head: result.Head{Block: block, Accepted: true}, Cell: result.NewCell(result.DUT, dut,
					result.Clients, 1, result.Direction, result.Up,
					result.Profile, result.PerPacket, result.LinkMbps, link), LoadSeconds: 1, LinkSeconds: 1, LinkMbps: link,
					TheoryShare: 0.956, LimitedBy: rate.ByLink}
				carries := mbps
				if link == 1000 {
					carries = 200 // whatever the path
				}
				r.DeliveredBytes = int64((carries + 0.01*float64(block)) * 1e6 / 8)
				run.MeasureRecords = append(run.MeasureRecords, result.Entry{Head: r.Head, Cell: r.Cell, Record: r})
			}
		}
	}
	o := study4(t, measure.Summarise(run, analysis.Options{}))
	if len(o.Tables) != 1 || len(o.Tables[0].Rows) != 4 {
		t.Fatalf("%+v", o.Tables)
	}
	for _, row := range o.Tables[0].Rows {
		theory, measured := row.Values[0], row.Values[1]
		if row.Name == "clean" && (theory.Published != 96.18 || measured.Published != 94.1 || !(theory.Here.Mean > 95.59 &&
			theory.Here.Mean < 95.61) || measured.Here.Mean < 95.4) {
			t.Errorf("%+v", row)
		}
	}
	for id, want := range map[string]bool{"rates-close/openvpn-none": true, "rates-close/openvpn-blowfish": false} {
		if f := findingByID(t, o.Findings, id); f.Holds == nil || *f.Holds != want {
			t.Errorf("%s does not come to %v: %s %s", id, want, f.Here, f.Expect)
		}
	}
}

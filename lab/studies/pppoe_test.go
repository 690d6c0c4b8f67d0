// Tests of the study of PPPoE. simulate makes a run from a description and a course (measuredCourse), which says how
// much dearer a bit is in a cell than proportional; bandwidth and clients are such runs over loads and over numbers of
// clients (simulated_test.go).

package studies_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/transfer"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/studies"
)

// concentrators are routers by the CPU that a byte takes them, ns, on a whole CPU.
type concentrators map[string]float64

// asStudied has a user mode that a tenth of a CPU is too slow for.
var asStudied = concentrators{"clean": 3, "rp-pppoe-kernel": 3.5, "rp-pppoe-user": 20, "gateway-pppoe-ebpf": 2.8}

const linkKBps = 12380.

// transfers simulates a run of four clients on links of 100 Mbit/s.
func transfers(devices concentrators, speeds []float64, blocks int) analysis.Summary {
	rng := rand.New(rand.NewPCG(3, 7))
	run := result.Run{Environment: result.Environment{Experiment: "pppoe-servers", Measure: transfer.Name}}
	for _, dut := range []string{"clean", "gateway-pppoe-ebpf", "rp-pppoe-kernel", "rp-pppoe-user"} {
		ns, found := devices[dut]
		for _, speed := range speeds {
			for block := range blocks {
				rate := min(linkKBps, 1e6*speed/ns) * (1 + 0.0004*rng.NormFloat64())
				t := &transfer.Transfer{
					DUT: dut, Clients: 4, RouterSpeed: speed, Figures: transfer.Figures{MaxKBps: rate, MaxCore: rate * ns / 1e6}}
				t.Block, t.Accepted = block, true
				if speed < 1 {
					t.Share = speed
				}
				for i := range 3 {
					t.Samples = append(t.Samples, transfer.Sample{LinksMs: 1000 * float64(i), CPUMs: 1000 * float64(i), Bytes: int64(
						1000 * rate * float64(i))})
				}
				if found {
					run.MeasureRecords = append(run.MeasureRecords, result.Entry{Head: t.Head, Cell: t.Cell(), Record: t})
				}
			}
		}
	}
	return measure.Summarise(run, analysis.Options{})
}

// identRun simulates the cost of ident beside PPPoE clients, whose clean router has others.
func identRun(masquerade float64) analysis.Summary {
	run := analysistest.Run(analysistest.Spec{
		Seed: 4, Clients: []int{4}, Offered: []float64{100}, Directions: []string{result.Down}, Blocks: 8, Windows: 4,
		AABlocks: 2, BlockSD: 0.01, WindowSD: 0.02, MachineSD: 0.03,
		DUTs: []analysistest.DUT{
			portal("gateway-pppoe-ebpf", 1.1), portal("gateway-pppoe-ident-nat", 1.12),
			portal("gateway-pppoe-masquerade", 1.12*masquerade), portal("gateway-pppoe-ident-masquerade", 1.13*masquerade),
		},
	})
	run.Environment.Experiment = "ident"
	run.Environment.Sides = &result.Sides{Device: "clients of kind pppoe", Clean: "clients of kind persona", OfClean: true}
	return measure.Summarise(run, analysis.Options{})
}

// TestPPPoEStudy compares what is said of simulated runs with what was said before: of three slow routers, of one fast
// one, of ident, and of both runs together.
func TestPPPoEStudy(t *testing.T) {
	three := []float64{0.43, 0.24, 0.1}
	for name, runs := range map[string][]analysis.Summary{
		"pppoe-servers": {transfers(asStudied, three, 3)},
		"pppoe-fast":    {transfers(concentrators{"clean": 3, "rp-pppoe-kernel": 30, "rp-pppoe-user": 40}, []float64{1}, 3)},
		"pppoe-ident":   {identRun(1.1)},
		"pppoe-both":    {transfers(asStudied, three, 3), identRun(1.9)},
	} {
		o := studies.Beside(runs...)
		goldentest.Compare(t, "testdata/"+name+".txt",
			said(o[slices.IndexFunc(o, func(o studies.Outcome) bool { return o.Study == 3 })]))
	}
}

// TestStudyOfPPPoEAlone: labs of a pair that differ in their clients are no other study's.
func TestStudyOfPPPoEAlone(t *testing.T) {
	var numbers []int
	for _, o := range studies.Beside(identRun(1.1)) {
		numbers = append(numbers, o.Study)
	}
	if !slices.Equal(numbers, []int{3}) {
		t.Errorf("a run whose clean router has other clients is held against the studies %v", numbers)
	}
	other := identRun(1.1)
	other.Sides = &result.Sides{Device: "iperf3", Clean: "streams"}
	if got := studies.Beside(other); len(got) != 0 {
		t.Errorf("labs that differ in their traffic: %+v", got)
	}
	if text := said(studies.Beside(transfers(asStudied, []float64{1}, 3))[2]); !strings.Contains(text, "Figure 4") {
		t.Errorf("a run of one speed has no figure 4:\n%s", text)
	}
}

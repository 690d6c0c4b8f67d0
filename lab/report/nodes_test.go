package report_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/analysis/analysistest"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// A campaign is one run whose blocks are measured on several machines, its nodes.

// campaignRun is a run over three nodes. On the last one, n3, the device's cost is multiplied by factor.
func campaignRun(factor float64) result.Run {
	run := analysistest.Run(analysistest.Spec{
		Seed: 3, DUTs: []analysistest.DUT{{Name: "one", Ratio: 1.5}, {Name: "two", Ratio: 2}}, Clients: []int{10},
		Offered: []float64{50, 100}, Blocks: 24, Windows: 2, AABlocks: 6, BlockSD: 0.02, WindowSD: 0.01,
	})
	for i := range run.Trials {
		t := &run.Trials[i]
		t.Sitting, t.Node = t.Block, fmt.Sprintf("n%d", 1+t.Block%3)
		if t.Node == "n3" && !t.AA {
			*t = analysistest.Changed(*t, func(sides *cost.Sides) {
				sides.DUT.NAPINs = int64(float64(sides.DUT.NAPINs) * factor)
			})
		}
	}
	return run
}

// TestNodes: the blocks of each node are compared with those of the others. Only a node whose device costs more or less
// than at the others disagrees.
func TestNodes(t *testing.T) {
	for _, c := range []struct {
		factor    float64
		disagrees string
	}{{1, ""}, {1.1, "n3"}, {0.9, "n3"}} {
		s := measure.Summarise(campaignRun(c.factor), analysis.Options{})
		if s.Nodes == nil || len(s.Nodes.Nodes) != 3 {
			t.Fatalf("nodes are %+v", s.Nodes)
		}
		warned := strings.Contains(strings.Join(s.Warnings, "\n"), "Node n3 disagrees")
		for _, n := range s.Nodes.Nodes {
			if n.Blocks != 16 {
				t.Errorf("%s has %d blocks, want 8 of each device", n.Name, n.Blocks)
			}
			if n.Name == "n3" && (n.Shift.Lo > analysis.Number(c.factor) || n.Shift.Hi < analysis.Number(c.factor)) {
				t.Errorf("factor %g: n3 over the others is %+v", c.factor, n.Shift)
			}
			if n.Name == "n3" && n.Disagrees != (c.disagrees != "") || warned != (c.disagrees != "") {
				t.Errorf("factor %g: %s disagrees: %v, and the warning stands: %v", c.factor, n.Name, n.Disagrees, warned)
			}
		}
	}
	if s := measure.Summarise(analysistest.Run(analysistest.Spec{
		DUTs: []analysistest.DUT{{Name: "one", Ratio: 1.5}}, Clients: []int{10}, Offered: []float64{50}, Blocks: 4,
		Windows: 1,
	}), analysis.Options{}); s.Nodes != nil {
		t.Errorf("a run of one machine has nodes: %+v", s.Nodes)
	}
}

// TestNodesThatAgreeAreLeftAlone: if all nodes are alike, a node disagrees by chance in about 5 % of the campaigns.
func TestNodesThatAgreeAreLeftAlone(t *testing.T) {
	const campaigns = 200
	random, wrong := rand.New(rand.NewPCG(1, 2)), 0
	for seed := range campaigns {
		run := analysistest.Run(analysistest.Spec{
			Seed: uint64(seed), DUTs: []analysistest.DUT{{Name: "one", Ratio: 1.5}}, Clients: []int{10},
			Offered: []float64{50}, Blocks: 24, Windows: 1, BlockSD: 0.03, WindowSD: 0.01,
		})
		shift := random.IntN(4)
		for i := range run.Trials {
			run.Trials[i].Node = fmt.Sprintf("n%d", (run.Trials[i].Block+shift)%4)
		}
		for _, n := range measure.Summarise(run, analysis.Options{}).Nodes.Nodes {
			if n.Disagrees {
				wrong++
				break
			}
		}
	}
	if wrong > campaigns/10 { // 5 % are expected; twice that has a chance of one in 500
		t.Errorf("%d of %d campaigns have a node that disagrees, want about 5 %%", wrong, campaigns)
	}
}

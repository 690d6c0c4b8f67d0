package analysis

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/analysis/inference"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Nodes says how well the machines (nodes) of a campaign agree. Every ratio compares two routers of one machine. For
// each machine, the differences of its blocks from the means of their cells are compared with those of the other
// machines.
type Nodes struct {
	// Spread is the largest mean of a node divided by the smallest. For a primary metric that is compared by difference,
	// it is the difference of the two. It is absent with fewer than two nodes that have a mean.
	Spread Number      `json:"spread"`
	Nodes  []NodeShift `json:"nodes"` // by name
}

// NodeShift compares a node with all others.
type NodeShift struct {
	Name   string `json:"name"`
	Blocks int    `json:"blocks"` // blocks with an accepted trial, without A/A blocks
	// Shift is the primary metric of the node's blocks divided by that of the other nodes' blocks, or their difference, as
	// in Nodes.Spread. Its interval has a confidence that holds for all nodes together (Bonferroni).
	Shift     Estimate `json:"shift"`
	Disagrees bool     `json:"disagrees"` // the interval excludes a shift of nothing
}

// nodes compares the nodes of a campaign. It returns nil for any other run.
func (input Input) nodes(cells map[result.Cell][]Trial, opts Options) *Nodes {
	shifts, list := map[string]map[blockID][]float64{}, map[string]map[blockID]bool{}
	for _, key := range slices.SortedFunc(maps.Keys(cells), input.inOrder) {
		blocks := input.byBlock(accepted(cells[key]))
		changes := make([]float64, len(blocks))
		for i, b := range blocks {
			changes[i] = math.NaN()
			if input.primary.Name != "" && (input.primary.Per == PerWindow || input.primary.Per == PerPool) {
				changes[i] = input.primary.changes(input.units(input.primary, [][]Trial{b}, nil))[0]
			}
		}
		centre := inference.SampleOf(changes).Mean
		for i, b := range blocks {
			node, id := b[0].Node, input.blockOf(b[0])
			if list[node] == nil {
				list[node], shifts[node] = map[blockID]bool{}, map[blockID][]float64{}
			}
			list[node][id] = true
			if finite := changes[i] - centre; !math.IsNaN(finite) {
				shifts[node][id] = append(shifts[node][id], finite)
			}
		}
	}
	names := slices.Sorted(maps.Keys(list))
	if len(names) == 0 || len(names) == 1 && names[0] == "" {
		return nil
	}
	return input.compared(names, list, shifts, opts)
}

// compared compares each node with the others. A block counts as one value, because the cells of a block are not
// independent.
func (input Input) compared(names []string, list map[string]map[blockID]bool, shifts map[string]map[blockID][]float64,
	opts Options) *Nodes {
	values := map[string][]float64{}
	for _, name := range names {
		for _, cells := range shifts[name] {
			values[name] = append(values[name], mean(cells))
		}
		slices.Sort(values[name]) // the random order of a map would change the last digit
	}
	out := &Nodes{Spread: Absent()}
	least, most := math.Inf(1), math.Inf(-1)
	confidence := 1 - (1-opts.Confidence)/float64(len(names))
	for _, name := range names {
		var others []float64
		for _, other := range names {
			if other != name {
				others = append(others, values[other]...)
			}
		}
		n := NodeShift{Name: words.Or(name, "not named"), Blocks: len(list[name]), Shift: Unknown()}
		if len(values[name]) > 0 && len(others) > 0 {
			n.Shift = input.primary.unscaled(estimateOf(inference.Welch(others, values[name]), confidence))
			none := input.primary.unscaled(Estimate{}).Mean
			n.Disagrees = n.Shift.HasInterval() && (n.Shift.Lo > none || n.Shift.Hi < none)
		}
		if m := mean(values[name]); len(values[name]) > 0 {
			least, most = min(least, m), max(most, m)
		}
		out.Nodes = append(out.Nodes, n)
	}
	if len(names) > 1 && most >= least {
		out.Spread = input.primary.unscaled(Estimate{Mean: Number(most - least)}).Mean
	}
	return out
}

// warnings names the nodes that disagree.
func (n *Nodes) warnings() (out []string) {
	if n == nil {
		return nil
	}
	for _, node := range n.Nodes {
		if node.Disagrees {
			out = append(out, fmt.Sprintf("Node %s disagrees: its blocks are at %.3f [%.3f, %.3f] of the other nodes'.",
				node.Name, node.Shift.Mean, node.Shift.Lo, node.Shift.Hi))
		}
	}
	return out
}

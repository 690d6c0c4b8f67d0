package report

import (
	"fmt"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/words"
)

// nodesGrid compares each machine of a campaign with all others.
func nodesGrid(s analysis.Summary) grid {
	if s.Nodes == nil {
		return grid{}
	}
	g := newGrid("Machines of the campaign: blocks of each over those of all others, at the same cells", "<Node", "Blocks",
		"Over the others'", "<Verdict")
	for _, n := range s.Nodes.Nodes {
		g.add(n.Name, nameCell(n.Name, ""), countCell(n.Blocks), estimateCell(n.Shift, digits3OfRatio),
			textCell(nodeVerdict(n)))
	}
	g.Note = spreadSentence(s)
	return g
}

func nodeVerdict(n analysis.NodeShift) string {
	switch {
	case n.Disagrees:
		return "disagrees"
	case n.Shift.HasInterval():
		return "agrees"
	}
	return "not known"
}

// spreadSentence says how far the machines differ.
func spreadSentence(s analysis.Summary) string {
	if !s.Nodes.Spread.Known() {
		return ""
	}
	return fmt.Sprintf(
		"Spread between nodes: the %s of the highest and the lowest mean is %s. A node disagrees where its "+
			"interval, corrected for the number of nodes, leaves out none.", analysis.MetricNamed(s.Metrics, s.Primary).Against,
		digits3OfRatio(s.Nodes.Spread))
}

// nodeRemarks lists the machines for the terminal.
func nodeRemarks(s analysis.Summary) []string {
	if s.Nodes == nil {
		return nil
	}
	var parts []string
	for _, n := range s.Nodes.Nodes {
		parts = append(parts, fmt.Sprintf("%s %s, × %s %s (%s)", n.Name, words.Counted(n.Blocks, "block"),
			digits3OfRatio(n.Shift.Mean), bounds(n.Shift, digits3OfRatio), nodeVerdict(n)))
	}
	shown, more := bounded(parts, nodesShown)
	line := "Nodes, each over the others: " + words.Listed(shown)
	if more > 0 {
		line += fmt.Sprintf(", and %d more on the page", more)
	}
	return []string{words.Joined(" ", line+".", spreadSentence(s))}
}

// nodesShown is the largest number of machines named in the terminal.
const nodesShown = 8

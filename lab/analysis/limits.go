package analysis

import (
	"cmp"
	"slices"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Limit is a number of clients that a device did not take although it took fewer.
type Limit struct {
	DUT     string `json:"dut"`
	Clients int    `json:"clients"`
	Took    int    `json:"took"` // the most it came through with
	How     string `json:"how"`  // how it broke, from its first such block
}

// limits lists what devices broke at, by device; the fewest clients of each.
func limits(blocks []result.Block) []Limit {
	found, took := map[string]Limit{}, map[string]int{}
	for _, b := range blocks {
		switch known, ok := found[b.DUT]; {
		case b.Broke == "" && b.Error == "":
			took[b.DUT] = max(took[b.DUT], b.Clients)
		case b.Broke != "" && (!ok || b.Clients < known.Clients):
			found[b.DUT] = Limit{DUT: b.DUT, Clients: b.Clients, How: b.Broke}
		}
	}
	out := []Limit{}
	for _, l := range found {
		l.Took = took[l.DUT]
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Limit) int { return cmp.Compare(a.DUT, b.DUT) })
	return out
}

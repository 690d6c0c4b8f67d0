package analysis

import (
	"cmp"
	"math"

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
	out := []Limit{}
	for _, of := range grouped(blocks, func(b result.Block) string { return b.DUT }, cmp.Compare[string]) {
		l := Limit{DUT: of[0].DUT, Clients: math.MaxInt}
		for _, b := range of {
			switch {
			case b.Broke == "" && b.Error == "":
				l.Took = max(l.Took, b.Clients)
			case b.Broke != "" && b.Clients < l.Clients:
				l.Clients, l.How = b.Clients, b.Broke
			}
		}
		if l.How != "" {
			out = append(out, l)
		}
	}
	return out
}

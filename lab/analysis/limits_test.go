package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gateweigh/gateweigh/lab/result"
)

func block(dut string, clients int, change func(*result.Block)) result.Block {
	b := result.Block{DUT: dut, Clients: clients, Direction: result.Up, Profile: result.PerPacket}
	change(&b)
	return b
}

func TestLimitsAreTheFewestClients(t *testing.T) {
	broke := func(how string) func(*result.Block) { return func(b *result.Block) { b.Broke = how } }
	fine, failed := func(*result.Block) {}, func(b *result.Block) { b.Error = "no cable" }
	got := limits([]result.Block{
		block("b", 10, fine), block("b", 1000, broke("later")), block("b", 100, broke("first")), block("b", 50, fine),
		block("a", 10, fine), block("a", 1000, failed),
	})
	if diff := cmp.Diff([]Limit{{DUT: "b", Clients: 100, Took: 50, How: "first"}}, got); diff != "" {
		t.Error(diff)
	}
}

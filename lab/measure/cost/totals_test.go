package cost

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestClientTotalsAreThoseOfTheWorstBlock: statements about many clients at once come from the worst block, so they
// hold for all blocks. Memory a client is that of both labs divided by the clients of both.
func TestClientTotalsAreThoseOfTheWorstBlock(t *testing.T) {
	// block has 1000 clients and as many streams: leased clients have an address, in are logged in, and broken streams
	// ended early. Both labs together use mib MiB.
	block := func(leased, in, broken int, mib float64) result.Block {
		return result.Block{
			DUT: "d", Clients: 1000, Direction: result.Up, Profile: result.PerPacket, Figures: &Stay{
				Addresses: result.FromDevice, CleanAddresses: result.Static, Leased: leased, LoggedIn: in,
				Stretches: []Stretch{{
					OfferedMbps: 100, WarmupSeconds: 6, Memory: Memory{MiB: mib, Clients: 2000},
					Fairness: Fairness{Streams: 1000, Broken: broken}, CleanFairness: Fairness{Streams: 1000},
				}},
			}}
	}
	other, old := block(7, 7, 0, 1), block(0, 0, 0, 1) // of another number of clients; of a run that did not count clients
	other.Clients = 7
	blocks := []result.Block{block(1000, 1000, 0, 30), block(1000, 998, 3, 50), other, old}
	c := cellWith(blocks, "d", 1000, 100)
	if c.Counts[ClientBlocks] != 2 || c.Counts[Leased] != 1000 || c.Counts[LoggedIn] != 998 ||
		c.Counts[Connected] != 997 || c.Counts[CleanConnected] != 1000 {
		t.Errorf("counted %+v", c.Counts)
	}
	if warmup := c.Device("warmup_seconds").Mean; c.Texts[AddressesFrom] != result.FromDevice ||
		c.Texts[CleanAddressFrom] != result.Static || warmup != 6 {
		t.Errorf("addresses %q, warm-up %v", c.Texts, warmup)
	}
	memory := c.Device("memory_kib_per_client")
	if got, want := float64(memory.Mean), 40*1024/2000.0; math.Abs(got-want) > 1e-9 || memory.N != 2 {
		t.Errorf("%v KiB a client from %d blocks, want %v from 2", got, memory.N, want)
	}
	if none := cellWith([]result.Block{old}, "d", 1000, 100); none.Counts[ClientBlocks] != 0 ||
		none.Device("memory_kib_per_client").Mean.Known() {
		t.Errorf("of a run before clients were counted: %+v", none)
	}
	machine := kibPerClient(input{Values: result.ValuesOf(Stretch{Memory: Memory{MiB: -3, Clients: 10}})})
	if !math.IsNaN(machine) {
		t.Errorf("memory that shrank is %v KiB a client", machine)
	}
}

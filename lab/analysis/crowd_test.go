package analysis

import (
	"math"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestCrowdCameAsFarAsItsWorstBlock: what is said of many clients at once is true of
// every block, and memory is that of both labs over the clients of both.
func TestCrowdCameAsFarAsItsWorstBlock(t *testing.T) {
	cell := result.NewCell(result.DUT, "d", result.Clients, 1000, result.OfferedMbps, 100, result.Direction, result.Up, result.Profile, result.Bulk)
	block := func(leased, in, broken int, mib float64) result.Block {
		return result.Block{
			DUT: "d", Clients: 1000, Direction: result.Up, Profile: result.Bulk, Addresses: result.FromDevice, CleanAddresses: result.Static,
			Leased: leased, LoggedIn: in,
			Stretches: []result.Stretch{{
				OfferedMbps: 100, WarmupSeconds: 6, Memory: result.Memory{MiB: mib, Clients: 2000},
				Fairness: result.Fairness{Streams: 1000, Broken: broken}, CleanFairness: result.Fairness{Streams: 1000},
			}},
		}
	}
	other, old := block(7, 7, 0, 1), block(0, 0, 0, 1)
	other.Clients = 7
	blocks := []result.Block{block(1000, 1000, 0, 30), block(1000, 998, 3, 50), other, old}
	c := crowd(cell, blocks, Options{Confidence: 0.95})
	if c.Blocks != 2 || c.Leased != 1000 || c.LoggedIn != 998 || c.Connected != 997 || c.CleanConnected != 1000 {
		t.Errorf("counted %+v", c)
	}
	if c.Addresses != result.FromDevice || c.CleanAddresses != result.Static || c.WarmupSeconds.Mean != 6 {
		t.Errorf("addresses %q, %q, warm-up %v", c.Addresses, c.CleanAddresses, c.WarmupSeconds.Mean)
	}
	if got, want := float64(c.MemoryKiBPerClient.Mean), 40*1024/2000.0; math.Abs(got-want) > 1e-9 || c.MemoryKiBPerClient.N != 2 {
		t.Errorf("%v KiB a client from %d blocks, want %v from 2", got, c.MemoryKiBPerClient.N, want)
	}
	if none := crowd(cell, []result.Block{old}, Options{Confidence: 0.95}); none.Blocks != 0 || none.MemoryKiBPerClient.Mean.Known() {
		t.Errorf("of a run before clients were counted: %+v", none)
	}
	machine := kibPerClient(result.Memory{MiB: -3, Clients: 10})
	if !math.IsNaN(machine) {
		t.Errorf("memory that shrank is %v KiB a client", machine)
	}
}

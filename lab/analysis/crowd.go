package analysis

import (
	"math"

	"github.com/gateweigh/gateweigh/lab/result"
)

// Crowd is how far the clients of a cell came, all at once: of several blocks the one
// that came least far. Zero in cells without a whole block, and of runs before clients
// were counted.
type Crowd struct {
	Blocks         int    `json:"blocks"`
	Addresses      string `json:"addresses"` // where clients have theirs from: constants of package result
	CleanAddresses string `json:"clean_addresses"`
	Leased         int    `json:"leased"`    // clients with an address
	LoggedIn       int    `json:"logged_in"` // 0 where none has to
	// Connected are streams that were open together, from before the warm-up until after
	// the last window; of the lab's own generator, in duet mode.
	Connected      int      `json:"connected"`
	CleanConnected int      `json:"clean_connected"`
	WarmupSeconds  Estimate `json:"warmup_seconds"`
	// MemoryKiBPerClient is what both labs take of the machine's memory over the clients of
	// both: hosts, generators, devices and the kernel's part, whatever does not grow with
	// the clients included.
	MemoryKiBPerClient Estimate `json:"memory_kib_per_client"`
}

// crowd says how far the clients of a cell came.
func crowd(cell result.Cell, blocks []result.Block, opts Options) (c Crowd) {
	var memory, warmups []float64
	for _, b := range blocks {
		if b.AA || b.Leased == 0 || (result.NewCell(result.DUT, b.DUT, result.Clients, b.Clients, result.Direction, b.Direction, result.Profile, b.Profile)) != withoutLoad(cell) {
			continue
		}
		for _, s := range b.Stretches {
			if s.OfferedMbps == cell.Number(result.OfferedMbps) {
				c.add(b, s)
				memory = append(memory, kibPerClient(s.Memory))
				warmups = append(warmups, s.WarmupSeconds)
			}
		}
	}
	c.WarmupSeconds = amounts.estimate(warmups, opts.Confidence)
	c.MemoryKiBPerClient = amounts.estimate(memory, opts.Confidence)
	return c
}

// add takes a block's stretch in.
func (c *Crowd) add(b result.Block, s result.Stretch) {
	far := Crowd{
		Leased: b.Leased, LoggedIn: b.LoggedIn,
		Connected: s.Fairness.Streams - s.Fairness.Broken, CleanConnected: s.CleanFairness.Streams - s.CleanFairness.Broken,
	}
	if c.Blocks > 0 {
		far.Leased, far.LoggedIn = min(far.Leased, c.Leased), min(far.LoggedIn, c.LoggedIn)
		far.Connected, far.CleanConnected = min(far.Connected, c.Connected), min(far.CleanConnected, c.CleanConnected)
	}
	far.Blocks, far.Addresses, far.CleanAddresses = c.Blocks+1, b.Addresses, b.CleanAddresses
	*c = far
}

func kibPerClient(m result.Memory) float64 {
	if m.Clients == 0 || m.MiB <= 0 { // not read, or others gave back more than the labs took
		return math.NaN()
	}
	return m.MiB * 1024 / float64(m.Clients)
}

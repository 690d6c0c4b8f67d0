package cost

import (
	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Counts and texts of how far the clients of a cell came, all at once: of several
// blocks the one that came least far. Cells without a whole block have none.
const (
	ClientBlocks     = "client_blocks"
	Leased           = "leased"    // clients with an address
	LoggedIn         = "logged_in" // 0 where none has to
	Connected        = "connected" // streams open together, from before the warm-up until after the last window
	CleanConnected   = "clean_connected"
	AddressesFrom    = "addresses" // where clients have theirs from: constants of package result
	CleanAddressFrom = "clean_addresses"
)

// addCrowd says how far the clients of a cell came.
func addCrowd(c *analysis.Cell, blocks []result.Block) {
	for _, b := range blocks {
		if b.AA || b.Leased == 0 || b.Cell() != c.Without(result.OfferedMbps) {
			continue
		}
		for _, s := range b.Stretches {
			if s.OfferedMbps != c.Number(result.OfferedMbps) {
				continue
			}
			far := map[string]int{
				Leased: b.Leased, LoggedIn: b.LoggedIn,
				Connected: s.Fairness.Streams - s.Fairness.Broken, CleanConnected: s.CleanFairness.Streams - s.CleanFairness.Broken,
			}
			for name, n := range far {
				if c.Counts[ClientBlocks] > 0 {
					n = min(n, c.Counts[name])
				}
				c.Counts[name] = n
			}
			c.Counts[ClientBlocks]++
			c.Texts[AddressesFrom], c.Texts[CleanAddressFrom] = b.Addresses, b.CleanAddresses
		}
	}
}

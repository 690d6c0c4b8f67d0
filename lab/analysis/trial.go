package analysis

import "github.com/gateweigh/gateweigh/lab/result"

// NormalisedPct is one router's CPU in one window, % of one core, normalised to
// the offered payload by equation 5.1 of study 1. Absent when the link carried nothing.
func NormalisedPct(m result.Measurement, offeredMbps float64) Number {
	return Number(positive(normalisedPct(m, offeredMbps)))
}

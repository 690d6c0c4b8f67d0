package report

import (
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
)

func TestNothingHasNoSign(t *testing.T) {
	for n, want := range map[analysis.Number]string{-0.001: "0.00", 0.004: "0.00", -0.006: "-0.01", 0: "0.00", -1: "-1.00"} {
		if got := bare(n); got != want {
			t.Errorf("%v is printed as %q, want %q", float64(n), got, want)
		}
	}
}

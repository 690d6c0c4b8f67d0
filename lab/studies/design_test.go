package studies

import (
	"slices"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/result"
)

// TestShippedExperimentsRepeatTheStudy: what the findings tell a user to run has
// the study's levels, its conditions and its portal.
func TestShippedExperimentsRepeatTheStudy(t *testing.T) {
	for _, d := range study1.Sweeps {
		e, err := measure.Catalogue().Builtin(d.Run)
		if err != nil {
			t.Fatal(err)
		}
		var clients []float64
		for _, n := range e.Clients {
			clients = append(clients, float64(n))
		}
		levels, fixed := e.OfferedMbps, clients
		if d.Along == result.Clients {
			levels, fixed = clients, e.OfferedMbps
		}
		if !slices.Equal(levels, d.published(study1.Scenarios).Levels) || !slices.Equal(fixed, []float64{d.heldValue()}) {
			t.Errorf("%s goes over %v at %v", d.Run, levels, fixed)
		}
		if !slices.Equal(e.Directions, []string{d.Fixed.Text(result.Direction)}) || !slices.Contains(e.Profiles, d.Prefer) ||
			!slices.Contains(e.DUTs, study1.Scenarios[1].DUT) {
			t.Errorf("%s measures %v, %v, of %v", d.Run, e.Directions, e.Profiles, e.DUTs)
		}
	}
}

// TestSweptDimensionsHaveAxes: a sweep speaks of its dimension by words that the dimension's measure has for it.
func TestSweptDimensionsHaveAxes(t *testing.T) {
	for _, study := range All() {
		for _, s := range study.Sweeps {
			if axisOf(s.Along) == (analysis.Axis{}) {
				t.Errorf("study %d, %s: no measure in swept says how %q is spoken of", study.Number, s.Place, s.Along)
			}
			if held, _ := s.Fixed.Value(s.Held); held.IsNumber && axisOf(s.Held) == (analysis.Axis{}) {
				t.Errorf("study %d, %s: no measure in swept says how %q is spoken of", study.Number, s.Place, s.Held)
			}
		}
	}
}

// TestShippedExperimentsCapture: the experiments on capturing have what the claims of studies 2 and 5 ask for, and
// take no longer than is said.
func TestShippedExperimentsCapture(t *testing.T) {
	for _, st := range []Study{study2, study5} {
		for _, s := range st.Sweeps {
			e, err := measure.Catalogue().Builtin(s.Run)
			if err != nil {
				t.Fatal(err)
			}
			devices := map[string][]float64{}
			for _, b := range e.Plan() {
				for _, c := range b.Cells {
					if ownCell := c.Without(result.OfferedMbps); b.Index == 0 && s.holds(ownCell, s.Held) {
						devices[ownCell.Text(result.DUT)] = append(devices[ownCell.Text(result.DUT)], c.Number(result.OfferedMbps))
					}
				}
			}
			for dut, rates := range devices {
				if slices.Sort(rates); !slices.Equal(rates, e.OfferedMbps) {
					t.Errorf("%s, %s: %s is measured at %v", s.Run, s.Fixed, dut, rates)
				}
			}
			if len(devices) < 2 {
				t.Errorf("%s has no devices with %s", s.Run, s.Fixed)
			}
			if took := e.EstimatedDuration(); took > 20*time.Minute {
				t.Errorf("%s takes %s", s.Run, took)
			}
		}
	}
	gateway, err := measure.Catalogue().Builtin("capture-gateway")
	if err != nil {
		t.Fatal(err)
	}
	for _, mbps := range []float64{1, 6, 20, 100, 200, 500} { // section 4
		if !slices.Contains(gateway.OfferedMbps, mbps) {
			t.Errorf("capture-gateway has no %g Mbit/s", mbps)
		}
	}
}

// TestEveryClaimIsDocumented: each claim says in words when it holds and when it does not.
func TestEveryClaimIsDocumented(t *testing.T) {
	for _, st := range allStudies {
		for _, c := range st.Claims {
			if c.Holds == "" || c.Not == "" {
				t.Errorf("study %d does not say in words how %s is judged", st.Number, c.ID)
			}
		}
	}
}

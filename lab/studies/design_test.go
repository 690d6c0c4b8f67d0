package studies

import (
	"os"
	"slices"
	"strings"
	"testing"

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
		if !slices.Equal(levels, d.published(study1.Scenarios).Levels) || !slices.Equal(fixed, []float64{d.value()}) {
			t.Errorf("%s goes over %v at %v", d.Run, levels, fixed)
		}
		if !slices.Equal(e.Directions, []string{d.At.Text(result.Direction)}) || !slices.Contains(e.Profiles, d.Prefer) || !slices.Contains(e.DUTs, study1.Scenarios[1].DUT) {
			t.Errorf("%s measures %v, %v, of %v", d.Run, e.Directions, e.Profiles, e.DUTs)
		}
	}
}

// TestEveryClaimIsDocumented: the criteria stand in docs/studies.md.
func TestEveryClaimIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/studies.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range study1.Claims {
		if !strings.Contains(string(doc), "| `"+c.ID+"`") {
			t.Errorf("docs/studies.md does not say how %s is judged", c.ID)
		}
	}
}

package studies

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/analysis"
	shipped "github.com/gateweigh/gateweigh/lab/experiment"
)

// TestShippedExperimentsRepeatTheStudy: what the findings tell a user to run has
// the study's levels, its conditions and its portal.
func TestShippedExperimentsRepeatTheStudy(t *testing.T) {
	for _, d := range designs {
		e, err := shipped.Catalogue{}.Builtin(d.Run)
		if err != nil {
			t.Fatal(err)
		}
		var clients []float64
		for _, n := range e.Clients {
			clients = append(clients, float64(n))
		}
		levels, fixed, want := e.OfferedMbps, clients, float64(d.Clients)
		if d.Along == analysis.AlongClients {
			levels, fixed, want = clients, e.OfferedMbps, d.Load
		}
		if !slices.Equal(levels, newExperiment(d, nil).Levels) || !slices.Equal(fixed, []float64{want}) {
			t.Errorf("%s goes over %v at %v", d.Run, levels, fixed)
		}
		if !slices.Equal(e.Directions, []string{upload}) || !slices.Contains(e.Profiles, perPacket) || !slices.Contains(e.DUTs, scenarios[1].DUT) {
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
	ids := []string{"portals-converge", "portals-alike-with-100-clients"}
	for _, c := range claims {
		ids = append(ids, c.ID)
	}
	for _, id := range ids {
		if !strings.Contains(string(doc), "| `"+id+"`") {
			t.Errorf("docs/studies.md does not say how %s is judged", id)
		}
	}
}

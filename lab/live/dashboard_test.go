package live_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/prometheustest"
	"github.com/gateweigh/gateweigh/lab/live"
)

// TestDashboardOfRuns: a real Prometheus that scrapes a folder with a run that goes on has data for each query of the
// dashboard.
func TestDashboardOfRuns(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "finished"), simulated("quick", 1))
	begin(t, filepath.Join(root, "grows"), simulated("quick", 3), 6)
	server := serve(t, live.Config{Dir: root})
	prometheustest.Start(t, strings.TrimPrefix(server.URL, "http://"), func(do func()) { do() }).
		AwaitData(t, "../../monitoring/gateweigh.json")
}

package monitoring

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/internal/goldentest"
)

//go:generate go test -count=1 -run ^TestDashboards$ . -args -update

// TestDashboards: the files are what the code makes.
func TestDashboards(t *testing.T) {
	for path, make := range map[string]func() ([]byte, error){"gatewayd.json": Gatewayd, "gateweigh.json": Gateweigh} {
		text, err := make()
		if err != nil {
			t.Fatal(err)
		}
		goldentest.Compare(t, path, text)
	}
}

// TestAlerts: Prometheus reads the rules, and each alert comes and goes as its test says.
func TestAlerts(t *testing.T) {
	tests, err := filepath.Glob("testdata/*.yml")
	if err != nil || len(tests) == 0 {
		t.Fatal(tests, err)
	}
	for _, args := range [][]string{{"check", "rules", "gatewayd.rules.yml", "gateweigh.rules.yml"},
		append([]string{"test", "rules"}, tests...)} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %q (package prometheus): %v\n%s", args, err, out)
		}
	}
}

package experiment_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/gateweigh/gateweigh/lab/experiment"
)

// TestPipes: a pipe to which nobody writes is refused as an experiment and as a campaign, and nothing waits for it.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.toml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := known.Load(path); err == nil || !strings.Contains(err.Error(), "a pipe") {
		t.Errorf("an experiment: %v", err)
	}
	if _, _, err := ReadCampaign(path); err == nil || !strings.Contains(err.Error(), "a pipe") {
		t.Errorf("a campaign: %v", err)
	}
}

// A test of what an agent quotes of a program's output.

package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLastOutputOfProgram: the last lines of its own output, not those of an earlier program of the name.
func TestLastOutputOfProgram(t *testing.T) {
	log := filepath.Join(t.TempDir(), "x.log")
	earlier, own := "earlier one\n", strings.Repeat("a line of its own\n", 1000)+"the last line\n"
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"nothing yet": {earlier, ""},
		"a line":      {earlier + "its own\n", "its own"},
		"much": {
			earlier + own, "a line of its own | a line of its own | a line of its own | a line of its own | the last line"},
	} {
		if err := os.WriteFile(log, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := (&spawned{log: log, logStart: int64(len(earlier))}).lastOutput(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := (&spawned{log: log + ".gone"}).lastOutput(); got != "" {
		t.Errorf("without a log: %q", got)
	}
}

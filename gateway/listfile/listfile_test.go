package listfile

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestFreshFilesAreReadAgain: two changes within a tick of the file system's clock have the same time, so a file that
// has just changed is read again, and a file that has not changed for a while only once.
func TestFreshFilesAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	rewrite := func(text string) { netnstest.Must(t, os.WriteFile(path, []byte(text), 0o600)) }
	word := func(text string) (string, string, error) {
		key, rest, _ := strings.Cut(text, " ")
		return key, rest, nil
	}
	rewrite("ann 1\n")
	f, err := Open(path, Kind{}, slog.New(slog.DiscardHandler), word)
	netnstest.Must(t, err)
	stale := map[string]string{"nobody": "has read this"}
	for f.settled = true; f.settled; { // repeat if the machine paused for a second in between
		rewrite("bob 2\n")
		f.Entries()
	}
	f.byKey = stale
	if _, found := f.Entries()["bob"]; !found {
		t.Errorf("a file changed a moment ago was not read again: %v", f.byKey)
	}
	for !f.settled {
		time.Sleep(10 * time.Millisecond)
		f.Entries()
	}
	f.byKey = stale
	if _, found := f.Entries()["bob"]; found {
		t.Error("a file that did not change was read again")
	}
}

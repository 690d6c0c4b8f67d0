package gateway

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
)

// TestFolderThatCannotBeMade: a folder is refused where its file system takes none, although root may write there.
func TestFolderThatCannotBeMade(t *testing.T) {
	s := &survey{Config: &config.Config{StateDir: "/proc/x", RunDir: filepath.Join(t.TempDir(), "run")}}
	s.folders()
	if len(s.findings) != 1 || s.findings[0].Weight != Refusal || !strings.Contains(s.findings[0].Text,
		"/proc/x cannot be made") {
		t.Errorf("%v", s.findings)
	}
}

// TestLittleSpace: a file system with little space is warned of, and is in the status.
func TestLittleSpace(t *testing.T) {
	dir, plenty := t.TempDir(), t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	defer unix.Unmount(dir, 0)
	s := &survey{Config: &config.Config{StateDir: filepath.Join(dir, "state"), RunDir: plenty}}
	s.folders()
	if len(s.findings) != 1 || s.findings[0].Weight != Warning ||
		!strings.Contains(s.findings[0].Text, dir+" has 1.0 MB free") {
		t.Errorf("%v", s.findings)
	}
	if free := scarceSpace(dir); free == nil || *free != 1<<20 {
		t.Errorf("%v free of 1 MiB", free)
	}
	must(t, unix.Mount("tmpfs", plenty, "tmpfs", 0, "size=64m"))
	defer unix.Unmount(plenty, 0)
	if free := scarceSpace(plenty); free != nil {
		t.Errorf("%d of 64 MiB are scarce", *free)
	}
}

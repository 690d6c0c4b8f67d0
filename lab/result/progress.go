package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ProgressFile says how far a run is that goes on, or was when it was interrupted. A run that came to its end has none.
const ProgressFile = "progress.json"

// Progress is what ProgressFile holds.
type Progress struct {
	Version  int       `json:"version"`            // of the format: 1
	Process  Process   `json:"process"`            // which measures
	Updated  time.Time `json:"updated"`            // UTC, when this was written
	Doing    string    `json:"doing"`              // "opennds, block 2"
	Done     float64   `json:"done"`               // share of the plan that is behind, 0 to 1
	Left     float64   `json:"left_seconds"`       // estimate of what is ahead, when this was written
	Blocks   int       `json:"blocks"`             // of the plan
	Behind   int       `json:"blocks_done"`        // of these, with nothing left to measure
	Windows  int       `json:"windows"`            // of the plan
	Accepted int       `json:"windows_accepted"`   // of these, with an accepted trial
	Rejected int       `json:"rejected,omitempty"` // trials of this sitting
	Reason   string    `json:"reason,omitempty"`   // the most frequent one of these
}

// Process names a process of some machine, for all times. The zero value is no process.
type Process struct {
	PID   int    `json:"pid"`
	Ticks uint64 `json:"started_ticks"` // of the machine's clock when it started, since boot
	Boot  string `json:"boot"`          // random, of the machine's boot
	Space string `json:"pid_namespace"` // in which PID is its number
}

// ThisProcess is the one that asks. What cannot be read is empty.
func ThisProcess() Process {
	p := here()
	p.PID = os.Getpid()
	p.Ticks, _ = startTicks(p.PID)
	return p
}

// here has the boot and the namespace that the caller lives in.
func here() (p Process) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	p.Boot = strings.TrimSpace(string(boot))
	p.Space, _ = os.Readlink("/proc/self/ns/pid")
	return p
}

// startTicks is when a process of this namespace started.
func startTicks(pid int) (ticks uint64, ok bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	// The name may have blanks and brackets of its own; the start is the 20th field behind it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return 0, false
	}
	ticks, err = strconv.ParseUint(fields[19], 10, 64)
	return ticks, err == nil
}

// Alive reports whether the process runs. It is known only of processes in the caller's namespace, since the machine's
// boot.
func (p Process) Alive() (alive, known bool) {
	own := here()
	if p.PID <= 0 || p.Boot == "" || p.Boot != own.Boot || p.Space != own.Space {
		return false, false
	}
	ticks, ok := startTicks(p.PID)
	return ok && ticks == p.Ticks, true
}

// WriteProgress replaces DIR/progress.json. Version is filled in. The file need not survive a crash of the machine, so
// nothing waits for the disk: it may be written beside what is measured.
func WriteProgress(dir string, p Progress) error {
	p.Version = Version
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write progress: %w", err)
	}
	path := filepath.Join(dir, ProgressFile)
	temporary := filepath.Join(dir, "."+ProgressFile+".new") // one process at a time writes here
	if err := os.WriteFile(temporary, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write progress: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write progress: %w", err)
	}
	return nil
}

// ReadProgress reads DIR/progress.json.
func ReadProgress(dir string) (p Progress, err error) {
	path := filepath.Join(dir, ProgressFile)
	data, err := os.ReadFile(path)
	if err == nil {
		err = versioned(data, &p)
	}
	if err != nil {
		return Progress{}, fmt.Errorf("read %s: %w", path, err)
	}
	return p, nil
}

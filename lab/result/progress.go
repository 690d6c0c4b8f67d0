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

// ProgressFile in a run folder says how much of the run is done, or was done when it was interrupted. A completed run
// has no such file.
const ProgressFile = "progress.json"

// Progress is the content of ProgressFile.
type Progress struct {
	Version  int       `json:"version"`            // of the format: 1
	Process  Process   `json:"process"`            // the process that measures
	Updated  time.Time `json:"updated"`            // UTC, when this was written
	Doing    string    `json:"doing"`              // "opennds, block 2"
	Done     float64   `json:"done"`               // share of the plan that is done, 0 to 1
	Left     float64   `json:"left_seconds"`       // estimated remaining time when this was written
	Blocks   int       `json:"blocks"`             // of the plan
	Behind   int       `json:"blocks_done"`        // blocks with nothing left to measure
	Windows  int       `json:"windows"`            // of the plan
	Accepted int       `json:"windows_accepted"`   // windows with an accepted trial
	Rejected int       `json:"rejected,omitempty"` // rejected trials of this sitting
	Reason   string    `json:"reason,omitempty"`   // most frequent reason for rejecting them
}

// Process identifies a process of any machine, at any time. The zero value is no process.
type Process struct {
	PID   int    `json:"pid"`
	Ticks uint64 `json:"started_ticks"` // clock ticks from the machine's boot to the process's start
	Boot  string `json:"boot"`          // random identifier of the machine's boot
	Space string `json:"pid_namespace"` // the process namespace in which PID is its number
}

// ThisProcess identifies the calling process. Values that cannot be read are empty.
func ThisProcess() Process {
	p := thisBoot()
	p.PID = os.Getpid()
	p.Ticks, _ = startTicks(p.PID)
	return p
}

// thisBoot returns a Process with the boot and the process namespace of the caller.
func thisBoot() (p Process) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	p.Boot = strings.TrimSpace(string(boot))
	p.Space, _ = os.Readlink("/proc/self/ns/pid")
	return p
}

// startTicks returns the start time of a process of this namespace, in clock ticks since boot.
func startTicks(pid int) (ticks uint64, ok bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false
	}
	// The process name may contain blanks and brackets. The start time is the 20th field after it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return 0, false
	}
	ticks, err = strconv.ParseUint(fields[19], 10, 64)
	return ticks, err == nil
}

// Alive reports whether the process runs. known is false for a process of another namespace or of an earlier boot.
func (p Process) Alive() (alive, known bool) {
	current := thisBoot()
	if p.PID <= 0 || p.Boot == "" || p.Boot != current.Boot || p.Space != current.Space {
		return false, false
	}
	ticks, ok := startTicks(p.PID)
	return ok && ticks == p.Ticks, true
}

// WriteProgress replaces DIR/progress.json. It fills in Version. It does not wait for the disk, because a crash of the
// machine may lose the file, and because it may run during a measurement.
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

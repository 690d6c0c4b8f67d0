package agent

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/gateweigh/gateweigh/lab/machine"
)

// Hello is how an agent introduces itself.
type Hello struct {
	PID     int    `json:"pid"`     // on the machine the agent runs on
	Version string `json:"version"` // of the program, as it was built
	Arch    string `json:"arch"`    // GOARCH
	Build   string `json:"build"`   // hash that the Go linker gave the program
	Files   int64  `json:"files"`   // the hard limit of open files of the agent and its workers; 0: none
}

// Version of this program, which Hello tells. The program's main package sets it
// before RunAs.
var Version = "devel"

// self is how this process would introduce itself.
func self() Hello {
	return Hello{PID: os.Getpid(), Version: Version, Arch: runtime.GOARCH, Build: buildID(), Files: machine.HardFiles()}
}

// Matches is an error when the agent is another build than this program: the two would
// not understand each other, or measure differently. On another architecture builds of one
// version differ.
func (h Hello) Matches() error {
	own := self()
	if h.Version == own.Version && (h.Arch != own.Arch || h.Build == own.Build) {
		return nil
	}
	return fmt.Errorf("its agent is another program than the lab: version %s (%s, build %s), the lab is %s (%s, build %s): install the same on both",
		h.Version, h.Arch, lastOf(h.Build), own.Version, own.Arch, lastOf(own.Build))
}

func lastOf(build string) string { return build[max(0, len(build)-8):] }

// buildID is the linker's note in this program's file, "" without one. It costs less
// than a hash of the file, which a machine is asked for once a run (machine.Machine).
var buildID = sync.OnceValue(func() string {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close()
	section := f.Section(".note.go.buildid")
	if section == nil {
		return ""
	}
	note, err := section.Data()
	const header = 16 // sizes, type and the name "Go"
	if err != nil || len(note) < header {
		return ""
	}
	return string(bytes.TrimRight(note[header:], "\x00"))
})

package agent

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/profile"
)

// machineAgent answers questions about the machine that it runs on. Every agent has one. Its exported
// methods carry out the requests of Conn's methods of the same names, where they are described.
type machineAgent struct {
	dir    string // for perf's data
	slowed slowed

	perf       sync.Mutex        // guards what follows
	recorder   *profile.Recorder // nil while perf does not run
	recordings int               // number of recordings started
}

func (*machineAgent) Hello(context.Context) Hello                      { return thisProcess() }
func (*machineAgent) Machine(context.Context) (machine.Machine, error) { return machine.Read() }
func (*machineAgent) Load(context.Context) (machine.Load, error)       { return machine.ReadLoad() }

func (*machineAgent) Clock(ctx context.Context) (machine.Clock, error) { return machine.ReadClock(ctx) }

func (*machineAgent) Find(ctx context.Context, q machine.Query) []machine.Found {
	return machine.Find(ctx, q)
}

func (*machineAgent) Busiest(ctx context.Context) ([]machine.User, error) {
	return machine.Busiest(ctx)
}

func (*machineAgent) RunLoops(_ context.Context, cpus []int, length time.Duration) []machine.Loop {
	return machine.RunLoops(cpus, length)
}

func (*machineAgent) ReadAccounts(_ context.Context, routers machine.Routers, ownPIDs []int) machine.Accounts {
	return machine.ReadAccounts(routers, ownPIDs)
}

// Perf says what perf has to sample.
type Perf struct {
	Programs []int `json:"programs"` // ids of processes whose stacks have to be unwound
	CPUs     []int `json:"cpus"`     // to sample
	OwnCPUs  []int `json:"own"`      // on which perf itself runs
}

// PerfStarted describes a recording that perf has begun.
type PerfStarted struct {
	Recording  int    `json:"recording"`   // its number, for ReadPerf
	UserStacks string `json:"user_stacks"` // profile.UnwindFP or profile.UnwindDWARF
	Version    string `json:"version"`     // of perf
}

// perfData is the file of a recording's data, tens of megabytes. ReadPerf removes it.
func (m *machineAgent) perfData(recording int) string {
	return filepath.Join(m.dir, "perf", fmt.Sprintf("perf.data.%d", recording))
}

// StartPerf starts a recording. Only one can run at a time.
func (m *machineAgent) StartPerf(ctx context.Context, p Perf) (s PerfStarted, err error) {
	m.perf.Lock()
	defer m.perf.Unlock()
	if m.recorder != nil {
		return s, errors.New("perf runs already")
	}
	if err := profile.Available(); err != nil {
		return s, err
	}
	if hidden := machine.HiddenSymbols(); hidden != "" {
		return s, errors.New(hidden)
	}
	dir := filepath.Dir(m.perfData(0))
	if m.recordings == 0 { // a killed lab may have left data there
		err = os.RemoveAll(dir)
	}
	if err = errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
		return s, fmt.Errorf("making a folder for perf's data: %w", err)
	}
	s = PerfStarted{m.recordings, profile.Unwind(p.Programs), profile.PerfVersion(ctx)}
	m.recordings++
	// The recording goes on after this request, so it must not end with the request's context.
	m.recorder, err = profile.Start(context.WithoutCancel(ctx), m.perfData(s.Recording), s.UserStacks, p.CPUs, p.OwnCPUs)
	return s, err
}

// StopPerf ends the recording.
func (m *machineAgent) StopPerf(ctx context.Context) error {
	m.perf.Lock()
	defer m.perf.Unlock()
	r := m.recorder
	if r == nil {
		return errors.New("perf does not run on this host")
	}
	m.recorder = nil
	return r.Stop(ctx)
}

// ReadPerf reads the data of a recording and removes it.
func (m *machineAgent) ReadPerf(ctx context.Context, recording int) (*profile.Recording, error) {
	defer func() {
		os.Remove(m.perfData(recording))
		os.Remove(filepath.Dir(m.perfData(0))) // fails while another recording is in it
	}()
	return profile.Read(ctx, m.perfData(recording))
}

// killPerf ends a running recording without keeping its data whole.
func (m *machineAgent) killPerf() {
	m.perf.Lock()
	defer m.perf.Unlock()
	if m.recorder != nil {
		m.recorder.Kill()
	}
}

// Hello is how an agent introduces itself.
type Hello struct {
	PID     int    `json:"pid"`     // on the agent's machine
	Version string `json:"version"` // of the program
	Arch    string `json:"arch"`    // GOARCH
	// Build is the version of Go with Sources, or without Sources the build id that the Go linker gave the program.
	Build        string `json:"build"`
	MaxOpenFiles int64  `json:"files"` // hard limit of open files of the agent and of each worker; 0: none
}

// Version is the version of this program. The program's main package sets it
// before it calls RunAs.
var Version = "devel"

// Sources is a hash of the sources of lab and agents, which the linker sets (Makefile). Programs of the same
// sources and the same Go version are the same build, on any architecture.
var Sources string

// thisProcess is the Hello of this process.
func thisProcess() Hello {
	build := buildID()
	if Sources != "" {
		build = runtime.Version() + " " + Sources
	}
	return Hello{PID: os.Getpid(), Version: Version, Arch: runtime.GOARCH, Build: build, MaxOpenFiles: machine.HardFiles()}
}

// Matches returns an error when the agent is another build than this program: the two might
// not understand each other, or measure differently.
func (h Hello) Matches() error {
	lab := thisProcess()
	if h.Version == lab.Version && h.Build == lab.Build {
		return nil
	}
	return fmt.Errorf(
		"its agent is another build than the lab: version %s (%s, build %s), the lab is %s (%s, build %s): take both from "+
			"one make build agents",
		h.Version, h.Arch, lastCharacters(h.Build), lab.Version, lab.Arch, lastCharacters(lab.Build))
}

// lastCharacters is short enough for messages, and tells builds apart.
func lastCharacters(build string) string { return build[max(0, len(build)-8):] }

// buildID reads the build id that the Go linker wrote into this program's file; "" without one.
// Each agent's start needs it, and to read it takes less time than to hash the file.
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

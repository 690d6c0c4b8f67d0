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

// machineAgent answers for the machine it runs on, as every agent does. Its exported
// methods carry out verbs of Conn.
type machineAgent struct {
	dir    string // for perf's data
	slowed slowed

	perf       sync.Mutex        // guards what follows
	recorder   *profile.Recorder // nil while perf does not run
	recordings int               // perf was started so often
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

// Perf says what perf is to sample.
type Perf struct {
	Programs []int `json:"programs"` // processes whose stacks are to be unwound
	CPUs     []int `json:"cpus"`     // sampled
	Own      []int `json:"own"`      // of perf itself
}

// PerfStarted says how perf samples.
type PerfStarted struct {
	Recording  int    `json:"recording"`   // its number, for ReadPerf
	UserStacks string `json:"user_stacks"` // profile.UnwindFP or profile.UnwindDWARF
	Version    string `json:"version"`     // of perf
}

// perfData is where the data of a recording lies: tens of megabytes, of no use once read.
func (m *machineAgent) perfData(recording int) string {
	return filepath.Join(m.dir, "perf", fmt.Sprintf("perf.data.%d", recording))
}

// StartPerf starts a recording.
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
	if m.recordings == 0 { // what a lab that was killed has left
		err = os.RemoveAll(dir)
	}
	if err = errors.Join(err, os.MkdirAll(dir, 0o755)); err != nil {
		return s, fmt.Errorf("making a folder for perf's data: %w", err)
	}
	s = PerfStarted{m.recordings, profile.Unwind(p.Programs), profile.PerfVersion(ctx)}
	m.recordings++
	// Not the request's context: perf outlives the request.
	m.recorder, err = profile.Start(context.WithoutCancel(ctx), m.perfData(s.Recording), s.UserStacks, p.CPUs, p.Own)
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
		os.Remove(filepath.Dir(m.perfData(0))) // once it is empty
	}()
	return profile.Read(ctx, m.perfData(recording))
}

// killPerf ends a recording that nobody will read.
func (m *machineAgent) killPerf() {
	m.perf.Lock()
	defer m.perf.Unlock()
	if m.recorder != nil {
		m.recorder.Kill()
	}
}

// Hello is how an agent introduces itself.
type Hello struct {
	PID     int    `json:"pid"`     // on the machine the agent runs on
	Version string `json:"version"` // of the program, as it was built
	Arch    string `json:"arch"`    // GOARCH
	// Build is Sources, or where that is not known the hash that the Go linker gave the program.
	Build string `json:"build"`
	Files int64  `json:"files"` // the hard limit of open files of the agent and its workers; 0: none
}

// Version of this program, which Hello tells. The program's main package sets it
// before RunAs.
var Version = "devel"

// Sources is a hash of the sources of lab and agents, which the linker sets (Makefile). Programs of the
// same sources and the same Go version are one build, whatever they are called and on whatever architecture.
var Sources string

// thisProcess is how this process would introduce itself.
func thisProcess() Hello {
	build := buildID()
	if Sources != "" {
		build = runtime.Version() + " " + Sources
	}
	return Hello{PID: os.Getpid(), Version: Version, Arch: runtime.GOARCH, Build: build, Files: machine.HardFiles()}
}

// Matches is an error when the agent is another build than this program: the two would
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

func lastCharacters(build string) string { return build[max(0, len(build)-8):] }

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

package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/textfile"
)

// Modes of a run.
const (
	ModeDuet = "duet" // DUT and clean router at the same time, in two labs
	ModeSolo = "solo" // two labs, of which one carries load at a time
	// one lab at a time, in rounds of all devices and a clean router; a trial has one side
	ModeInterleaved = "interleaved"
)

// Environment is what a reader must know of the machine and the run to judge
// the figures or to repeat them. It is kept in environment.json.
type Environment struct {
	Version    int    `json:"version"`         // of the format: 1
	Experiment string `json:"experiment"`      // its name
	Title      string `json:"title,omitempty"` // one line for reports
	Mode       string `json:"mode"`            // ModeDuet, ModeSolo or ModeInterleaved
	// Measure is what the run measures; runs of early versions name it only where it is another than cost.
	Measure string `json:"measure,omitempty"`
	// Clients says what stands for clients: "persona", and on how many hosts.
	Clients string `json:"clients,omitempty"`
	// Sides is set when the labs of a pair differed in more than the device: a ratio
	// is then of both together, and no published claim is looked at.
	Sides *Sides `json:"sides,omitempty"`
	// RouterSpeed is the share of their CPU that the routers were to have, 0: all of it. How much
	// they had is in the records (RouterShare).
	RouterSpeed float64 `json:"router_speed,omitempty"`
	Command     string  `json:"command"` // exact command that repeats the run

	Start       time.Time `json:"start"`                 // UTC
	End         time.Time `json:"end"`                   // UTC; zero while the run goes on
	Interrupted bool      `json:"interrupted,omitempty"` // the run was not finished

	GateweighVersion string `json:"gateweigh_version"` // of the program
	GateweighSHA256  string `json:"gateweigh_sha256"`  // of the binary, hexadecimal

	Kernel         string `json:"kernel"`                   // uname release and version
	Arch           string `json:"arch"`                     // uname machine
	CPUModel       string `json:"cpu_model"`                // /proc/cpuinfo
	CPUs           int    `json:"cpus"`                     // online, logical
	MemoryMiB      int64  `json:"memory_mib"`               // the machine's
	Virtualisation string `json:"virtualisation,omitempty"` // "kvm", "none", ""

	// Machines are those of the labs' hosts, by the hosts' names, where there are several; kernel, CPU and memory above
	// are then the router's.
	Machines map[string]Site `json:"machines,omitempty"`

	// Ports are the interfaces of each host by the hosts' names, as they were set in the run's first lab.
	Ports map[string][]Port `json:"ports,omitempty"`
	// Governors set the clocks of the CPUs above, each with its driver: "performance (intel_pstate)".
	Governors []string `json:"governors,omitempty"`

	// VM is set when the lab ran in a virtual machine: kernel, CPU and memory above are then the guest's.
	VM *VM `json:"vm,omitempty"`
	// LoadsDividedBy is what the experiment's loads were divided by for an emulated CPU, 0: nothing.
	LoadsDividedBy float64 `json:"loads_divided_by,omitempty"`

	Placement string            `json:"placement"`          // which CPUs carry routers and endpoints
	Offloads  []string          `json:"offloads,omitempty"` // link settings of the profile, one a line
	Tools     map[string]string `json:"tools,omitempty"`    // version by name
	Sysctls   map[string]string `json:"sysctls,omitempty"`  // in the router's namespace

	// Inputs are the SHA-256 sums, hexadecimal, of the files that the experiment names, by their paths in the run's
	// folder.
	Inputs map[string]string `json:"inputs,omitempty"`

	Nodes []Node `json:"nodes,omitempty"` // of a campaign: the machines that measured
	Until *Until `json:"until,omitempty"` // of runs that end when they are exact enough

	Skipped []Skip   `json:"skipped,omitempty"` // DUTs left out
	Notes   []string `json:"notes,omitempty"`   // what else a reader must know, a sentence each
}

// Node is a machine that measured blocks of a campaign. The environment's other keys describe the first of them.
type Node struct {
	Name      string `json:"name"`       // the scheduler's
	Blocks    int    `json:"blocks"`     // that the run has of it
	Kernel    string `json:"kernel"`     // as in the environment, as the next ones
	CPUModel  string `json:"cpu_model"`  // /proc/cpuinfo
	CPUs      int    `json:"cpus"`       // online, logical
	MemoryMiB int64  `json:"memory_mib"` // the machine's
}

// Site is a machine that carries a host of the labs.
type Site struct {
	Address        string   `json:"address"` // as ssh takes it
	Kernel         string   `json:"kernel"`  // uname release and version
	Arch           string   `json:"arch"`
	CPUModel       string   `json:"cpu_model"`
	CPUs           int      `json:"cpus"` // online, logical
	Uses           []int    `json:"uses"` // CPUs of the host
	Governors      []string `json:"governors,omitempty"`
	MemoryMiB      int64    `json:"memory_mib"`
	Virtualisation string   `json:"virtualisation,omitempty"`
	AgentSHA256    string   `json:"agent_sha256"`
	Interfaces     []string `json:"interfaces"` // of the labs, by their names on the machine
}

// String is the machine in a line.
func (s Site) String() string {
	return fmt.Sprintf(
		"%s: %s %s, CPUs %v of %d, %d MiB, %s, interfaces %s", s.Address, s.CPUModel, s.Arch, s.Uses, s.CPUs,
		s.MemoryMiB, s.Kernel, strings.Join(s.Interfaces, ", "))
}

// Sides says what clients and traffic of the two labs of a pair had not in common.
type Sides struct {
	Device string `json:"device"` // "clients of kind persona, traffic of kind streams"
	Clean  string `json:"clean"`  // the clean router's
	// OfClean is that A/A pairs have what is at the clean router, not what is where the device is.
	OfClean bool `json:"of_clean,omitempty"`
}

// WriteEnvironment replaces DIR/environment.json. Version is filled in.
func WriteEnvironment(dir string, env Environment) error {
	env.Version = Version
	data, err := json.MarshalIndent(env, "", "  ")
	if err != nil {
		return fmt.Errorf("write environment: %w", err)
	}
	return ReplaceFile(filepath.Join(dir, EnvironmentFile), append(data, '\n'))
}

// ReadEnvironment reads an environment.json. Keys it does not know are ignored,
// a newer version is ErrNewerVersion.
func ReadEnvironment(path string) (env Environment, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return env, fmt.Errorf("read environment: %w", err)
	}
	if data, err = textfile.Decode(data); err == nil {
		err = versioned(data, &env)
	}
	if err != nil {
		return Environment{}, fmt.Errorf("read %s: %w", path, err)
	}
	return env, nil
}

// Run is a run folder in memory.
type Run struct {
	Dir         string
	Environment Environment
	Trials      []Trial
	Blocks      []Block
	Own         []Entry // records of the measure's own kinds
	Skipped     []Skip  // those of the environment
	Torn        int     // bytes of a last line cut short by a crash, left out
	TornLine    int     // its number in the file, from 1
	Repeated    int     // records that stood in the file before, left out
	Unrecorded  int     // planned windows without a record, although the run came to its end
	// Unmeasured are planned cells of which no attempt is recorded, without those of skipped devices and those that were
	// left out; nil where the run's folder has lost its experiment.
	Unmeasured []Cell
	// FrameSizes are the experiment's, in its order; none where the run's folder has lost its experiment.
	FrameSizes []string

	// Missing are the names of files that a run's folder holds from its begin, and this one does not.
	Missing []string
}

// TornText says where the file of trials ends within a line, and what that means; "" where it ends well.
func (r Run) TornText() string {
	if r.Torn == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s:%d: the last line is cut short (%d bytes, no end of line), as when the run is killed while it writes: that "+
			"record is left out, and a resume measures it again",
		TrialsFile, r.TornLine, r.Torn)
}

// MeasuredFor is how long the run's blocks and own records took together, by the monotonic clock:
// the time between Start and End is wrong after a resume, or when the clock was set.
// An own record that began within a recorded block, as one that failed later, is part of the block's time.
func (r Run) MeasuredFor() time.Duration {
	var seconds float64
	for _, b := range r.Blocks {
		seconds += b.Seconds
	}
	for _, l := range r.Own {
		within := func(b Block) bool {
			since := l.Start.Sub(b.Start).Seconds()
			if l.Elapsed > 0 && b.Elapsed > 0 {
				if since = l.Elapsed - b.Elapsed; l.Sitting != b.Sitting {
					return false
				}
			}
			return since >= 0 && since < b.Seconds
		}
		if !slices.ContainsFunc(r.Blocks, within) {
			seconds += l.Seconds
		}
	}
	return time.Duration(seconds * float64(time.Second))
}

// ReadRun reads a run folder. A run that ended before its first trial has no
// trials.jsonl, one copied without its environment.json has no environment:
// both can be read, and Missing says what else is not there. A folder with neither is an error.
// For kinds see ReadRecords.
func ReadRun(dir string, kinds ...Kind) (Run, error) {
	env, envErr := ReadEnvironment(filepath.Join(dir, EnvironmentFile))
	if envErr != nil && !errors.Is(envErr, fs.ErrNotExist) {
		return Run{Dir: dir}, envErr
	}
	records, err := ReadTrials(filepath.Join(dir, TrialsFile), kinds...)
	return assemble(dir, env, envErr, records, err)
}

// assemble makes a run of what was read of its folder; an environment may lack only because there is none.
func assemble(dir string, env Environment, envErr error, records Records, err error) (Run, error) {
	run := Run{Dir: dir}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return run, err
	}
	if envErr != nil && err != nil {
		return run, fmt.Errorf("%s is not a run folder: neither %s nor %s in it", dir, EnvironmentFile, TrialsFile)
	}
	if envErr != nil {
		run.Missing = append(run.Missing, EnvironmentFile)
	}
	if _, err := os.Stat(filepath.Join(dir, ExperimentFile)); errors.Is(err, fs.ErrNotExist) {
		run.Missing = append(run.Missing, ExperimentFile)
	}
	run.Environment, run.Skipped = env, env.Skipped
	run.Trials, run.Blocks, run.Own, run.Repeated = records.Trials, records.Blocks, records.Own, records.Repeated
	run.Torn, run.TornLine = records.Torn, records.TornLine
	return run, nil
}

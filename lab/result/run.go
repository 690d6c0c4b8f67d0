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

// Environment describes the machine and the run, so that a reader can judge the figures and repeat the run. It is the
// content of environment.json.
type Environment struct {
	Version    int    `json:"version"`         // of the format: 1
	Experiment string `json:"experiment"`      // its name
	Title      string `json:"title,omitempty"` // one line for reports
	Mode       string `json:"mode"`            // ModeDuet, ModeSolo or ModeInterleaved
	// Measure is the name of the run's measure. Early versions left it out for cost.
	Measure string `json:"measure,omitempty"`
	// Clients says how clients are simulated: "persona", and on how many hosts.
	Clients string `json:"clients,omitempty"`
	// Sides is set when the two labs of a pair differed in more than the device. Ratios then compare all differences
	// together, so no published claim is tested.
	Sides *Sides `json:"sides,omitempty"`
	// RouterSpeed is the share of their CPU that the experiment gave the routers. 0: all of it. The measured share is in
	// the records (RouterShare).
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

	// Machines are the machines of the labs' hosts, by the hosts' names, if there are several. Kernel, CPU and memory
	// above are then those of the router.
	Machines map[string]Site `json:"machines,omitempty"`

	// Ports are the network interfaces of each host, by the hosts' names, with their settings in the run's first lab.
	Ports map[string][]Port `json:"ports,omitempty"`
	// Governors set the clock rates of the CPUs above. Each has its driver: "performance (intel_pstate)".
	Governors []string `json:"governors,omitempty"`

	// VM is set when the lab ran in a virtual machine. Kernel, CPU and memory above are then those of the guest.
	VM *VM `json:"vm,omitempty"`
	// LoadsDividedBy is the factor by which the experiment's loads were divided for an emulated CPU. 0: they were not.
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

// Node is a machine that measured blocks of a campaign. The environment's other keys describe the first node.
type Node struct {
	Name      string `json:"name"`       // the scheduler's
	Blocks    int    `json:"blocks"`     // that the run has of it
	Kernel    string `json:"kernel"`     // as in the environment, as the next ones
	CPUModel  string `json:"cpu_model"`  // /proc/cpuinfo
	CPUs      int    `json:"cpus"`       // online, logical
	MemoryMiB int64  `json:"memory_mib"` // the machine's
}

// Site is a machine with one or more hosts of the labs.
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

// String describes the machine in one line.
func (s Site) String() string {
	return fmt.Sprintf(
		"%s: %s %s, CPUs %v of %d, %d MiB, %s, interfaces %s", s.Address, s.CPUModel, s.Arch, s.Uses, s.CPUs,
		s.MemoryMiB, s.Kernel, strings.Join(s.Interfaces, ", "))
}

// Sides describes the clients and traffic in which the two labs of a pair differed.
type Sides struct {
	Device string `json:"device"` // "clients of kind persona, traffic of kind streams"
	Clean  string `json:"clean"`  // the clean router's
	// OfClean is true if both sides of the A/A pairs had the settings of the clean router's side.
	OfClean bool `json:"of_clean,omitempty"`
}

// WriteEnvironment replaces DIR/environment.json. It fills in Version.
func WriteEnvironment(dir string, env Environment) error {
	env.Version = Version
	data, err := json.MarshalIndent(env, "", "  ")
	if err != nil {
		return fmt.Errorf("write environment: %w", err)
	}
	return ReplaceFile(filepath.Join(dir, EnvironmentFile), append(data, '\n'))
}

// ReadEnvironment reads an environment.json. It ignores unknown keys. A newer version is ErrNewerVersion.
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

// Run has the contents of a run folder.
type Run struct {
	Dir            string
	Environment    Environment
	Trials         []Trial
	Blocks         []Block
	MeasureRecords []Entry // records of the measure's own kinds
	Skipped        []Skip  // from the environment
	Torn           int     // length in bytes of a last line cut short by a crash; it is in no list
	TornLine       int     // its number in the file; the first line is 1
	Repeated       int     // records left out because the file has them twice
	Unrecorded     int     // planned windows without a record, although the run was completed
	// Unmeasured are planned cells without any recorded attempt. Cells of skipped devices and cells left out are not among
	// them. It is nil if the run's folder has no experiment.
	Unmeasured []Cell
	// FrameSizes are the frame sizes of the experiment, in its order. It is empty if the run's folder has no experiment.
	FrameSizes []string

	// Missing names the files that every run's folder has from its beginning, and that this one lacks.
	Missing []string
}

// TornText says at which line the file of trials is cut short, and what that means. It returns "" if the file ends with
// a whole line.
func (r Run) TornText() string {
	if r.Torn == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s:%d: the last line is cut short (%d bytes, no end of line), as when the run is killed while it writes: that "+
			"record is left out, and a resume measures it again",
		TrialsFile, r.TornLine, r.Torn)
}

// MeasuredFor returns the total time of the run's blocks and of the records of the measure's own kinds, by the
// monotonic clock. The time between Start and End would be wrong after a resume or a change of the clock. A record that
// began within a recorded block is part of the block's time and does not count again.
func (r Run) MeasuredFor() time.Duration {
	var seconds float64
	for _, b := range r.Blocks {
		seconds += b.Seconds
	}
	for _, l := range r.MeasureRecords {
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

// ReadRun reads a run folder. A run that ended before its first trial has no trials.jsonl, and a copy may lack
// environment.json. Both can be read, and Missing names other missing files. A folder with neither is an error. For
// kinds see ReadRecords.
func ReadRun(dir string, kinds ...Kind) (Run, error) {
	env, envErr := ReadEnvironment(filepath.Join(dir, EnvironmentFile))
	if envErr != nil && !errors.Is(envErr, fs.ErrNotExist) {
		return Run{Dir: dir}, envErr
	}
	records, err := ReadTrials(filepath.Join(dir, TrialsFile), kinds...)
	return assemble(dir, env, envErr, records, err)
}

// assemble makes a Run from the files of its folder. envErr may only be that there is no environment.
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
	run.Trials, run.Blocks = records.Trials, records.Blocks
	run.MeasureRecords, run.Repeated = records.MeasureRecords, records.Repeated
	run.Torn, run.TornLine = records.Torn, records.TornLine
	return run, nil
}

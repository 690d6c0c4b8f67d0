// Package doctor examines what this machine and its kernel can measure, how
// well, and what to do where something is in the way. It tries things rather
// than reading configuration, in hosts that vanish with it, and changes nothing.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/scratch"
	"github.com/gateweigh/gateweigh/lab/words"
)

// State is the result of a check.
type State string

const (
	OK      State = "ok"      // as measurements need it
	Warn    State = "warn"    // measurements work, with less trust or reach
	Missing State = "missing" // what needs it cannot run
)

// Check is a check of one subject with its result. Keys are stable: scripts may rely on them.
type Check struct {
	Key   string `json:"key"` // "kernel.veth"
	State State  `json:"state"`
	What  string `json:"what"`  // the subject: "veth"
	Found string `json:"found"` // what is here
	// Means is what state ok means for measurements.
	Means string `json:"means,omitempty"`
	// Do is the remedy. Every check that is not ok has one.
	Do string `json:"do,omitempty"`
	// Needed reports that no experiment runs without it.
	Needed bool `json:"needed,omitempty"`
	// Figures are the measured values behind Found, with their unit in the name.
	Figures map[string]analysis.Number `json:"figures,omitempty"`
	// refused reports that this process lacks the rights to use it, whether or not the machine has it.
	refused bool
}

// checkOf returns a check that is ok when do is empty. Otherwise it returns a warning without means.
func checkOf(key, what, found, means, do string) Check {
	if do != "" {
		return Check{Key: key, State: Warn, What: what, Found: found, Do: do}
	}
	return Check{Key: key, State: OK, What: what, Found: found, Means: means}
}

// Group has the checks of one area.
type Group struct {
	Name   string  `json:"name"`
	Checks []Check `json:"lines"`
}

// Devices is the name of the group of devices.
const Devices = "Devices"

// Version of the report's JSON.
const Version = 1

// Report has the results of all checks.
type Report struct {
	Version int `json:"version"`
	// CanRun reports whether the default experiment would measure at least one device.
	CanRun  bool   `json:"can_run"`
	Verdict string `json:"verdict"` // CanRun in a sentence
	// First is the first thing to do where the default experiment lacks something. It is empty otherwise.
	First string `json:"first,omitempty"`
	// Outlook tells in a sentence what else runs on the machine now, and what that means for a run.
	Outlook string  `json:"outlook"`
	Groups  []Group `json:"groups"`
}

// Options of Examine; the zero value is a full examination.
type Options struct {
	Quick   bool         // leaves out what measures: Noise and half of Metering
	Version string       // of gateweigh
	Status  func(string) // is called with each step that begins; may be nil
}

// Examine looks at this machine. It needs root to try the kernel's features and
// to measure; without, it says so line by line. An error means that the
// examination itself did not work, not that something is missing.
func Examine(ctx context.Context, opts Options) (Report, error) {
	if opts.Status == nil {
		opts.Status = func(string) {}
	}
	folder, done, err := scratch.New(scratch.Doctor)
	if err != nil {
		return Report{}, err
	}
	defer done()
	local, err := backend.Local(ctx, backend.Options{Run: "doctor", LogDir: folder})
	if err != nil {
		return Report{}, err
	}
	asked, err := local.Machine(ctx)
	if err != nil {
		return Report{}, err
	}
	defer asked.Stop()
	m, err := asked.Machine(ctx)
	if err != nil {
		return Report{}, err
	}
	x := examination{
		opts: opts, placement: local.Describe().Placement, backend: local, asked: asked, machine: m, scratch: folder,
		running: runningNow(),
		largest: largestExperiment(measure.Catalogue().Builtins()), personas: mostPersonas(measure.Catalogue().Builtins()),
	}
	outlook, err := runner.Foresee(ctx, asked, local.Describe().CPUs)
	if err != nil {
		return Report{}, err
	}
	groups, err := x.all(ctx)
	if err != nil {
		return Report{}, err
	}
	found := newReport(groups)
	found.Outlook = words.Capitalised(outlook.String()) + "."
	if x.running.is {
		found.First = waitForRun
		found.Outlook = words.Capitalised(x.running.String()) + " measures now, and what is said of noise is of that."
	}
	return found, nil
}

// examination is one call of Examine.
type examination struct {
	opts      Options
	placement backend.Placement
	backend   backend.Backend // runs the hosts to try things on
	asked     *backend.Host   // answers for the machine
	machine   machine.Machine
	scratch   string
	running   runningLab
	largest   runner.Demand
	personas  runner.Demand // the most clients of kind persona
}

func (x examination) all(ctx context.Context) ([]Group, error) {
	x.opts.Status("trying what the kernel can do")
	kernel, inside := x.kernel(ctx)
	x.opts.Status("looking at machine, tools and limits")
	machine, err1 := x.machineChecks(ctx)
	tools, err2 := x.tools(ctx)
	devices, err3 := x.devices(ctx, kernel)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	groups := []Group{
		{"Kernel", kernel}, {"Machine", machine}, {"Tools", tools}, {Devices, devices}, {"Limits", x.limits(inside)},
	}
	metering := []Check{x.accounting()}
	if !x.opts.Quick {
		noise, gap := x.noise(ctx, newReport(groups).CanRun)
		groups = append(groups, Group{"Noise", noise})
		metering = append(metering, gap)
	}
	groups = append(groups, Group{"Metering", metering})
	return groups, context.Cause(ctx)
}

// newReport draws the conclusion.
func newReport(groups []Group) Report {
	r := Report{Version: Version, Groups: groups}
	var blocking, here []string
	lacking := map[string][]string{} // devices of the default experiment by what is to be done
	var rights string                // what explains the rest
	for _, g := range groups {
		for _, l := range g.Checks {
			name, isDevice := strings.CutPrefix(l.Key, deviceKey)
			switch {
			case l.Key == keyRights && l.State == Missing:
				rights, r.First = l.Found, l.Do
			case l.Needed && l.State == Missing:
				blocking = append(blocking, l.What)
				r.First = cmp.Or(r.First, l.Do)
			case isDevice && l.State != Missing && slices.Contains(defaultExperiment().DUTs, name):
				here = append(here, name)
			case isDevice && slices.Contains(defaultExperiment().DUTs, name):
				lacking[l.Do] = append(lacking[l.Do], name)
			}
		}
	}
	switch {
	case rights != "":
		r.Verdict = "Nothing can run here as things are: " + rights + "."
	case len(blocking) > 0:
		r.Verdict = "Nothing can run here as things are: missing " + strings.Join(blocking, ", ") + "."
	case len(here) == 0:
		r.Verdict = "The lab works here, but none of the devices of the default experiment can run."
	default:
		r.CanRun = true
		r.First = mostNeededRemedy(lacking)
		r.Verdict = fmt.Sprintf("gateweigh run measures %s here.", strings.Join(here, ", "))
	}
	return r
}

// mostNeededRemedy is the remedy that most devices lack, and which.
func mostNeededRemedy(lacking map[string][]string) (first string) {
	most := 0
	for _, do := range slices.Sorted(maps.Keys(lacking)) {
		if names := lacking[do]; len(names) > most {
			first, most = "for "+words.Listed(names)+": "+do, len(names)
		}
	}
	return first
}

// defaultExperiment is the experiment of gateweigh run without arguments.
func defaultExperiment() *experiment.Experiment { return measure.Catalogue().Builtins()[0] }

// reason is an error in one line.
func reason(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

const needsRoot = "run it as root: sudo gateweigh doctor"

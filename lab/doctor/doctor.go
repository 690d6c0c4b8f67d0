// Package doctor examines what a machine and its kernel can measure, how well, and what to do about what is missing. It
// tries the kernel's features in hosts of its own, which end with the examination, and changes nothing on the machine.
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
	OK      State = "ok"      // the subject is as measurements need it
	Warn    State = "warn"    // measurements work, but are less precise or cover less
	Missing State = "missing" // whatever needs the subject cannot run
)

// Check is a check of one subject with its result. Keys are stable: scripts may rely on them.
type Check struct {
	Key     string `json:"key"` // "kernel.veth"
	State   State  `json:"state"`
	Subject string `json:"what"`  // the subject: "veth"
	Found   string `json:"found"` // what the check found
	// Means says what state ok means for measurements.
	Means string `json:"means,omitempty"`
	// Remedy is the remedy. Every check that is not ok has one.
	Remedy string `json:"do,omitempty"`
	// Needed reports that no experiment runs without the subject.
	Needed bool `json:"needed,omitempty"`
	// Figures are the measured values behind Found, with their unit in the name.
	Figures map[string]analysis.Number `json:"figures,omitempty"`
	// noPermission reports that this process lacks the rights to use the subject, which the machine may have.
	noPermission bool
}

// checkOf returns a check that is ok when do is empty. Otherwise it returns a warning without means.
func checkOf(key, what, found, means, do string) Check {
	if do != "" {
		return Check{Key: key, State: Warn, Subject: what, Found: found, Remedy: do}
	}
	return Check{Key: key, State: OK, Subject: what, Found: found, Means: means}
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
	// First is the remedy to begin with. It is empty when the experiment lacks nothing.
	First string `json:"first,omitempty"`
	// Outlook says in a sentence what else runs on the machine now, and what that means for a run.
	Outlook string  `json:"outlook"`
	Groups  []Group `json:"groups"`
}

// Options of Examine; the zero value is a full examination.
type Options struct {
	Quick   bool         // leaves out the measurements: the group Noise and half of Metering
	Version string       // gateweigh's version
	Status  func(string) // is called with the name of each step that begins; may be nil
}

// Examine examines this machine. It needs root to try the kernel's features and to measure; without root, each such
// check says so. Examine returns an error when the examination fails, not when something is missing.
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
	host, err := local.Machine(ctx)
	if err != nil {
		return Report{}, err
	}
	defer host.Stop()
	reading, err := host.Machine(ctx)
	if err != nil {
		return Report{}, err
	}
	x := examination{
		opts: opts, placement: local.Describe().Placement, backend: local, host: host, machine: reading, scratch: folder,
		running: runningNow(),
		largest: largestExperiment(measure.Catalogue().Builtins()), personas: mostPersonas(measure.Catalogue().Builtins()),
	}
	outlook, err := runner.Foresee(ctx, host, local.Describe().CPUs)
	if err != nil {
		return Report{}, err
	}
	groups, err := x.all(ctx)
	if err != nil {
		return Report{}, err
	}
	found := newReport(groups)
	found.Outlook = words.Capitalised(outlook.String()) + "."
	if x.running.measuring {
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
	host      *backend.Host   // the machine itself, outside of any lab
	machine   machine.Machine
	scratch   string
	running   runningLab
	largest   runner.Demand
	personas  runner.Demand // of the experiment with the most clients of kind persona
}

// all makes all checks of an examination, by group.
func (x examination) all(ctx context.Context) ([]Group, error) {
	x.opts.Status("trying what the kernel can do")
	kernel, netnsSettings := x.kernel(ctx)
	x.opts.Status("looking at machine, tools and limits")
	machine, err1 := x.machineChecks(ctx)
	tools, err2 := x.tools(ctx)
	devices, err3 := x.devices(ctx, kernel)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	groups := []Group{
		{"Kernel", kernel}, {"Machine", machine}, {"Tools", tools}, {Devices, devices}, {"Limits", x.limits(netnsSettings)},
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

// newReport derives the verdict and the first remedy from the checks.
func newReport(groups []Group) Report {
	report := Report{Version: Version, Groups: groups}
	var blocking, here []string
	lacking := map[string][]string{} // devices of the default experiment that cannot run, by their remedy
	var rights string                // missing rights explain whatever else is missing
	for _, group := range groups {
		for _, check := range group.Checks {
			name, isDevice := strings.CutPrefix(check.Key, deviceKey)
			switch {
			case check.Key == keyRights && check.State == Missing:
				rights, report.First = check.Found, check.Remedy
			case check.Needed && check.State == Missing:
				blocking = append(blocking, check.Subject)
				report.First = cmp.Or(report.First, check.Remedy)
			case isDevice && check.State != Missing && slices.Contains(defaultExperiment().DUTs, name):
				here = append(here, name)
			case isDevice && slices.Contains(defaultExperiment().DUTs, name):
				lacking[check.Remedy] = append(lacking[check.Remedy], name)
			}
		}
	}
	switch {
	case rights != "":
		report.Verdict = "Nothing can run here as things are: " + rights + "."
	case len(blocking) > 0:
		report.Verdict = "Nothing can run here as things are: missing " + strings.Join(blocking, ", ") + "."
	case len(here) == 0:
		report.Verdict = "The lab works here, but none of the devices of the default experiment can run."
	default:
		report.CanRun = true
		report.First = mostNeededRemedy(lacking)
		report.Verdict = fmt.Sprintf("gateweigh run measures %s here.", strings.Join(here, ", "))
	}
	return report
}

// mostNeededRemedy returns the remedy that helps most devices, with their names. lacking maps a remedy to devices.
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

// reason returns an error's text in one line.
func reason(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// needsRoot is the remedy of checks that need root.
const needsRoot = "run it as root: sudo gateweigh doctor"

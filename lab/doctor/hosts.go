package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/scratch"
	"github.com/gateweigh/gateweigh/lab/words"
)

// ExamineFor asks all machines of an experiment's backend, at the same time, what they lack for it. An error means that
// the examination itself did not work.
func ExamineFor(ctx context.Context, e *experiment.Experiment, opts Options) (Report, error) {
	folder, done, err := scratch.New(scratch.Doctor)
	if err != nil {
		return Report{}, err
	}
	defer done()
	if opts.Status != nil {
		opts.Status("asking the machines")
	}
	s, err := runner.SurveyOf(ctx, measure.All().Of(e).Run(), e, backend.Options{Run: "doctor", LogDir: folder})
	if err != nil {
		return Report{}, err
	}
	return hostsReport(e, s), nil
}

// hostsReport draws the conclusion of a survey.
func hostsReport(e *experiment.Experiment, s runner.Survey) Report {
	r := Report{Version: Version, CanRun: s.Here}
	var lacks, where, here []string
	for _, site := range s.Sites {
		g := Group{site.Name(), siteChecks(e, site)}
		r.Groups = append(r.Groups, g)
		where = append(where, g.Name)
		if !site.Fit() {
			lacks = append(lacks, g.Name+" ("+strings.Join(blocking(g), ", ")+")")
		}
		r.First = cmp.Or(r.First, firstRemedy(g))
	}
	devices := Group{"Devices of the experiment", deviceChecks(s)}
	for _, d := range s.Devices {
		if d.Here {
			here = append(here, d.Name)
		}
	}
	for _, g := range []Group{devices, {"The lab", labChecks(s)}} {
		if len(g.Checks) > 0 {
			r.Groups = append(r.Groups, g)
		}
	}
	switch {
	case len(lacks) > 0:
		r.Verdict = fmt.Sprintf("Nothing of experiment %q", e.Name) + " can run as things are: look at " +
			strings.Join(lacks, "; ") + "."
	case !s.Here:
		r.Verdict = fmt.Sprintf("Nothing of experiment %q", e.Name) + " can run as things are: " + strings.Join(
			append(s.Problems, "none of its devices runs")[:max(1, len(s.Problems))], "; ") + "."
	default:
		r.Verdict = fmt.Sprintf("A run of %s measures %s on %s.", e.Name, words.Listed(here), words.Listed(where))
		r.First = cmp.Or(r.First, firstRemedy(devices))
	}
	return r
}

// blocking lists the missing subjects of a group without which nothing runs.
func blocking(g Group) (list []string) {
	for _, l := range g.Checks {
		if l.Needed && l.State == Missing {
			list = append(list, l.What)
		}
	}
	return list
}

// firstRemedy is the first thing to do about a group. Subjects without which nothing runs come first.
func firstRemedy(g Group) string {
	for _, needed := range []bool{true, false} {
		for _, l := range g.Checks {
			if l.State == Missing && l.Needed == needed {
				return l.Do
			}
		}
	}
	return ""
}

// siteChecks returns the checks of one machine.
func siteChecks(e *experiment.Experiment, s *runner.Site) (lines []Check) {
	key := cmp.Or(s.Host, "here") + "."
	defer func() {
		for i := range lines {
			lines[i].Key = key + lines[i].Key
		}
	}()
	lines = faultChecks(e, s)
	if s.Agent == nil {
		return lines
	}
	if s.Host != "" {
		found := "as " + s.User + "; the agent is installed there"
		if s.Brought {
			found = "as " + s.User + "; the agent is brought there for each run"
		}
		lines = append(lines, checkOf("connection", "connection", found, s.Machine.Release+" on "+s.Machine.Arch, ""))
	}
	for _, l := range s.Links {
		lines = append(lines, linkCheck(e, s.Host, l))
	}
	for _, n := range s.Needs {
		lines = append(lines, needCheck(n))
	}
	for _, l := range s.Limits {
		lines = append(lines, limitCheck(l))
	}
	cpus := s.Agent.CPUs
	if len(cpus) == 0 {
		cpus = s.Machine.Usable
	}
	x := examination{machine: s.Machine, placement: backend.Placement{Router: cpus}}
	root := checkOf("machine.root", "root", "yes", "hosts can be made and CPU time read", "")
	if root.Needed = true; !s.Machine.Root {
		root = missing(root.Key, root.What, "no: a run makes network namespaces", "run it as root: sudo gateweigh run")
	}
	if s.Unmetered != "" {
		lines = append(lines, checkOf("machine.clocks", "CPU time", "not measured here: "+s.Unmetered, "",
			"nothing for throughput, loss and round-trip times; for CPU time, another kernel"))
	}
	_, others := runningNow().parted(s.Busiest)
	return append(lines, root, x.rights(), diskCheck(s.Machine), clockCheck(s), keptCheck(s), x.frequency(), x.virtual(),
		x.quota(),
		otherPrograms(others))
}

// faultChecks returns a check for each reason why a machine cannot be a host.
func faultChecks(e *experiment.Experiment, s *runner.Site) (lines []Check) {
	for _, f := range s.Faults {
		what, do := backend.Remedy(f.Err)
		found := e.Blame(e.HostKeySet(f.Host, f.Key), what).Error()
		lines = append(lines, missing("connection", cmp.Or(f.Key, "address"), found,
			cmp.Or(do, "set it in the experiment's file, or look at that machine: ssh "+s.Address)))
	}
	return lines
}

// missing is the check of a missing subject without which nothing runs.
func missing(key, what, found, do string) Check {
	return Check{Key: key, State: Missing, What: what, Found: found, Do: do, Needed: true}
}

func linkCheck(e *experiment.Experiment, host string, l backend.LinkState) Check {
	key, what := "interface."+l.Name, l.Port+" "+l.Name
	if l.Port == "interface" {
		what = "interface " + l.Name
	}
	if l.Refused == "" {
		c := checkOf(key, what, "free", "lent to a run, and put back as it was", "")
		c.Needed = true
		return c
	}
	dotted := e.HostKeySet(host, l.Port)
	return missing(key, what, e.Blame(dotted, l.Refused).Error(), "name another interface in "+dotted)
}

// needCheck is the check of a program, or of a feature of the kernel.
func needCheck(n runner.NeedHere) Check {
	key, what, means := "tool."+n.Program, n.Program, "for "+strings.Join(n.Users, ", ")
	if n.Program == "" {
		key, what = "kernel."+strings.ReplaceAll(string(n.KernelFeature()), " ", "-"), string(n.KernelFeature())
	}
	c := checkOf(key, what, cmp.Or(n.Found.Path, "here"), means, "")
	bad := func(found, do string) {
		c.State, c.Means, c.Found, c.Do = Missing, "", found+"; "+means, do
	}
	switch f := n.Found; {
	case n.Absent(f) && n.Package != "":
		bad("not on PATH", "sudo apt-get install "+n.Package)
	case n.Absent(f):
		bad("not on PATH", n.Advice)
	case f.Broken != "":
		bad(f.Path+" does not start: "+f.Broken, n.Remedy())
	case f.NotPermitted != "":
		found, do, _ := strings.Cut(f.NotPermitted, machine.Arrow)
		bad(found, cmp.Or(do, "run it as root"))
	case f.FeatureError != "":
		bad(fmt.Sprintf("the kernel lacks %s: %s", n.KernelFeature(), f.FeatureError), featureRemedy(n.KernelFeature()))
	}
	c.Needed = n.Lab
	return c
}

// featureRemedy returns the remedy for a missing feature, as attempts have it.
func featureRemedy(f machine.Feature) string {
	if i := slices.IndexFunc(attempts, func(a attempt) bool { return a.what == string(f) }); i >= 0 {
		return attempts[i].do
	}
	return cmp.Or(f.Advice(), "a kernel with it")
}

func limitCheck(l runner.LimitHere) Check {
	c := checkOf("limit."+strings.ReplaceAll(l.What, " ", "-"), l.What,
		strings.TrimSpace(fmt.Sprintf("%d needed, %d there %s", l.Need, l.Have, l.Unit)), "", "")
	if !l.Enough {
		c.State, c.Do = Warn, l.Raise
		if l.Refuses {
			c.State, c.Needed = Missing, true
		}
	}
	return c
}

// leastFreeKiB is the space on a disk that the output of a run's programs may take.
const leastFreeKiB = 64 << 10

func diskCheck(m machine.Machine) Check {
	do := ""
	if m.FreeKiB < leastFreeKiB {
		do = fmt.Sprintf("make room in %s: the output of a run's programs is there until it ends", m.TempDir)
	}
	return checkOf("disk", "room on disk", fmt.Sprintf("%d MiB free in %s", m.FreeKiB>>10, m.TempDir),
		"what programs print is kept there until the run ends", do)
}

// farClock is a clock that is not kept right.
const farClock = 2 * time.Second

// clockCheck compares a machine's clock with the lab's.
func clockCheck(s *runner.Site) Check {
	found, do := "it is the lab's", ""
	if s.Host != "" {
		found = fmt.Sprintf("%+.3f s from the lab's, ± %.3f s", s.Ahead.Seconds(), s.Within.Seconds())
		if s.Ahead.Abs()-s.Within > farClock {
			do = "have it kept right, so that logs can be compared: apt-get install chrony, or timedatectl set-ntp true"
		}
	}
	return checkOf("clock", "clock", found, "logs can be compared; windows are measured by each machine's own clock", do)
}

// keptCheck says how well the machine's clock is kept, where that is asked for.
func keptCheck(s *runner.Site) Check {
	const key, what = "clock.kept", "chrony"
	switch {
	case s.Unkept != nil:
		return missing(key, what, s.Unkept.Error(), "or leave backend.clock out: one-way delays are left out then")
	case s.Kept.Reference != "":
		return checkOf(key, what, fmt.Sprintf("± %v of %s", s.Kept.Bound, s.Kept.Reference),
			"one-way delays have this bound, and the other end's", "")
	}
	return checkOf(key, what, "not asked for", "one-way delays of frames are left out where hosts are several machines",
		"")
}

// deviceChecks are the lines of the experiment's devices.
func deviceChecks(s runner.Survey) (lines []Check) {
	for _, problem := range s.Problems {
		lines = append(lines, missing("experiment", "the experiment", problem, "change its file"))
	}
	for _, d := range s.Devices {
		c := checkOf(deviceKey+d.Name, d.Name, "runs on the router's machine", "can be measured", "")
		if !d.Here {
			c.State, c.Means, c.Found, c.Do = Missing, "", d.Reason, "what is missing above"
			if d.Kernel != "" {
				c.Do = "or run it with --kernel " + d.Kernel
			}
		}
		lines = append(lines, c)
	}
	return lines
}

// labChecks are the lines of the machine that the lab itself runs on.
func labChecks(s runner.Survey) []Check {
	var disk unix.Statfs_t
	if err := unix.Statfs(".", &disk); err != nil {
		return []Check{checkOf("lab.disk", "room for a run", err.Error(), "", "look at the folder that runs are made in")}
	}
	free, do := float64(disk.Bavail)*float64(disk.Bsize)/(1<<20), ""
	if free < s.FolderMiB {
		do = "make room, or name another folder: gateweigh run --out"
	}
	return []Check{checkOf("lab.disk", "room for a run",
		fmt.Sprintf("%.0f MiB free here, and a run's folder takes about %.0f", free, s.FolderMiB), "", do)}
}

// Examines the machines of one experiment (gateweigh doctor EXPERIMENT).

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

// ExamineFor examines all machines of an experiment's backend at the same time: what each lacks for the experiment. It
// returns an error when the examination fails.
func ExamineFor(ctx context.Context, exp *experiment.Experiment, opts Options) (Report, error) {
	folder, done, err := scratch.New(scratch.Doctor)
	if err != nil {
		return Report{}, err
	}
	defer done()
	if opts.Status != nil {
		opts.Status("asking the machines")
	}
	survey, err := runner.SurveyOf(ctx, measure.All().Of(exp).Run(), exp, backend.Options{Run: "doctor", LogDir: folder})
	if err != nil {
		return Report{}, err
	}
	return hostsReport(exp, survey), nil
}

// hostsReport makes the report of a survey.
func hostsReport(exp *experiment.Experiment, survey runner.Survey) Report {
	report := Report{Version: Version, CanRun: survey.Here}
	var lacks, where, here []string
	for _, site := range survey.Sites {
		group := Group{site.Name(), siteChecks(exp, site)}
		report.Groups = append(report.Groups, group)
		where = append(where, group.Name)
		if !site.Fit() {
			lacks = append(lacks, group.Name+" ("+strings.Join(blocking(group), ", ")+")")
		}
		report.First = cmp.Or(report.First, firstRemedy(group))
	}
	devices := Group{"Devices of the experiment", deviceChecks(survey)}
	for _, device := range survey.Devices {
		if device.Here {
			here = append(here, device.Name)
		}
	}
	for _, group := range []Group{devices, {"The lab", labChecks(survey)}} {
		if len(group.Checks) > 0 {
			report.Groups = append(report.Groups, group)
		}
	}
	switch {
	case len(lacks) > 0:
		report.Verdict = fmt.Sprintf("Nothing of experiment %q", exp.Name) + " can run as things are: look at " +
			strings.Join(lacks, "; ") + "."
	case !survey.Here:
		report.Verdict = fmt.Sprintf("Nothing of experiment %q", exp.Name) + " can run as things are: " + strings.Join(
			append(survey.Problems, "none of its devices runs")[:max(1, len(survey.Problems))], "; ") + "."
	default:
		report.Verdict = fmt.Sprintf("A run of %s measures %s on %s.", exp.Name, words.Listed(here), words.Listed(where))
		report.First = cmp.Or(report.First, firstRemedy(devices))
	}
	return report
}

// blocking lists the subjects of a group that are missing and needed by every experiment.
func blocking(group Group) (list []string) {
	for _, check := range group.Checks {
		if check.Needed && check.State == Missing {
			list = append(list, check.Subject)
		}
	}
	return list
}

// firstRemedy returns the remedy of a group's first missing subject. Subjects that every experiment needs come first.
func firstRemedy(group Group) string {
	for _, needed := range []bool{true, false} {
		for _, check := range group.Checks {
			if check.State == Missing && check.Needed == needed {
				return check.Remedy
			}
		}
	}
	return ""
}

// siteChecks returns the checks of one machine.
func siteChecks(exp *experiment.Experiment, site *runner.Site) (checks []Check) {
	key := cmp.Or(site.Host, "here") + "."
	defer func() {
		for i := range checks {
			checks[i].Key = key + checks[i].Key
		}
	}()
	checks = faultChecks(exp, site)
	if site.Agent == nil {
		return checks
	}
	if site.Host != "" {
		found := "as " + site.User + "; the agent is installed there"
		if site.Brought {
			found = "as " + site.User + "; the agent is brought there for each run"
		}
		checks = append(checks, checkOf("connection", "connection", found, site.Machine.Release+" on "+site.Machine.Arch, ""))
	}
	for _, link := range site.Links {
		checks = append(checks, linkCheck(exp, site.Host, link))
	}
	for _, n := range site.Needs {
		checks = append(checks, needCheck(n))
	}
	for _, limit := range site.Limits {
		checks = append(checks, limitCheck(limit))
	}
	cpus := site.Agent.CPUs
	if len(cpus) == 0 {
		cpus = site.Machine.Usable
	}
	x := examination{machine: site.Machine, placement: backend.Placement{Router: cpus}}
	root := checkOf("machine.root", "root", "yes", "hosts can be made and CPU time read", "")
	if root.Needed = true; !site.Machine.Root {
		root = missing(root.Key, root.Subject, "no: a run makes network namespaces", "run it as root: sudo gateweigh run")
	}
	if site.Unmetered != "" {
		checks = append(checks, checkOf("machine.clocks", "CPU time", "not measured here: "+site.Unmetered, "",
			"nothing for throughput, loss and round-trip times; for CPU time, another kernel"))
	}
	_, others := runningNow().splitPrograms(site.Busiest)
	return append(checks, root, x.rights(), diskCheck(site.Machine), clockCheck(site), clockSyncCheck(site),
		x.frequency(), x.virtual(),
		x.quota(),
		otherPrograms(others))
}

// faultChecks returns a check for each reason why a machine cannot be a host.
func faultChecks(exp *experiment.Experiment, site *runner.Site) (checks []Check) {
	for _, f := range site.Faults {
		what, do := backend.Remedy(f.Err)
		found := exp.Blame(exp.HostKeySet(f.Host, f.Key), what).Error()
		checks = append(checks, missing("connection", cmp.Or(f.Key, "address"), found,
			cmp.Or(do, "set it in the experiment's file, or look at that machine: ssh "+site.Address)))
	}
	return checks
}

// missing is the check of a missing subject without which nothing runs.
func missing(key, what, found, do string) Check {
	return Check{Key: key, State: Missing, Subject: what, Found: found, Remedy: do, Needed: true}
}

// linkCheck returns the check of an interface that the experiment names for a host.
func linkCheck(exp *experiment.Experiment, host string, link backend.LinkState) Check {
	key, what := "interface."+link.Name, link.Port+" "+link.Name
	if link.Port == "interface" {
		what = "interface " + link.Name
	}
	if link.Refused == "" {
		check := checkOf(key, what, "free", "lent to a run, and put back as it was", "")
		check.Needed = true
		return check
	}
	dotted := exp.HostKeySet(host, link.Port)
	return missing(key, what, exp.Blame(dotted, link.Refused).Error(), "name another interface in "+dotted)
}

// needCheck is the check of a program, or of a feature of the kernel.
func needCheck(n runner.NeedHere) Check {
	key, what, means := "tool."+n.Program, n.Program, "for "+strings.Join(n.Users, ", ")
	if n.Program == "" {
		key, what = "kernel."+strings.ReplaceAll(string(n.KernelFeature()), " ", "-"), string(n.KernelFeature())
	}
	check := checkOf(key, what, cmp.Or(n.Found.Path, "here"), means, "")
	bad := func(found, do string) {
		check.State, check.Means, check.Found, check.Remedy = Missing, "", found+"; "+means, do
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
	check.Needed = n.Lab
	return check
}

// featureRemedy returns the remedy for a missing feature, from featureProbes if it is listed there.
func featureRemedy(needed machine.Feature) string {
	if i := slices.IndexFunc(featureProbes,
		func(probe featureProbe) bool { return probe.subject == string(needed) }); i >= 0 {
		return featureProbes[i].remedy
	}
	return cmp.Or(needed.Advice(), "a kernel with it")
}

// limitCheck returns the check of a limit of a machine, such as open files.
func limitCheck(limit runner.LimitHere) Check {
	check := checkOf("limit."+strings.ReplaceAll(limit.What, " ", "-"), limit.What,
		strings.TrimSpace(fmt.Sprintf("%d needed, %d there %s", limit.Need, limit.Have, limit.Unit)), "", "")
	if !limit.Enough {
		check.State, check.Remedy = Warn, limit.Raise
		if limit.Refuses {
			check.State, check.Needed = Missing, true
		}
	}
	return check
}

// minFreeKiB is the free space that the output of a run's programs needs, on the disk of the temporary folder.
const minFreeKiB = 64 << 10

// diskCheck checks the free space of a machine's temporary folder.
func diskCheck(reading machine.Machine) Check {
	do := ""
	if reading.FreeKiB < minFreeKiB {
		do = fmt.Sprintf("make room in %s: the output of a run's programs is there until it ends", reading.TempDir)
	}
	return checkOf("disk", "room on disk", fmt.Sprintf("%d MiB free in %s", reading.FreeKiB>>10, reading.TempDir),
		"what programs print is kept there until the run ends", do)
}

// maxClockOffset is the largest offset of a machine's clock from the lab's that is no warning.
const maxClockOffset = 2 * time.Second

// clockCheck compares a machine's clock with the lab's.
func clockCheck(site *runner.Site) Check {
	found, do := "it is the lab's", ""
	if site.Host != "" {
		found = fmt.Sprintf("%+.3f s from the lab's, ± %.3f s", site.Ahead.Seconds(), site.Within.Seconds())
		if site.Ahead.Abs()-site.Within > maxClockOffset {
			do = "have it kept right, so that logs can be compared: apt-get install chrony, or timedatectl set-ntp true"
		}
	}
	return checkOf("clock", "clock", found, "logs can be compared; windows are measured by each machine's own clock", do)
}

// clockSyncCheck returns the bound of the error of the machine's clock, if the experiment asks for one (backend.clock).
func clockSyncCheck(site *runner.Site) Check {
	const key, what = "clock.kept", "chrony"
	switch {
	case site.Unkept != nil:
		return missing(key, what, site.Unkept.Error(), "or leave backend.clock out: one-way delays are left out then")
	case site.Kept.Reference != "":
		return checkOf(key, what, fmt.Sprintf("± %v of %s", site.Kept.Bound, site.Kept.Reference),
			"one-way delays have this bound, and the other end's", "")
	}
	return checkOf(key, what, "not asked for", "one-way delays of frames are left out where hosts are several machines",
		"")
}

// deviceChecks returns the checks of the experiment's devices.
func deviceChecks(survey runner.Survey) (checks []Check) {
	for _, problem := range survey.Problems {
		checks = append(checks, missing("experiment", "the experiment", problem, "change its file"))
	}
	for _, device := range survey.Devices {
		check := checkOf(deviceKey+device.Name, device.Name, "runs on the router's machine", "can be measured", "")
		if !device.Here {
			check.State, check.Means, check.Found, check.Remedy = Missing, "", device.Reason, "what is missing above"
			if device.Kernel != "" {
				check.Remedy = "or run it with --kernel " + device.Kernel
			}
		}
		checks = append(checks, check)
	}
	return checks
}

// labChecks returns the checks of the machine on which the lab process runs.
func labChecks(survey runner.Survey) []Check {
	var disk unix.Statfs_t
	if err := unix.Statfs(".", &disk); err != nil {
		return []Check{checkOf("lab.disk", "room for a run", err.Error(), "", "look at the folder that runs are made in")}
	}
	free, do := float64(disk.Bavail)*float64(disk.Bsize)/(1<<20), ""
	if free < survey.FolderMiB {
		do = "make room, or name another folder: gateweigh run --out"
	}
	return []Check{checkOf("lab.disk", "room for a run",
		fmt.Sprintf("%.0f MiB free here, and a run's folder takes about %.0f", free, survey.FolderMiB), "", do)}
}

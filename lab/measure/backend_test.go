package measure_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/report"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// The tests of this file run small experiments on a backend with fewer abilities than the usual one, which is network
// namespaces of this machine: one lab at a time, or hosts without a common clock. load parses an experiment, which its
// errors call "idle.toml". tableWithIdle is the table of all measures, and of the measure "idle" (idle_test.go).

// limitedBackend makes its hosts as namespaces of this machine. It describes itself by can, and refuses to start more
// labs at the same time than can.AtOnce.
type limitedBackend struct {
	backend.Backend
	can backend.Description

	mu    sync.Mutex
	hosts []*backend.Host // all hosts that were started, also those that have ended
}

// describedAs returns a function that opens a limitedBackend. Its description is that of namespaces, after change.
func describedAs(change func(*backend.Description)) backend.Open {
	return func(ctx context.Context, o backend.Options) (backend.Backend, error) {
		b, err := backend.Local(ctx, o)
		if err != nil {
			return nil, err
		}
		l := &limitedBackend{Backend: b, can: b.Describe()}
		change(&l.can)
		return l, nil
	}
}

func (l *limitedBackend) Describe() backend.Description { return l.can }

// Start starts a host whose name is "lab/host". It refuses the host of another lab while can.AtOnce labs have hosts.
func (l *limitedBackend) Start(ctx context.Context, name string, metered bool) (*backend.Host, error) {
	l.mu.Lock()
	labs := map[string]bool{labName(name): true}
	for _, h := range l.hosts {
		select {
		case <-h.Done():
		default:
			labs[labName(h.Name)] = true
		}
	}
	l.mu.Unlock()
	if len(labs) > l.can.AtOnce {
		return nil, fmt.Errorf("%s: %d labs at the same time", name, len(labs))
	}
	h, err := l.Backend.Start(ctx, name, metered)
	if err == nil {
		l.mu.Lock()
		l.hosts = append(l.hosts, h)
		l.mu.Unlock()
	}
	return h, err
}

// labName returns the lab of a host's name: "a" of "a/router".
func labName(host string) string {
	lab, _, _ := strings.Cut(host, "/")
	return lab
}

// deviceTable defines a device "other" whose commands do nothing. frames is an experiment that sends frames through it.
const (
	deviceTable = "\n[dut.other]\nstart = \"true\"\nlogin = \"true\"\nopen = true\n"
	frames      = `duts = ["other"]
clients = [1]
offered_mbps = [10]
frame_sizes = [1514]
blocks = 1
aa_blocks = 0
windows = 1
window = "200ms"
warmup = "100ms"
redo = 0
[traffic]
kind = "frames"
`
)

// TestBackendOfOneLab: a backend with one lab at a time carries out measures that need one lab, one lab after the
// other. The measure "cost" compares two labs: its mode becomes "interleaved" (first one lab, then the other), and the
// run's notes say so.
func TestBackendOfOneLab(t *testing.T) {
	one := describedAs(func(d *backend.Description) { d.AtOnce = 1 })
	for text, planned := range map[string]int{
		"measure = \"logins\"\nduts = [\"other\"]\nclients = [2]\nblocks = 2\n": 2,
		frames: 2,
	} {
		e, dir := load(t, text+deviceTable), filepath.Join(t.TempDir(), "run")
		config := runner.Config{
			Measure: tableWithIdle().Of(e).Run(), Records: tableWithIdle().Of(e).Records(), Experiment: e, Dir: dir,
			Backend: one}
		out, err := runner.Run(t.Context(), config)
		if err != nil || len(out.Failed) > 0 || out.Planned != planned || out.Open > 0 {
			t.Errorf("%s: %v: %+v", e.Measure, err, out)
		}
		run, err := measure.ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		notes, want := strings.Join(run.Environment.Notes, "\n"), `mode = "interleaved" instead of "duet"`
		if changed := run.Environment.Mode == result.ModeInterleaved; changed != (e.Measure == cost.Name) ||
			changed != strings.Contains(notes, want) {
			t.Errorf("%s: mode %s, notes: %s", e.Measure, run.Environment.Mode, notes)
		}
	}
}

// TestBackendOfOneLabRefuses: a backend with one lab at a time refuses experiments that need two.
func TestBackendOfOneLabRefuses(t *testing.T) {
	e := load(t, "profile_window = \"1s\"\n"+frames+deviceTable)
	_, _, err := runner.Fit(backend.Description{AtOnce: 1}, e)
	if want := "idle.toml:1: profile_window: does not go with mode = \"interleaved\""; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestNotesOfClocks: only figures that compare times of two hosts have a note on the hosts' clocks.
func TestNotesOfClocks(t *testing.T) {
	const transition = "measure = \"transition\"\nduts = [\"clean\"]\nclients = [1]\n"
	const rest = "duts = [\"clean\"]\nclients = [1]\nframe_sizes = [1514]\n"
	for text, want := range map[string]string{
		frames + deviceTable: "One-way delays",
		"duts = [\"opennds\"]\nclients = [1]\noffered_mbps = [10]\n": "",
		"measure = \"throughput\"\n" + rest:                          "",
		transition:                                                   "Times between hosts",
	} {
		if got := load(t, text).TimesBetweenHosts(); got != want {
			t.Errorf("times between hosts %q, want %q, of\n%s", got, want, text)
		}
	}
	clock := backend.Clock{Common: true, Bound: 200 * time.Microsecond}
	const want = "Times between hosts are of two clocks, which differ by up to ± 200µs."
	if got := clock.Note(load(t, transition).TimesBetweenHosts()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBackendWithoutCommonClock: without a common clock of the hosts, one-way delays are left out of records, summary
// and report, and the report says so. The measure "transition", which needs a common clock, is refused.
func TestBackendWithoutCommonClock(t *testing.T) {
	apart := describedAs(func(d *backend.Description) { d.Clock = backend.Clock{} })
	e, dir := load(t, frames+deviceTable), filepath.Join(t.TempDir(), "run")
	config := runner.Config{
		Measure: tableWithIdle().Of(e).Run(), Records: tableWithIdle().Of(e).Records(), Experiment: e, Dir: dir,
		Backend: apart}
	if out, err := runner.Run(t.Context(), config); err != nil || len(out.Failed) > 0 {
		t.Fatalf("%v: %+v", err, out)
	}
	run, err := measure.ReadRun(dir)
	if err != nil || len(run.Trials) == 0 {
		t.Fatalf("%d trials: %v", len(run.Trials), err)
	}
	for _, trial := range run.Trials {
		_, delay := cost.SidesOf(trial).DUT.Metrics[cost.DelayP99]
		if _, jitter := cost.SidesOf(trial).DUT.Metrics[cost.Jitter]; delay || !jitter {
			t.Errorf("metrics %v: want jitter, which needs one clock only, and no delay", cost.SidesOf(trial).DUT.Metrics)
		}
	}
	summary := measure.Summarise(run, analysis.Options{})
	for _, c := range summary.Cells {
		if c.Device(cost.DelayP99).Mean.Known() {
			t.Errorf("delay of %s: %+v", c.Cell, c.Device(cost.DelayP99))
		}
	}
	var page bytes.Buffer
	if err := report.HTML(&page, run, summary); err != nil {
		t.Fatal(err)
	}
	const note = "One-way delays are left out: the hosts have no common clock."
	if !strings.Contains(page.String(), note) || strings.Contains(page.String(), ">NaN") {
		t.Errorf("the report does not say %q, or shows a figure that is not a number", note)
	}

	e = load(t, "measure = \"transition\"\nduts = [\"clean\"]\nclients = [1]\n")
	config.Measure, config.Experiment, config.Dir = tableWithIdle().Of(e).Run(), e, filepath.Join(t.TempDir(), "run")
	const want = "idle.toml:1: measure: this backend's hosts have no common clock"
	if _, err := runner.Run(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

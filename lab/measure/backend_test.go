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

// limitedBackend is a backend that can less than namespaces of one machine: what it cannot do is an error.
type limitedBackend struct {
	backend.Backend
	can backend.Description

	mu    sync.Mutex
	hosts []*backend.Host // started
}

// describedAs opens namespaces that describe themselves in another way.
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

// Start refuses the host of a lab while as many others stand as there can be.
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

func labName(host string) string {
	lab, _, _ := strings.Cut(host, "/")
	return lab
}

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

// TestBackendOfOneLab: measures of one lab are carried out, one lab after the other. What compares two is interleaved
// without being asked, and says so.
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

// TestBackendOfOneLabRefuses: what takes two labs is refused where there can be one.
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

// TestBackendWithoutCommonClock: delays from host to host are left out, and the run says so; what needs one clock is
// refused.
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
		t.Errorf("the report does not say %q, or shows what is no number", note)
	}

	e = load(t, "measure = \"transition\"\nduts = [\"clean\"]\nclients = [1]\n")
	config.Measure, config.Experiment, config.Dir = tableWithIdle().Of(e).Run(), e, filepath.Join(t.TempDir(), "run")
	const want = "idle.toml:1: measure: this backend's hosts have no common clock"
	if _, err := runner.Run(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

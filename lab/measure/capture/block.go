package capture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// run measures the blocks of one run. It remembers what it has noted in the run's environment, so each is there once.
type run struct{ noted map[string]bool }

var _ runner.Measure = run{}

// Run returns what measures the blocks of one run.
func (Measure) Run() runner.Measure { return run{map[string]bool{}} }

// Lacks is false: a cell has nothing besides its windows.
func (run) Lacks(*runner.Session, experiment.Block, result.Cell) bool { return false }

// Fits leaves out devices that do not capture, or in none of the ways that are asked for.
func (run) Fits(e *experiment.Experiment, device string, _ dut.Traits) error {
	if !dut.Captures(device) {
		return fmt.Errorf("%s: it is no device that captures: %w", device, dut.ErrNotSupported)
	}
	var refusal error
	for _, s := range settings(e) {
		if _, fits := reduce(e, device, s); fits {
			return nil
		}
		_, refusal = dut.NewCapture(device, howOf(s.Cell))
	}
	return fmt.Errorf("%w: %w", refusal, dut.ErrNotSupported)
}

// block is a block whose lab stands.
type block struct {
	*runner.Session
	experiment.Block
	*lab
	second bool // at the present load, programs waited for a second CPU that is also the generator's
}

// Block measures all loads with one device, or with all of them together, in one lab: that of the block's first cells,
// which stands for all windows. The record of the block is there only with an error or with loads that were left out:
// what was measured is in the trials, which are written window by window.
func (r run) Block(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	r.note(s, eb)
	loads := byLoad(eb.Cells)
	s.Status("%s: building the lab", s.Name(eb))
	l, err := open(ctx, s.Labs(eb), s.Placement, loads[0])
	if err != nil {
		return nil, err
	}
	b := &block{Session: s, Block: eb, lab: l}
	crowded, left := math.Inf(1), []result.Cell(nil)
	for _, cells := range loads {
		if cells[0].Number(result.OfferedMbps) >= crowded {
			left = append(left, cells...)
			continue
		}
		b.second = false
		for _, w := range b.todo(cells) {
			if err == nil {
				err = b.window(ctx, cells, w)
			}
		}
		if err == nil && b.crowded(cells) {
			crowded, left = b.stop(cells), append(left, cells...)
		}
	}
	for _, c := range left {
		s.LeaveOut(eb, c)
	}
	if ctx.Err() == nil {
		if failed := l.leave(ctx); failed != nil && err == nil { // noted; the windows count
			s.Left(eb, failed)
		}
	}
	if err = errors.Join(err, l.Close()); err == nil && left == nil {
		return nil, nil
	}
	return &result.Block{SetupSeconds: l.setup.Seconds(), LeftOut: left}, err
}

// note says in the environment, once, what the machine has too few CPUs for, and which settings a device refuses.
func (r run) note(s *runner.Session, eb experiment.Block) {
	second := slices.ContainsFunc(eb.Cells, func(c result.Cell) bool { return c.Int(result.CPUs) > 1 })
	if second && s.Placement.SecondShared() {
		r.say(s, "The second CPU of capture programs is also the generator's: the machine has no other that labs may use.")
	}
	for _, c := range eb.Cells {
		for _, setting := range settings(s.Experiment) {
			device := c.Text(result.DUT)
			if _, fits := reduce(s.Experiment, device, setting); !fits {
				_, refusal := dut.NewCapture(device, howOf(setting.Cell))
				r.say(s, fmt.Sprintf("Not measured with %s: %v.", analysis.Label(setting.Cell.Without(result.FrameSize)), refusal))
			}
		}
	}
}

// say notes a text in the environment, once.
func (r run) say(s *runner.Session, text string) {
	if !r.noted[text] {
		r.noted[text] = true
		s.Note(text)
		s.Notice("%s", text)
	}
}

// crowded reports whether a load had no accepted trial, and the generator left the programs too little of their second
// CPU. What else rejects trials may be gone at the next load.
func (b *block) crowded(cells []result.Cell) bool { return b.second && b.Refused(b.Block, cells[0]) }

// stop ends the block's loads at one that was crowded, and returns that. The summary says it of all blocks together.
func (b *block) stop(cells []result.Cell) float64 {
	load := cells[0].Number(result.OfferedMbps)
	b.Notice("%s: not measured from %g Mbit/s on: there the generator needs too much of the second CPU.", b.Name(b.Block),
		load)
	return load
}

// byLoad groups cells that are measured at the same time, by load in the order of the list.
func byLoad(cells []result.Cell) (loads [][]result.Cell) {
	for _, c := range cells {
		i := slices.IndexFunc(loads, func(l []result.Cell) bool {
			return l[0].Number(result.OfferedMbps) == c.Number(result.OfferedMbps)
		})
		if i < 0 {
			i, loads = len(loads), append(loads, nil)
		}
		loads[i] = append(loads[i], c)
	}
	for _, l := range loads { // each device has the same host at all loads
		slices.SortFunc(l, func(a, b result.Cell) int { return result.CompareCells(a, b, result.DUT) })
	}
	return loads
}

// todo lists the windows that are not settled in one of the cells.
func (b *block) todo(cells []result.Cell) (windows []int) {
	for _, c := range cells {
		windows = append(windows, b.Todo(b.Block, c)...)
	}
	slices.Sort(windows)
	return slices.Compact(windows)
}

// window measures a load until it is accepted, or was tried often enough. All cells have the same frames, so they have
// the same attempts and rejects; each has a record of its own.
func (b *block) window(ctx context.Context, cells []result.Cell, w int) error {
	mbps := cells[0].Number(result.OfferedMbps)
	n, length := sent(b.Experiment, b.traffic.Frames.Name, mbps)
	load := b.load(mbps, length, 0)
	if count.Of(b.Experiment) > 0 {
		load = b.load(mbps, length, n)
	}
	b.Status("%s: at %g Mbit/s, window %d", b.Name(b.Block), mbps, w+1)
	return b.SettleAll(b.Block, cells, w, func(a runner.Attempt) (func(*result.Writer) error, []string, error) {
		o, err := b.observe(ctx, load, length)
		if err != nil {
			return nil, nil, fmt.Errorf("at %g Mbit/s: window %d: %w", mbps, w+1, err)
		}
		rejects := o.judge(b.Experiment.Router.Speed, b.Session.CPUs)
		b.second = b.second || o.crowded()
		trials := make([]*Trial, len(cells))
		for i, c := range cells {
			t := o.trial(i)
			t.Head, t.Cell, t.Window = a.Head(b.Block), c, w
			t.SetupSeconds, t.Seconds = b.setup.Seconds(), time.Since(a.Start).Seconds()
			t.Rejects, t.Accepted = rejects, len(rejects) == 0
			trials[i] = t
		}
		return func(w *result.Writer) error {
			for _, t := range trials {
				if err := w.Append(KindCapture, t); err != nil {
					return err
				}
			}
			return nil
		}, rejects, nil
	})
}

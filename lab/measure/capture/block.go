package capture

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/runner"
)

// run is the state of one run: the texts already noted in the run's environment, so that each is noted once.
type run struct{ noted map[string]bool }

// Run returns the functions that measure the blocks of one run.
func (Measure) Run() runner.Measure {
	return runner.Measure{Block: run{map[string]bool{}}.carryOut, Fits: fits}
}

// fits refuses a device that cannot capture, or that refuses all settings of the experiment. Both errors wrap
// dut.ErrNotSupported.
func fits(e *experiment.Experiment, device string, _ dut.Traits) error {
	if !dut.Captures(device) {
		return fmt.Errorf("%s: it is no device that captures: %w", device, dut.ErrNotSupported)
	}
	var refusal error
	for _, s := range settings(e) {
		if _, fits := reduce(e, device, s); fits {
			return nil
		}
		_, refusal = dut.NewCapture(device, captureSettings(s.Cell))
	}
	return fmt.Errorf("%w: %w", refusal, dut.ErrNotSupported)
}

// block is a block whose lab is open.
type block struct {
	*runner.Session
	experiment.Block
	*lab
	second bool // at the present load, programs waited too long for a second CPU that the generator uses too
}

// carryOut measures all loads of a block with one device, or with several devices together. One lab, built for the
// cells of the first load, serves all windows. Trials are written after each window. carryOut returns a block record
// only if the block failed or if it left out loads; otherwise the record is nil.
func (r run) carryOut(ctx context.Context, s *runner.Session, eb experiment.Block) (*result.Block, error) {
	r.noteLimits(s, eb)
	loads, labs := byLoad(eb.Cells), s.Labs(eb)
	s.Status("%s: building the lab", s.Name(eb))
	l, err := open(ctx, labs, s.Placement, loads[0])
	if err != nil {
		return nil, err
	}
	b := &block{Session: s, Block: eb, lab: l}
	left, err := b.loads(ctx, loads)
	for _, c := range left {
		s.LeaveOut(eb, c)
	}
	if err = bench.End(ctx, err, labs.Left, l); err == nil && left == nil {
		return nil, nil
	}
	return &result.Block{SetupSeconds: l.setup.Seconds(), LeftOut: left}, err
}

// loads measures all loads, and returns the cells of the loads that it left out: those from the first crowded load on.
func (b *block) loads(ctx context.Context, loads [][]result.Cell) (left []result.Cell, err error) {
	crowded := math.Inf(1)
	for _, cells := range loads {
		if cells[0].Number(result.OfferedMbps) >= crowded {
			left = append(left, cells...)
			continue
		}
		b.second = false
		for _, w := range b.windowsLeft(cells) {
			if err == nil {
				err = b.window(ctx, cells, w)
			}
		}
		if err == nil && b.crowded(cells) {
			crowded, left = b.stop(cells), append(left, cells...)
		}
	}
	return left, err
}

// noteLimits notes in the run's environment that the machine has too few CPUs, and which settings a device refuses.
func (r run) noteLimits(s *runner.Session, eb experiment.Block) {
	second := slices.ContainsFunc(eb.Cells, func(c result.Cell) bool { return c.Int(CPUs) > 1 })
	if second && s.Placement.SecondShared() {
		r.noteOnce(s, "The second CPU of capture programs is also the generator's: the machine has no other that labs may "+
			"use.")
	}
	for _, c := range eb.Cells {
		for _, setting := range settings(s.Experiment) {
			device := c.Text(result.DUT)
			if _, fits := reduce(s.Experiment, device, setting); !fits {
				_, refusal := dut.NewCapture(device, captureSettings(setting.Cell))
				r.noteOnce(s, fmt.Sprintf("Not measured with %s: %v.", Dimensions.Label(setting.Cell.Without(result.FrameSize)),
					refusal))
			}
		}
	}
}

// noteOnce notes a text in the run's environment and shows it to the user, if it has not done so before.
func (r run) noteOnce(s *runner.Session, text string) {
	if !r.noted[text] {
		r.noted[text] = true
		s.Note(text)
		s.Notice("%s", text)
	}
}

// crowded reports whether higher loads are pointless: no trial of this load was accepted, and the generator left the
// programs too little of their second CPU. Other reasons for rejection may not hold at the next load.
func (b *block) crowded(cells []result.Cell) bool { return b.second && b.Refused(b.Block, cells[0]) }

// stop tells the user that the block ends at a crowded load, and returns that load in Mbit/s. The summary repeats this
// for all blocks together.
func (b *block) stop(cells []result.Cell) float64 {
	load := cells[0].Number(result.OfferedMbps)
	b.Notice("%s: not measured from %g Mbit/s on: there the generator needs too much of the second CPU.", b.Name(b.Block),
		load)
	return load
}

// byLoad groups cells by their load, in the order in which the loads first appear. Cells of a group are measured at the
// same time.
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
	for _, l := range loads { // sorted, so that a device has the same host at all loads
		slices.SortFunc(l, func(a, b result.Cell) int { return result.CompareCells(a, b, result.DUT) })
	}
	return loads
}

// windowsLeft lists the numbers of the windows that at least one of the cells still needs, ascending.
func (b *block) windowsLeft(cells []result.Cell) (windows []int) {
	for _, c := range cells {
		windows = append(windows, b.Todo(b.Block, c)...)
	}
	slices.Sort(windows)
	return slices.Compact(windows)
}

// window measures window w of a load, and again until a trial is accepted or the attempts are used up. All cells see
// the same frames, so they share attempts and rejects. Each cell gets its own record.
func (b *block) window(ctx context.Context, cells []result.Cell, w int) error {
	mbps := cells[0].Number(result.OfferedMbps)
	n, length := framesAndTime(b.Experiment, b.traffic.Frames.Name, mbps)
	load := b.load(mbps, length, 0)
	if count.Value(b.Experiment) > 0 {
		load = b.load(mbps, length, n)
	}
	b.Status("%s: at %g Mbit/s, window %d", b.Name(b.Block), mbps, w+1)
	return b.MeasureCells(b.Block, cells, w, KindCapture, func(runner.Attempt) ([]result.Record, []string, error) {
		o, err := b.observe(ctx, load, length)
		if err != nil {
			return nil, nil, fmt.Errorf("at %g Mbit/s: window %d: %w", mbps, w+1, err)
		}
		b.second = b.second || o.crowded()
		var trials []result.Record
		for i, c := range cells {
			t := o.trial(i)
			t.Cell, t.Window, t.SetupSeconds = c, w, b.setup.Seconds()
			trials = append(trials, t)
		}
		rejects, err := o.judge()
		return trials, rejects, err
	})
}

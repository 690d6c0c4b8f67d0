package runner

import (
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/measure/side"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/testbed"
)

// Session is what a run hands to its measure: where to build labs, what is still to be measured,
// and where records and messages go.
type Session struct {
	Experiment *experiment.Experiment
	Dir        string // the run's folder
	Placement  testbed.Placement
	CPUs       int           // of the routers' machine
	Machine    *testbed.Host // answers for the machine that carries the routers
	run        *run
}

func (r *run) session() *Session {
	return &Session{Experiment: r.cfg.Experiment, Dir: r.cfg.Dir, Placement: r.placement, CPUs: r.machine.Online, Machine: r.agent, run: r}
}

// Labs are the labs of a block.
func (s *Session) Labs(b experiment.Block) side.Labs {
	return side.Labs{
		Backend: s.run.backend, Experiment: s.Experiment, DUT: b.DUT(), DUTLab: b.DUTLab, Sides: s.Experiment.Labs(b), Aggregate: b.Cell.Text(result.Profile) == result.Bulk,
	}
}

// Name is a block in messages.
func (s *Session) Name(b experiment.Block) string {
	name := b.DUT()
	if b.AA {
		name = "clean against clean"
	}
	if !b.Cell.Has(result.Direction) { // its clients alone tell it from others of the plan
		name += fmt.Sprintf(", %d clients", b.Clients())
	}
	return fmt.Sprintf("%s, block %d", name, b.Index+1)
}

// Status shows what happens now, Notice what deserves a line of its own.
func (s *Session) Status(format string, args ...any) { s.run.status(format, args...) }
func (s *Session) Notice(format string, args ...any) { s.run.notice(format, args...) }

// Note adds a line to what the run's environment says.
func (s *Session) Note(text string) { s.run.env.Notes = append(s.run.env.Notes, text) }

// Todo lists the windows of a block's cell that are not settled.
func (s *Session) Todo(b experiment.Block, cell result.Cell) (windows []int) {
	for w := range s.Experiment.Windows {
		if !s.run.windows[keyOf(b, cell, w)].settled {
			windows = append(windows, w)
		}
	}
	return windows
}

// Settled reports whether no window of a block is left to measure.
func (s *Session) Settled(b experiment.Block) bool {
	_, _, open := s.run.tally([]experiment.Block{b})
	return open == 0
}

// Attempt is one measurement of a window, for its record.
type Attempt struct {
	Number  int // counts from 0, with those of earlier sittings: the redos are the window's
	Sitting int
	Start   time.Time // UTC
}

// Head begins the record of an attempt at a window of a block; Seconds, Accepted and Rejects are
// the measure's to fill in.
func (a Attempt) Head(b experiment.Block) result.Head {
	return result.Head{Block: b.Index, Attempt: a.Number, Sitting: a.Sitting, Start: a.Start}
}

// Settle has a window measured, again while it is rejected, and counts every attempt. Measure
// returns how to write the record, and why it is rejected: no reasons, and it stands. What is
// written is on the disk before the next attempt begins.
func (s *Session) Settle(b experiment.Block, cell result.Cell, window int,
	measure func(Attempt) (write func(*result.Writer) error, rejects []string, err error)) error {
	key := keyOf(b, cell, window)
	for n := s.run.windows[key].tried; ; n++ {
		write, rejects, err := measure(Attempt{Number: n, Sitting: s.run.sitting, Start: time.Now().UTC()})
		if err != nil {
			return err
		}
		if err := write(s.run.writer); err != nil {
			return fmt.Errorf("%w: %w", errStorage, err)
		}
		if s.run.count(key, n, len(rejects) == 0); s.run.windows[key].settled {
			return nil
		}
		s.Status("%s: measuring again: %s", s.Name(b), rejects[0])
	}
}

package runner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Session is one call of Run. It tells the measure where to build labs, what is still to be measured, and where records
// and messages go.
type Session struct {
	Experiment          *experiment.Experiment
	Dir                 string        // the run's folder
	backend.Description               // abilities and place of the backend
	Machine             *backend.Host // answers for the machine that carries the routers
	Precedes            bool          // the lab has priority over the machine's other programs

	cfg         Config
	backend     backend.Backend
	found       machine.Machine // the machine at the beginning of the run
	sites       sites
	foundOn     map[string]machine.Machine // by host, where hosts are on several machines
	writer      *result.Writer
	env         result.Environment
	ports       sync.Once // see notePorts
	plan        []experiment.Block
	sitting     int  // number of resumes
	interrupted bool // an earlier sitting did not end in order
	windows     map[windowKey]window
	attempts    []result.Entry    // of earlier sittings
	complete    map[blockKey]bool // blocks that an earlier sitting recorded without an error
	took        map[string]int    // largest number of clients in a block that the device completed
	burned      bool              // noteBurner has reported a burner
	broke       map[string]int    // number of clients at which the device broke; blocks with as many or more are left out
	clock       *clock
	again       time.Duration  // time spent on repeated windows in this sitting
	budget      time.Duration  // time allowed for that, see spare
	spent       time.Duration  // time of all blocks, over all sittings
	leaving     string         // error when the labs of the present block were closed
	rejected    int            // rejected trials of this sitting
	reasons     map[string]int // their reasons with counts; texts have no digits
	reason      string         // latest text of the most frequent reason
	recorded    time.Time      // time of the last recorded attempt or block, or of the beginning of the sitting
	began       time.Time      // beginning of the sitting
	progress    result.Progress
}

// Labs returns the labs of a block.
func (s *Session) Labs(b experiment.Block) bench.Labs {
	link := s.Experiment.Link
	labs := bench.Labs{
		Backend: s.backend, Experiment: s.Experiment, DUT: b.DUT(), DUTLab: b.DUTLab, Like: b.Like,
		Sides:     s.Experiment.Labs(b),
		Aggregate: b.Cell.Text(result.Profile) == result.Bulk, CPUs: s.CPUs, Left: func(err error) { s.noteLeaving(b, err) },
		Built:   s.notePorts,
		Between: agent.Shape{RateMbps: b.Cell.Number(result.LinkMbps), Delay: link.Delay, LossPct: link.LossPct},
	}
	if speed := s.Experiment.Router.Speed; speed > 0 {
		labs.Slowed, labs.Speed = s.Machine, speed
	}
	return labs
}

// Slow slows the routers' CPUs down to a share of their time until restore is called. A speed of 1 changes nothing. It
// is for measures with a key for the speed.
func (s *Session) Slow(ctx context.Context, speed float64, key string) (restore func() error, err error) {
	if speed == 1 {
		return func() error { return nil }, nil
	}
	if err := slowTo(ctx, s.Machine, s.Placement, s.Experiment, speed, key); err != nil {
		return nil, err
	}
	return func() error { return s.Machine.Slow(context.WithoutCancel(ctx), agent.Slow{Speed: 1}) }, nil
}

// Name returns a block's name for messages.
func (s *Session) Name(b experiment.Block) string {
	name := b.DUT()
	switch {
	case b.AA && s.Experiment.Interleaved():
		name = "clean again, for the noise floor"
	case b.AA:
		name = "clean against clean"
	case b.Control && b.Like != "":
		name = "clean, with the links of " + b.Cell.Text(result.LinkSettings)
	}
	if !b.Cell.HasDimension(result.Direction) && b.Cell.HasDimension(result.Clients) {
		// Only the number of clients distinguishes the block from others of the plan.
		name += ", " + words.Counted(b.Clients(), "client")
	}
	unit := "block"
	if s.Experiment.Interleaved() {
		unit = "round"
	}
	return fmt.Sprintf("%s, %s %d", name, unit, b.Index+1)
}

// Status reports the present activity. Notice reports an event that deserves a line of its own.
func (s *Session) Status(format string, args ...any) { s.show(false, format, args...) }

func (s *Session) Notice(format string, args ...any) { s.show(true, format, args...) }

func (s *Session) show(notice bool, format string, args ...any) {
	if s.cfg.Status == nil {
		return
	}
	p := Progress{Text: fmt.Sprintf(format, args...), Notice: notice, Rejected: s.rejected, Reason: s.reason}
	if s.clock != nil {
		p.Done, p.Left = s.clock.state()
	}
	s.cfg.Status(p)
}

// noteLeaving records an error of closing a block's labs. No trial is lost by it.
func (s *Session) noteLeaving(b experiment.Block, err error) {
	s.leaving = err.Error()
	s.Notice("%s: its trials stand, but leaving the labs went wrong: %v", s.Name(b), err)
}

// Note adds a line to the notes in the run's environment.
func (s *Session) Note(text string) { s.env.Notes = append(s.env.Notes, text) }

// Unnote removes the notes that begin with a text, also those of earlier sittings.
func (s *Session) Unnote(beginning string) {
	s.env.Notes = slices.DeleteFunc(s.env.Notes, func(text string) bool { return strings.HasPrefix(text, beginning) })
}

// Complete reports whether an earlier sitting has recorded a block without an error.
func (s *Session) Complete(b experiment.Block) bool {
	return s.complete[blockKey{b.Cell, b.AA, b.Index}]
}

// noteEmulated notes once that the run's CPU is emulated.
func (s *Session) noteEmulated() {
	if s.env.VM.Mark() == "" {
		return
	}
	const text = "Relative, emulated CPU: QEMU emulates the guest's CPU (TCG), so only ratios within this run mean " +
		"something."
	s.Notice("%s", text)
	if !slices.Contains(s.env.Notes, text) {
		s.Note(text)
	}
}

// noteDenied notes that the lab was refused priority over the machine's other programs. A lab with frames asks for
// real-time priority, one with TCP for less.
func (s *Session) noteDenied() {
	note, may := "Routers, clients and servers do not go before the machine's other programs, which is not permitted "+
		"here (it takes root or CAP_SYS_NICE): beside busy programs trials are rejected.", s.found.Precedes
	if traffic.KindOf(s.Experiment.Traffic.Kind).Frames {
		note, may = "Threads that send frames and poll links do not go before other programs, which is not permitted here "+
			"(it takes root or CAP_SYS_NICE): frames may leave late or get lost, and trials be rejected for it.",
			s.found.RealTime
	}
	if may || slices.Contains(s.env.Notes, note) {
		return
	}
	s.Notice("%s", note)
	s.Note(note)
}

// noteBurner notes, once a sitting, that another program loads the machine's CPUs during a run without router.speed. A
// run with router.speed loads them itself and holds the burner's lock.
func (s *Session) noteBurner() {
	process, burning := burn.Running()
	if !burning || s.burned || s.Experiment.Router.Speed > 0 {
		return
	}
	s.burned = true
	text := fmt.Sprintf(
		"gateweigh burn%s loads this machine's CPUs while the run measures: figures are those of what it leaves. End it "+
			"and measure again, or slow the routers with router.speed.", process)
	s.Notice("%s", text)
	s.Note(text)
}

// noteThrottled notes for how long a control group has throttled the lab since before the run.
func (s *Session) noteThrottled(ctx context.Context, before machine.Quota) {
	if before.CPUs == 0 {
		return
	}
	now, err := s.Machine.Machine(context.WithoutCancel(ctx))
	if throttled := now.Quota.Throttled - before.Throttled; err == nil && throttled > 0 {
		// On an error the machine's agent has ended, and the run reports that.
		text := fmt.Sprintf(
			"A control group stopped the lab's programs for %.2f s in all, because %.3g CPUs were used up (%s): trials may "+
				"have been rejected for that.", throttled, before.CPUs, before.File)
		s.Notice("%s", text)
		s.Note(text)
	}
}

// Todo lists the windows of a block's cell that are still to be measured.
func (s *Session) Todo(b experiment.Block, cell result.Cell) (windows []int) {
	for w := range s.Experiment.Windows {
		if !s.windows[keyOf(b, cell, w)].done {
			windows = append(windows, w)
		}
	}
	return windows
}

// Refused reports whether windows of a block's cell were measured and none has an accepted trial.
func (s *Session) Refused(b experiment.Block, cell result.Cell) bool {
	settled := false
	for n := range s.Experiment.Windows {
		w := s.windows[keyOf(b, cell, n)]
		if w.accepted {
			return false
		}
		settled = settled || w.done
	}
	return settled
}

// LeaveOut removes the windows of a block's cell that have no accepted trial from the plan, because this machine cannot
// measure them. The block's record says so.
func (s *Session) LeaveOut(b experiment.Block, cell result.Cell) { s.leaveOut(cell, b.AA, b.Index) }

func (s *Session) leaveOut(cell result.Cell, aa bool, block int) {
	for n := range s.Experiment.Windows {
		key := windowKey{cell, aa, block, n}
		w := s.windows[key]
		w.leftOut, w.done = true, true
		s.windows[key] = w
	}
}

// WindowsDone reports whether no window of a block is left to measure.
func (s *Session) WindowsDone(b experiment.Block) bool {
	_, _, open := s.tally([]experiment.Block{b})
	return open == 0
}

// Attempt is one measurement of a window.
type Attempt struct {
	Number  int // counts from 0 over all sittings, because redos are counted for each window
	Sitting int
	Start   time.Time // UTC
	Elapsed float64   // s since the sitting began, by the monotonic clock
	since   time.Time
}

// Took returns how long the attempt has taken so far. It includes building and warming up since the attempt before.
func (a Attempt) Took() time.Duration { return time.Since(a.since) }

// complete fills in the head of a record. Seconds is the time since the attempt began, unless the measure has set it.
func (a Attempt) complete(r result.Record, b experiment.Block, rejects []string) {
	h := result.HeadOf(r)
	*h = result.Head{
		Block: b.Index, Attempt: a.Number, Sitting: a.Sitting, Start: a.Start, Elapsed: a.Elapsed,
		Seconds: cmp.Or(h.Seconds, time.Since(a.Start).Seconds()), Accepted: len(rejects) == 0, Rejects: rejects,
	}
}

// Measured is the result of an attempt at a window.
type Measured struct {
	Write   func(*result.Writer) error // writes its records
	Rejects []string                   // reasons for rejecting it; none: it is accepted
	// Noise is the share of CPU that others took meanwhile, 0 to 1. It is 0 if that was negligible.
	Noise float64
}

// noteRejects counts a rejected trial under its first reason.
func (s *Session) noteRejects(rejects []string) {
	if len(rejects) == 0 {
		return
	}
	if s.reasons == nil {
		s.reasons = map[string]int{}
	}
	s.rejected++
	kind := result.DigitsHidden(rejects[0])
	if s.reasons[kind]++; s.reasons[kind] >= s.reasons[result.DigitsHidden(s.reason)] {
		s.reason = rejects[0]
	}
}

// MeasureWindow calls measure for a window, and again while the attempt is rejected and may be repeated. It counts
// every attempt. measure returns the record and the reasons for rejection, none for an accepted attempt. MeasureWindow
// fills in the record's head, and writes the record to the disk before the next attempt begins.
func (s *Session) MeasureWindow(b experiment.Block, cell result.Cell, window int, kind string,
	measure func(Attempt) (r result.Record, rejects []string, err error)) error {
	return s.MeasureCells(b, []result.Cell{cell}, window, kind, func(a Attempt) ([]result.Record, []string, error) {
		r, rejects, err := measure(a)
		return []result.Record{r}, rejects, err
	})
}

// MeasureCells is MeasureWindow for several cells that are measured at the same time. measure returns a record for each
// cell. All of them are accepted or rejected together.
func (s *Session) MeasureCells(b experiment.Block, cells []result.Cell, window int, kind string,
	measure func(Attempt) (records []result.Record, rejects []string, err error)) error {
	return s.measureWindows(b, cells, window, func(a Attempt) (Measured, error) {
		records, rejects, err := measure(a)
		return Measured{Rejects: rejects, Write: func(w *result.Writer) error {
			for _, r := range records {
				a.complete(r, b, rejects)
				if err := w.Append(kind, r); err != nil {
					return err
				}
			}
			return nil
		}}, err
	})
}

// MeasureQuietWindow is MeasureWindow that also repeats an accepted attempt if the machine was not quiet. It repeats it
// as often as a rejected one, while there is time. The records keep every accepted attempt, and the analysis uses the
// quietest one.
func (s *Session) MeasureQuietWindow(
	b experiment.Block, cell result.Cell, window int, measure func(Attempt) (Measured, error)) error {
	return s.measureWindows(b, []result.Cell{cell}, window, measure)
}

func (s *Session) measureWindows(
	b experiment.Block, cells []result.Cell, window int, measure func(Attempt) (Measured, error)) error {
	first := 0
	for _, cell := range cells {
		first = max(first, s.windows[keyOf(b, cell, window)].tried)
	}
	for n := first; ; n++ {
		start := time.Now()
		m, err := measure(
			Attempt{Number: n, Sitting: s.sitting, Start: start.UTC(), Elapsed: start.Sub(s.began).Seconds(), since: s.recorded})
		if err != nil {
			return err
		}
		if err := m.Write(s.writer); err != nil {
			return fmt.Errorf("%w: %w", errStorage, err)
		}
		s.recorded = time.Now()
		if n > first {
			s.again += s.recorded.Sub(start)
		}
		s.noteRejects(m.Rejects)
		settled := true
		for _, cell := range cells {
			key := keyOf(b, cell, window)
			s.count(key, n, len(m.Rejects) == 0)
			settled = settled && s.windows[key].done
		}
		s.recordedProgress()
		switch {
		case !settled:
			s.Status("%s: measuring again: %s", s.Name(b), m.Rejects[0])
		case len(m.Rejects) == 0 && m.Noise > 0 && n < s.Experiment.Redo && s.spare():
			s.Status("%s: measuring again: others had %.0f %% of the CPU", s.Name(b), 100*m.Noise)
		default:
			return nil
		}
	}
}

// spare reports whether there is time to repeat windows because of noise. A run may take about twice as long as
// planned, and the beginning of the run must not use up the time of the rest.
func (s *Session) spare() bool {
	return s.again < time.Duration((s.share()+spareAhead)*float64(s.budget))
}

// spareAhead is the share of the time for repetitions that the beginning of a run may use ahead of its turn.
const spareAhead = 0.1

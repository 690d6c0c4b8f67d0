// Package runner carries out an experiment's plan, block by block. A block builds the labs and measures windows in
// them, and the measure of the experiment does that. The runner locks the machine, prepares the run's folder, describes
// machine and tools, leaves out devices that cannot run here, and counts the attempts at each window over all sittings.
// A sitting is the part of a run between two interruptions.
package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/bench"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/words"
)

// Measure has the functions of a measure that a run calls.
type Measure struct {
	// Block builds the labs of a block, measures the windows that Session.Todo lists, each with Session.MeasureWindow, and
	// removes the labs, also when it fails. It returns the record with the figures of the whole block, or nil. The runner
	// completes and writes the record.
	Block func(ctx context.Context, s *Session, b experiment.Block) (*result.Block, error)
	// Fits returns an error that wraps dut.ErrNotSupported if a device cannot be measured with an experiment. nil: every
	// device that runs fits.
	Fits func(e *experiment.Experiment, device string, t dut.Traits) error
	// Unfinished reports whether a cell of a block still lacks something other than windows. nil: windows are all that a
	// cell needs.
	Unfinished func(s *Session, b experiment.Block, cell result.Cell) bool
}

// Config is the configuration of one run.
type Config struct {
	Measure    Measure // measure of the experiment; it is used in this run only
	Experiment *experiment.Experiment
	// kinds of the measure's records, so that a resume refuses records that the report would refuse
	Records []result.Kind
	Dir     string // the run's folder; created when absent
	Command string // command that repeats the run, for the report
	// beginning of the command for a run with other devices or another kernel: "gateweigh run quick"
	Begin   string
	Version string     // version of gateweigh
	VM      *result.VM // set when this machine is a virtual one that was started for the run
	// Blocks are the numbers of the plan's blocks to measure, each once. nil: all.
	Blocks []int
	// Node is the name of this machine in the records of a campaign. Sitting is the number of the first sitting. The
	// records of all blocks of a campaign end up in one file, so each block has a sitting of its own.
	Node    string
	Sitting int
	// Backend starts the labs' hosts. nil: namespaces of this machine.
	Backend backend.Open
	// Widths returns the interval widths of the cells of the run in a folder. It is needed for experiments that measure
	// until cells are exact enough. nil: all blocks are measured.
	Widths func(dir string) ([]result.Width, error)
	// Status is called with each new state of the run. It must not block.
	Status func(Progress)
}

// Progress is a state of a run.
type Progress struct {
	Text   string        // present activity
	Done   float64       // share of the plan that is done, 0 to 1
	Left   time.Duration // estimated remaining time
	Notice bool          // deserves a line of its own: a skipped device, a failed block
	// Rejected is the number of trials that this sitting rejected. Reason is the most frequent reason.
	Rejected int
	Reason   string
}

// Outcome says how a run ended.
type Outcome struct {
	Started  bool // false: the run was refused before anything was measured or written
	Accepted int  // windows with an accepted trial, over all sittings
	Missing  int  // windows of the plan without an accepted trial
	Open     int  // windows among Missing that a resume would measure: not measured yet, or not often enough
	// windows of the plan, without those of skipped devices and those beyond a device's largest number of clients
	Planned int
	Skipped []result.Skip
	Failed  []result.Skip // devices that could run here but did not work
}

// ErrNothingRan says that no device of the experiment can run on this machine.
var ErrNothingRan = errors.New("none of the devices under test can run here")

// errStorage says that results cannot be written. The run ends at once.
var errStorage = errors.New("writing the results")

// maxBlockFailures is the number of successive failed blocks after which a device is not tried any more.
const maxBlockFailures = 2

// plan lists the blocks to measure.
func (cfg Config) plan() []experiment.Block {
	all := cfg.Experiment.Plan()
	if cfg.Blocks == nil {
		return all
	}
	var plan []experiment.Block
	for _, place := range cfg.Blocks {
		plan = append(plan, all[place])
	}
	return plan
}

// duration estimates the time for all blocks to measure. If they are only a part of the plan, it assumes that all
// blocks take the same time.
func (cfg Config) duration() time.Duration {
	all := cfg.Experiment.EstimatedDuration()
	if cfg.Blocks == nil {
		return all
	}
	return time.Duration(float64(all) * float64(len(cfg.Blocks)) / float64(len(cfg.Experiment.Plan())))
}

// Run measures what is left of the plan. It returns when the plan is done, when no device is left that works, or when
// ctx ends. All finished trials are in the folder in any case. It needs root and a machine on which no other run
// measures.
func Run(ctx context.Context, cfg Config) (Outcome, error) {
	unlock, err := LockMachine(cfg.Dir)
	if err != nil {
		return Outcome{}, err
	}
	defer unlock()
	demand := DemandOf(cfg.Experiment)
	raised, lower := raiseFiles(demand)
	defer lower()
	hosts, err := cfg.open(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer hosts.Close()
	can := hosts.Describe()
	fit, note, err := Fit(can, cfg.Experiment)
	if err != nil {
		return Outcome{}, err
	}
	cfg.Experiment = fit
	on, err := openSites(ctx, hosts)
	if err != nil {
		return Outcome{}, blamed(cfg.Experiment, err)
	}
	defer on.close()
	on.closed = cfg.Experiment.Backend.AgentlessRouter()
	machine := on.router
	m, foundOn, err := on.check(ctx, cfg.Experiment, demand, can.AtOnce)
	if err != nil {
		return Outcome{}, err
	}
	if err := slow(ctx, machine, can.Placement, cfg.Experiment); err != nil {
		return Outcome{}, err
	}
	s := &Session{
		Experiment: cfg.Experiment, Dir: cfg.Dir, Description: can, Machine: machine, Precedes: m.Precedes,
		cfg: cfg, backend: hosts, found: m, sites: on, foundOn: foundOn, plan: cfg.plan(), sitting: cfg.Sitting,
		windows: map[windowKey]window{}, took: map[string]int{}, broke: map[string]int{},
	}
	outlook, err := Foresee(ctx, machine, can.CPUs)
	if err != nil {
		return Outcome{}, err
	}
	if err := s.open(ctx, raised, note); err != nil {
		return Outcome{}, err
	}
	if !outlook.Quiet() {
		s.Notice("%s", words.Capitalised(outlook.String())+".")
		s.Note("When it began: " + outlook.String() + ".")
	}
	s.budget = cfg.duration() // computed here, so that windows given up in earlier sittings stay given up
	s.began = time.Now()
	s.recorded = s.began
	s.progress.Process = result.ThisProcess()
	s.writeProgress()
	out, err := s.all(ctx)
	out.Started = true
	s.noteThrottled(ctx, outlook.Quota)
	s.env.End = time.Now().UTC()
	s.env.Interrupted = ctx.Err() != nil || errors.Is(err, errStorage) || s.interrupted && errors.Is(err, ErrNothingRan)
	s.env.Skipped = out.Skipped
	s.endProgress()
	return out, errors.Join(err, s.writer.Close(), result.WriteEnvironment(cfg.Dir, s.env))
}

// WriteExperiment writes the experiment and the files that it names into the folder dir.
func WriteExperiment(dir string, e *experiment.Experiment) error {
	files, err := e.Files()
	if err != nil {
		return err
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making the folder of frame sizes: %w", err)
		}
		if err := result.ReplaceFile(path, data); err != nil {
			return err
		}
	}
	return result.ReplaceFile(filepath.Join(dir, result.ExperimentFile), e.Encode())
}

// open prepares the folder and reads the records of earlier sittings in it. Each note that is not empty is shown to the
// user and recorded in the environment.
func (s *Session) open(ctx context.Context, notes ...string) (err error) {
	if err := os.MkdirAll(filepath.Join(s.Dir, result.LogsFolder), 0o755); err != nil {
		return fmt.Errorf("making the run's folder: %w", err)
	}
	if err := WriteExperiment(s.Dir, s.Experiment); err != nil {
		return err
	}
	var torn int
	if s.writer, torn, err = result.OpenWriter(s.Dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.writer.Close())
		}
	}()
	if err := s.recall(); err != nil {
		return err
	}
	if s.env, err = s.environment(ctx); err != nil {
		return err
	}
	if s.writer.Node = s.cfg.Node; s.writer.Node == "" && len(s.env.Nodes) > 0 { // of a campaign, resumed here
		if s.writer.Node, err = os.Hostname(); err != nil {
			return err
		}
	}
	if torn > 0 {
		s.env.Notes = append(s.env.Notes, fmt.Sprintf(
			"The last record of an earlier sitting was cut short (%d bytes); it is kept in %s and was measured again.", torn,
			result.TornFile))
	}
	for _, note := range slices.DeleteFunc(notes, func(note string) bool { return note == "" }) {
		s.Notice("%s", note)
		s.Note(note)
	}
	s.noteDenied()
	s.noteEmulated()
	s.noteClock()
	s.noteSites()
	s.noteClosed()
	s.noteUnmetered()
	s.interrupted = s.env.Interrupted
	s.env.Interrupted = true // until the run has ended properly
	return result.WriteEnvironment(s.Dir, s.env)
}

// recall reads the attempts of earlier sittings, so that only unfinished windows are measured again.
func (s *Session) recall() error {
	records, err := result.ReadTrials(filepath.Join(s.Dir, result.TrialsFile), s.cfg.Records...)
	if err != nil {
		return err
	}
	s.complete = map[blockKey]bool{}
	s.attempts = result.Attempts(records.Trials, records.MeasureRecords)
	s.spent = result.Run{Blocks: records.Blocks, MeasureRecords: records.MeasureRecords}.MeasuredFor()
	for _, l := range s.attempts {
		s.count(windowKey{l.Cell, l.AA, l.Block, l.Window}, l.Attempt, l.Accepted)
		s.sitting = max(s.sitting, l.Sitting+1)
	}
	for _, b := range records.Blocks {
		s.sitting = max(s.sitting, b.Sitting+1)
		for _, cell := range b.LeftOut {
			s.leaveOut(cell, b.AA, b.Block)
		}
		if b.Broke != "" {
			s.broke[b.DUT] = b.Clients
		} else if b.Error == "" {
			s.took[b.DUT] = max(s.took[b.DUT], b.Clients)
			s.complete[blockKey{b.Cell(), b.AA, b.Block}] = true
		}
	}
	return nil
}

// all carries out the plan.
func (s *Session) all(ctx context.Context) (Outcome, error) {
	out, err := s.checkDevices(ctx)
	if err != nil {
		return out, err
	}
	type group struct {
		dut     string
		clients int
	}
	failures, last := map[group]int{}, map[string]error{}
	s.beginUntil()
	for _, b := range s.plan {
		if err := s.lookBefore(b); err != nil {
			return s.outcome(out), err
		}
		g := group{b.DUT(), b.Clients()}
		if s.blockDone(b) || s.beyond(b) || failures[g] >= maxBlockFailures {
			continue
		}
		if s.timeOver() {
			if err := s.look(b.Index, result.BoundTime); err != nil {
				return s.outcome(out), err
			}
			break
		}
		err := s.block(ctx, b)
		switch {
		case ctx.Err() != nil:
			return s.outcome(out), context.Cause(ctx)
		case errors.Is(err, errStorage):
			return s.outcome(out), err
		case err != nil:
			s.Notice("%s failed: %v", s.Name(b), err)
			failures[g]++
		default:
			failures[g] = 0
		}
		last[b.DUT()] = err
	}
	if err := s.lastLook(); err != nil {
		return s.outcome(out), err
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		if last[name] != nil { // a failed block before good ones is noise; at the end it is a fault of the device
			out.Failed = append(out.Failed, result.Skip{DUT: name, Reason: last[name].Error()})
		}
	}
	return s.outcome(out), nil
}

// block has the measure carry out a block, and records the block. An interrupted block gets no record, and a resume
// measures the windows that it lacks.
func (s *Session) block(ctx context.Context, b experiment.Block) error {
	start := time.Now()
	s.noteBurner()
	s.leaving = ""
	s.beginProgress(b)
	defer s.writeProgress()
	rec, err := s.cfg.Measure.Block(ctx, s, b)
	s.spent += time.Since(start)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case rec == nil && err == nil: // an error of closing the labs was reported already
		return nil
	case rec == nil:
		rec = &result.Block{}
	}
	rec.AA, rec.Block, rec.DUTLab = b.AA, b.Index, b.DUTLab
	rec.SetCell(b.Cell)
	rec.Leaving, rec.Sitting = s.leaving, s.sitting
	rec.Start, rec.Elapsed, rec.Seconds = start.UTC(), start.Sub(s.began).Seconds(), time.Since(start).Seconds()
	broke, isLimit := s.limitOf(b, err)
	switch {
	case isLimit:
		rec.Broke, err = broke, nil
		s.broke[b.DUT()] = b.Clients()
		s.Notice("%s, %s: it takes fewer: %s", b.DUT(), words.Counted(b.Clients(), "client"), broke)
	case err != nil:
		rec.Error = err.Error()
	default:
		s.took[b.DUT()] = max(s.took[b.DUT()], b.Clients())
	}
	if failed := s.writer.AppendBlock(*rec); failed != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", errStorage, failed))
	}
	s.recorded = time.Now() // the next attempt does not include the time of this block
	return err
}

// blockKey identifies a block.
type blockKey struct {
	cell  result.Cell
	aa    bool
	block int
}

// limitOf reports whether a block failed because its device does not take all its clients: the device refused some, and
// in this run it completed a block with fewer. Any other failure is a fault. The clean router admits every client, so
// A/A blocks have no such limit.
func (s *Session) limitOf(b experiment.Block, err error) (text string, isLimit bool) {
	var e *bench.NotAdmitted
	if b.AA || !errors.As(err, &e) || !e.DeviceFault || s.took[b.DUT()] == 0 || s.took[b.DUT()] >= b.Clients() {
		return "", false
	}
	return e.Error(), true
}

// beyond reports whether a block has as many clients as its device broke at, or more.
func (s *Session) beyond(b experiment.Block) bool {
	clients, broke := s.broke[b.DUT()]
	return broke && !b.AA && b.Clients() >= clients
}

// blockDone reports whether a block has nothing left to measure.
func (s *Session) blockDone(b experiment.Block) bool {
	unfinished := s.cfg.Measure.Unfinished
	return s.WindowsDone(b) && (unfinished == nil ||
		!slices.ContainsFunc(b.Cells, func(c result.Cell) bool { return unfinished(s, b, c) }))
}

// outcome adds the counts of windows to out.
func (s *Session) outcome(out Outcome) Outcome {
	out.Planned, out.Accepted, out.Open = s.tally(slices.DeleteFunc(slices.Clone(s.plan), s.beyond))
	out.Missing = out.Planned - out.Accepted
	return out
}

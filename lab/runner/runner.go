// Package runner carries out an experiment's plan, block by block, whatever is measured in them:
// it keeps the machine to itself, prepares the run's folder, describes machine and tools, leaves
// out devices that cannot run here, and counts the attempts at each window over all sittings. The
// measure carries out the blocks themselves.
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

// Measure is what a run asks of the measure that its experiment names.
type Measure struct {
	// Block builds the labs of a block, measures the windows that Session.Todo lists, each by
	// Session.MeasureWindow, and removes the labs, also when it fails. The record holds the figures of
	// the whole block; nil: none. The runner completes and writes it.
	Block func(ctx context.Context, s *Session, b experiment.Block) (*result.Block, error)
	// Fits says why a device cannot be measured with an experiment, by an error that wraps
	// dut.ErrNotSupported. Without it every device that runs fits.
	Fits func(e *experiment.Experiment, device string, t dut.Traits) error
	// Unfinished reports whether a cell of a block is to have more than windows, and has not. Without it none is.
	Unfinished func(s *Session, b experiment.Block, cell result.Cell) bool
}

// Config is one call of Run.
type Config struct {
	Measure    Measure // of the experiment, for this run alone
	Experiment *experiment.Experiment
	Records    []result.Kind // of the measure: a resume refuses a record that reports refuse
	Dir        string        // the run's folder; created when absent
	Command    string        // repeats the run, for the report
	Begin      string        // begins the command of the run with other devices or another kernel: "gateweigh run quick"
	Version    string        // of gateweigh
	VM         *result.VM    // set when this machine is a virtual one that was started for the run
	// Blocks are the blocks of the plan to measure, by their places in it, each once; nil: all.
	Blocks []int
	// Node is what records call this machine in a campaign, and Sitting the number of the first sitting: the
	// records of a campaign's blocks stand in one file later, and each has its own.
	Node    string
	Sitting int
	// Backend opens what runs the labs' hosts. Nil: namespaces of this machine.
	Backend backend.Open
	// Widths says how exact the cells of the run in a folder are, of experiments that end by it. Nil: all blocks are
	// measured.
	Widths func(dir string) ([]result.Width, error)
	// Status receives what happens now and how far the run is; it must not block.
	Status func(Progress)
}

// Progress is one state of a run.
type Progress struct {
	Text   string        // what happens now
	Done   float64       // share of the plan that is behind, 0 to 1
	Left   time.Duration // estimate of what is ahead
	Notice bool          // worth a line of its own: a skipped device, a failed block
	// Rejected are the trials that this sitting rejected, mostly because of Reason.
	Rejected int
	Reason   string
}

// Outcome says how a run ended.
type Outcome struct {
	Started  bool // false: refused before anything was measured or written
	Accepted int  // windows with an accepted trial, over all sittings
	Missing  int  // windows of the plan without an accepted trial
	Open     int  // of those: windows that were not measured, or not often enough; a resume does
	Planned  int  // windows of the plan, without skipped devices and numbers of clients beyond a device's limit
	Skipped  []result.Skip
	Failed   []result.Skip // devices that could run here but did not work
}

// ErrNothingRan says that no device of the experiment can run on this machine.
var ErrNothingRan = errors.New("none of the devices under test can run here")

// errStorage says that results cannot be written: the run ends at once.
var errStorage = errors.New("writing the results")

// maxBlockFailures in succession end the attempts with a device.
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

// duration is an estimate for all blocks to measure. They are taken to be alike where they are not all of the plan.
func (cfg Config) duration() time.Duration {
	all := cfg.Experiment.EstimatedDuration()
	if cfg.Blocks == nil {
		return all
	}
	return time.Duration(float64(all) * float64(len(cfg.Blocks)) / float64(len(cfg.Experiment.Plan())))
}

// Run measures what the plan still lacks. It returns when the plan is done, a
// device after the other has failed, or ctx ends; all finished trials are in
// the folder in any case. It needs root and a machine on which no other run
// measures at the same time.
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
	s.budget = cfg.duration() // from here on: what earlier sittings gave up stays so
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

// WriteExperiment writes the experiment into the folder dir, with the files that it names.
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

// open prepares the folder and reads the records of earlier sittings in it. Each of the notes is for the user and the
// environment, unless it is empty.
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
	s.env.Interrupted = true // until it has ended in order
	return result.WriteEnvironment(s.Dir, s.env)
}

// recall reads the attempts of earlier sittings, so that only windows that are not done are measured again.
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

// all runs the plan.
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
		if last[name] != nil { // one bad block before good ones is noise, at the end it is a fault
			out.Failed = append(out.Failed, result.Skip{DUT: name, Reason: last[name].Error()})
		}
	}
	return s.outcome(out), nil
}

// block has the measure carry out a block, and records the block. An interrupted block has no
// block record, and a resume measures the windows that it lacks.
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
	case rec == nil && err == nil: // what went wrong when its labs were left was said
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
	s.recorded = time.Now() // what the block took is not the next attempt's
	return err
}

// blockKey names a block.
type blockKey struct {
	cell  result.Cell
	aa    bool
	block int
}

// limitOf reports whether a block failed because its device does not take all its clients: the
// device refused some, and in this run it completed a block with fewer. Any other failure is a
// fault. The clean router admits every client, so A/A blocks have no such limit.
func (s *Session) limitOf(b experiment.Block, err error) (text string, isLimit bool) {
	var e *bench.NotAdmitted
	if b.AA || !errors.As(err, &e) || !e.DeviceFault || s.took[b.DUT()] == 0 || s.took[b.DUT()] >= b.Clients() {
		return "", false
	}
	return e.Error(), true
}

// beyond reports whether a block has as many clients as its device broke at.
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

package dut

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// captureProgram is the part of a capturing device that differs between programs: tcpdump, softflowd, ….
type captureProgram struct {
	name string // the first process's name on the host, "tcpdump"; the next one is "tcpdump 2"
	// checkSupport returns an error for settings that the program does not support. Nil: it supports all.
	checkSupport func(Capture) error
	// argv returns the command of one process. The process runs in the foreground. No other process uses dir.
	argv  func(env Env, settings Capture, dir string) []string
	ready string // text that the program prints once it captures
	// onReady is called once the program has printed ready. May be nil.
	onReady func(ctx context.Context, program daemon, dir string) error
	// drain waits until the program has taken all frames that the kernel holds for it. It returns the statistics that
	// the program reports only while it runs, if any. A program that has ended is no error. Nil: the program takes the
	// remaining frames when it gets a signal of captureSignals.
	drain func(ctx context.Context, program daemon, dir string) (output string, err error)
	// counts reads the program's counters from drain's output, followed by everything that the program printed.
	counts func(output string) (Captured, error)
	grace  time.Duration // the time that the program has to end after each signal; 0: captureGrace
}

// captureSignals are sent to a capture program one after the other until it ends. Study 2 (section 3) reports a tcpdump
// that ignored SIGTERM and ended at SIGHUP.
var captureSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT}

// captureGrace is the time that a capture program has to end after each signal.
const captureGrace = 3 * time.Second

// capturePrograms is a capturing device: one or more processes of the same program.
type capturePrograms struct {
	captureProgram
	settings Capture
	started  bool
	running  []*runningCapture
}

// runningCapture is a started process of the capture program.
type runningCapture struct {
	daemon
	drained     bool
	drainOutput string // of drain
	drainErr    error  // of drain
}

// newPrograms makes a device of capture programs.
func newPrograms(program captureProgram, capture Capture) *capturePrograms {
	if capture.Work == WorkNone {
		capture.Work = ""
	}
	return &capturePrograms{captureProgram: program, settings: capture}
}

// checkSettings returns an error when the program does not support the settings.
func (c *capturePrograms) checkSettings() error {
	if c.checkSupport == nil {
		return nil
	}
	return c.checkSupport(c.settings)
}

// Start starts the programs one after the other, and returns once all capture.
func (c *capturePrograms) Start(ctx context.Context, env Env) error {
	if err := c.checkSettings(); err != nil {
		return err
	}
	c.started = true
	for i := range max(1, c.settings.Programs) {
		program := daemon{host: env.Host(env.On), name: c.name}
		if i > 0 {
			program.name += " " + strconv.Itoa(i+1)
		}
		dir := c.dir(env, program)
		// exec keeps the shell's process ID, so the file "pid" has the program's.
		script := `mkdir -p "$0"; echo $$ >"$0/pid"; exec "$@"`
		cmd := agent.Command{
			Name: program.name, CPUs: c.settings.CPUs, Env: []string{"LC_ALL=C"},
			Argv: slices.Concat([]string{"sh", "-ec", script, dir}, c.argv(env, c.settings, dir)),
		}
		if err := program.host.Spawn(ctx, cmd); err != nil {
			return fmt.Errorf("starting %s: %w", program.name, err)
		}
		c.running = append(c.running, &runningCapture{daemon: program})
		if err := program.awaitText(ctx, c.ready); err != nil {
			return err
		}
		if c.onReady == nil {
			continue
		}
		if err := c.onReady(ctx, program, dir); err != nil {
			return fmt.Errorf("starting %s: %w", program.name, err)
		}
	}
	return nil
}

// dir returns the folder for the files of one process.
func (c *capturePrograms) dir(env Env, program daemon) string {
	return path.Join(env.Scratch, "capture", strings.ReplaceAll(program.name, " ", "-"))
}

// awaitText returns once the daemon has printed text.
func (d daemon) awaitText(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	message, err := d.pollUntil(ctx, func() error {
		switch process, err := d.state(ctx); {
		case err != nil:
			return err
		case process.Ended || !strings.Contains(process.Output, text):
			return errors.New("not yet")
		}
		return nil
	})
	if errors.Is(err, errTimeIsUp) {
		return fmt.Errorf("%s is running but does not print %q: %w; %s", d.name, text, context.Cause(ctx), message)
	}
	return err
}

// Drain drains all programs at the same time.
func (c *capturePrograms) Drain(ctx context.Context, env Env) {
	var wg sync.WaitGroup
	for _, program := range c.running {
		if c.drain != nil && !program.drained {
			program.drained = true
			wg.Go(func() {
				program.drainOutput, program.drainErr = c.drain(ctx, program.daemon, c.dir(env, program.daemon))
			})
		}
	}
	wg.Wait()
}

// Finish ends all programs at the same time.
func (c *capturePrograms) Finish(ctx context.Context, env Env) ([]Captured, error) {
	c.Drain(ctx, env)
	list, errs := make([]Captured, len(c.running)), make([]error, len(c.running))
	var wg sync.WaitGroup
	for i, program := range c.running {
		wg.Go(func() { list[i], errs[i] = c.finish(ctx, program) })
	}
	wg.Wait()
	c.running = nil
	return list, errors.Join(errs...)
}

// finish ends one program and reads its counts. A program that has ended before finish is an error.
func (c *capturePrograms) finish(ctx context.Context, program *runningCapture) (Captured, error) {
	unknown := Captured{Program: program.name, Frames: Unknown, Dropped: Unknown}
	grace := cmp.Or(c.grace, captureGrace)
	process, err := program.host.End(ctx, agent.Ending{Name: program.name, Signals: captureSignals, Grace: grace})
	unknown.Ended = endedBy(process.Signal, grace)
	switch text := agent.LastLines(process.Output); {
	case err != nil:
		return unknown, fmt.Errorf("ending %s: %w", program.name, err)
	case process.Signal == "":
		return unknown, fmt.Errorf("%s ended while it captured, %s: %s", program.name,
			cmp.Or(process.Status, "nobody knows how"), text)
	case process.Signal == "SIGKILL":
		return unknown, nil // a killed program has not printed its last statistics
	case program.drainErr != nil:
		return unknown, program.drainErr
	}
	out, err := c.counts(program.drainOutput + process.Output)
	if err != nil {
		return unknown, fmt.Errorf(
			"reading what %s counted: %w (%s: %s)", program.name, err, process.Status,
			agent.LastLines(program.drainOutput+process.Output))
	}
	out.Program, out.Ended = program.name, unknown.Ended
	return out, nil
}

// endedBy describes the end of a program by the signal that ended it; empty for SIGTERM.
func endedBy(signal string, grace time.Duration) string {
	switch signal {
	case "", "SIGTERM":
		return ""
	case "SIGKILL":
		return fmt.Sprintf(
			"killed: neither SIGTERM nor other signals ended it within %s each, and its counts are lost", grace)
	}
	return fmt.Sprintf("ended by %s: SIGTERM did not end it within %s", signal, grace)
}

// Stop ends the programs that still run and removes the files of all programs.
func (c *capturePrograms) Stop(ctx context.Context, env Env) error {
	if !c.started {
		return nil
	}
	var errs []error
	for _, program := range c.running {
		_, err := program.host.End(ctx, agent.Ending{Name: program.name, Signals: captureSignals[:1], Grace: captureGrace})
		errs = append(errs, err)
	}
	c.running = nil
	c.started = false
	errs = append(errs, shell(ctx, env.Host(env.On), `rm -rf "$1"`, path.Join(env.Scratch, "capture")))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stopping %s: %w", c.name, err)
	}
	return nil
}

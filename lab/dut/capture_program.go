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
	name string // of its processes in the host's list: "tcpdump", "tcpdump 2" …
	// refuses returns an error for settings that the program does not support. Nil: it supports all.
	refuses func(Capture) error
	// argv is the command of one of the programs. It runs in the foreground and may keep files in dir, which is its
	// own.
	argv  func(env Env, settings Capture, dir string) []string
	ready string // it prints this once it captures
	// captures is called once the program captures. May be nil.
	captures func(ctx context.Context, d daemon, dir string) error
	// drain waits until the program has taken all frames that the kernel holds for it. It returns the output that the
	// program gives only while it runs. A program that has ended is no error. Nil: the program does both when it is
	// ended.
	drain func(ctx context.Context, d daemon, dir string) (output string, err error)
	// counts reads the program's counters from the output of drain and all that it printed.
	counts func(output string) (Captured, error)
	grace  time.Duration // how long the program may take to end after each signal; 0: captureGrace
}

// captureSignals end a capture program, one after the other until it ends. Study 2 (3) reports a tcpdump that SIGTERM
// did not end and SIGHUP did.
var captureSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT}

// captureGrace is how long a capture program may take to end after each signal.
const captureGrace = 3 * time.Second

// capturePrograms is a capturing device: one or more processes of the same program.
type capturePrograms struct {
	captureProgram
	settings Capture
	started  bool
	running  []*runningCapture
}

// runningCapture is a program that captures.
type runningCapture struct {
	daemon
	drained bool
	output  string // of drain
	late    error  // of drain
}

// newPrograms makes a device of capture programs.
func newPrograms(p captureProgram, capture Capture) *capturePrograms {
	if capture.Work == WorkNone {
		capture.Work = ""
	}
	return &capturePrograms{captureProgram: p, settings: capture}
}

// fits returns an error when the program does not support the settings.
func (c *capturePrograms) fits() error {
	if c.refuses == nil {
		return nil
	}
	return c.refuses(c.settings)
}

// Start starts the programs one after the other, and returns once all capture.
func (c *capturePrograms) Start(ctx context.Context, env Env) error {
	if err := c.fits(); err != nil {
		return err
	}
	c.started = true
	for i := range max(1, c.settings.Programs) {
		d := daemon{host: env.Host(env.On), name: c.name}
		if i > 0 {
			d.name += " " + strconv.Itoa(i+1)
		}
		dir := c.dir(env, d)
		// The shell leaves its process, and the number of it, to the program.
		script := `mkdir -p "$0"; echo $$ >"$0/pid"; exec "$@"`
		cmd := agent.Command{
			Name: d.name, CPUs: c.settings.CPUs, Env: []string{"LC_ALL=C"},
			Argv: slices.Concat([]string{"sh", "-ec", script, dir}, c.argv(env, c.settings, dir)),
		}
		if err := d.host.Spawn(ctx, cmd); err != nil {
			return fmt.Errorf("starting %s: %w", d.name, err)
		}
		c.running = append(c.running, &runningCapture{daemon: d})
		if err := d.awaitText(ctx, c.ready); err != nil {
			return err
		}
		if c.captures == nil {
			continue
		}
		if err := c.captures(ctx, d, dir); err != nil {
			return fmt.Errorf("starting %s: %w", d.name, err)
		}
	}
	return nil
}

// dir is the folder of one process's files.
func (c *capturePrograms) dir(env Env, d daemon) string {
	return path.Join(env.Scratch, "capture", strings.ReplaceAll(d.name, " ", "-"))
}

// awaitText returns once the daemon has printed text.
func (d daemon) awaitText(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	message, err := d.pollUntil(ctx, func() error {
		switch p, err := d.state(ctx); {
		case err != nil:
			return err
		case p.Ended || !strings.Contains(p.Output, text):
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
	for _, r := range c.running {
		if c.drain != nil && !r.drained {
			r.drained = true
			wg.Go(func() { r.output, r.late = c.drain(ctx, r.daemon, c.dir(env, r.daemon)) })
		}
	}
	wg.Wait()
}

// Finish ends all programs at the same time.
func (c *capturePrograms) Finish(ctx context.Context, env Env) ([]Captured, error) {
	c.Drain(ctx, env)
	list, errs := make([]Captured, len(c.running)), make([]error, len(c.running))
	var wg sync.WaitGroup
	for i, r := range c.running {
		wg.Go(func() { list[i], errs[i] = c.finish(ctx, r) })
	}
	wg.Wait()
	c.running = nil
	return list, errors.Join(errs...)
}

// finish ends one program. It counts as broken when it had ended by itself, whatever it said.
func (c *capturePrograms) finish(ctx context.Context, d *runningCapture) (Captured, error) {
	unknown := Captured{Program: d.name, Frames: Unknown, Dropped: Unknown}
	grace := cmp.Or(c.grace, captureGrace)
	p, err := d.host.End(ctx, agent.Ending{Name: d.name, Signals: captureSignals, Grace: grace})
	unknown.Ended = endedBy(p.Signal, grace)
	switch text := agent.LastLines(p.Output); {
	case err != nil:
		return unknown, fmt.Errorf("ending %s: %w", d.name, err)
	case p.Signal == "":
		return unknown, fmt.Errorf("%s ended while it captured, %s: %s", d.name, cmp.Or(p.Status, "nobody knows how"), text)
	case p.Signal == "SIGKILL":
		return unknown, nil // what it printed is older than its end
	case d.late != nil:
		return unknown, d.late
	}
	out, err := c.counts(d.output + p.Output)
	if err != nil {
		return unknown, fmt.Errorf(
			"reading what %s counted: %w (%s: %s)", d.name, err, p.Status, agent.LastLines(d.output+p.Output))
	}
	out.Program, out.Ended = d.name, unknown.Ended
	return out, nil
}

// endedBy says what it took to end a program; nothing where SIGTERM was enough.
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

// Stop ends what still runs and removes the files of all.
func (c *capturePrograms) Stop(ctx context.Context, env Env) error {
	if !c.started {
		return nil
	}
	var errs []error
	for _, d := range c.running {
		_, err := d.host.End(ctx, agent.Ending{Name: d.name, Signals: captureSignals[:1], Grace: captureGrace})
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

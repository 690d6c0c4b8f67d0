package dut

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// readyTimeout is how long await waits when its context has no deadline.
const readyTimeout = 30 * time.Second

// pollEvery is the pause between two looks at a starting daemon. A look starts a process or two, so more looks would
// slow down the start that they wait for.
const pollEvery = 25 * time.Millisecond

// daemon is a long-running program of a DUT.
type daemon struct {
	host    Host
	name    string // unique on the host
	support bool   // not part of the device under test

	argv []string // its command, once it was started by portal.run
}

// spawn starts the daemon, which must stay in the foreground. It will be killed instead of asked to end: a portal that
// is asked logs its clients out one by one, which takes openNDS 20 s with 100 clients. Stop removes what the killed
// programs leave.
func (d daemon) spawn(ctx context.Context, argv ...string) error {
	if err := d.host.Spawn(ctx, agent.Command{Name: d.name, Argv: argv, Support: d.support, Abrupt: true}); err != nil {
		return fmt.Errorf("starting %s: %w", d.name, err)
	}
	return nil
}

// probe checks one condition of readiness by a shell command that succeeds once the condition holds.
type probe struct {
	problem string // while it does not hold; completes "opennds is running but …"
	shell   string // the command
}

// listens is a probe whether a program listens on a port. transport is "t" for TCP, "u" for UDP.
func listens(problem, transport string, port int) probe {
	return probe{problem, fmt.Sprintf("ss -Hln%s 'sport = :%d' | grep -q .", transport, port)}
}

// await returns once every probe has succeeded, one after the other. When the daemon or ctx ends first, the error says
// which, and quotes the daemon's last lines.
func (d daemon) await(ctx context.Context, probes ...probe) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readyTimeout)
		defer cancel()
	}
	for _, p := range probes {
		text, err := d.pollUntil(ctx, func() error {
			_, err := d.host.Run(ctx, agent.Command{Argv: []string{"sh", "-c", p.shell}})
			return err
		})
		switch {
		case errors.Is(err, errTimeIsUp):
			return fmt.Errorf("%s is running but %s: %w; %s", d.name, p.problem, context.Cause(ctx), text)
		case err != nil:
			return err
		}
	}
	return nil
}

// errTimeIsUp is pollUntil's error when the context ended while the daemon was still running.
var errTimeIsUp = errors.New("time is up")

// pollUntil repeats look until it returns nil, the daemon has ended or ctx has ended. With errTimeIsUp, text is the
// daemon's last lines of output. For a daemon without a host it does not check whether the daemon has ended.
func (d daemon) pollUntil(ctx context.Context, look func() error) (text string, err error) {
	for look() != nil {
		if d.host != nil {
			p, err := d.state(ctx)
			text = cmp.Or(p.Output, "it printed nothing")
			switch {
			case err != nil:
				return "", fmt.Errorf("waiting for %s: %w", d.name, err)
			case p.Ended:
				return "", fmt.Errorf("%s ended while starting, %s: %s", d.name, p.Status, text)
			}
		}
		select {
		case <-ctx.Done():
			return text, errTimeIsUp
		case <-time.After(pollEvery):
		}
	}
	return "", nil
}

// stateTimeout bounds the call that lists a host's programs. It usually takes milliseconds, more on a busy machine.
const stateTimeout = 10 * time.Second

// state returns whether the daemon runs and what it printed. It works also when ctx has ended, because errors about a
// start that took too long quote it.
func (d daemon) state(ctx context.Context) (agent.Program, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stateTimeout)
	defer cancel()
	list, err := d.host.Programs(ctx)
	if err != nil {
		return agent.Program{}, err
	}
	for _, p := range list {
		if p.Name == d.name {
			return p, nil
		}
	}
	return agent.Program{}, fmt.Errorf("%s was not started", d.name)
}

// kill ends the daemon. It is no error if the daemon never started or has ended.
func (d daemon) kill(ctx context.Context) error {
	if _, err := d.host.End(ctx, agent.Ending{Name: d.name}); err != nil {
		return fmt.Errorf("ending %s: %w", d.name, err)
	}
	return nil
}

// shell runs a script on a host and waits for its end. args are the script's $1, $2 ….
func shell(ctx context.Context, h Host, script string, args ...string) error {
	_, err := h.Run(ctx, agent.Command{Argv: append([]string{"sh", "-ec", script, "sh"}, args...)})
	return err
}

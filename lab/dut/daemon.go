package dut

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// readyTimeout ends a Start whose context has no deadline of its own.
const readyTimeout = 30 * time.Second

// pollEvery is the pause between two looks at a starting daemon. A look costs
// a process or two, so looking more often would slow the start it waits for.
const pollEvery = 25 * time.Millisecond

// daemon is a long-running program of a DUT.
type daemon struct {
	host    Host
	name    string // unique on the host
	support bool   // not part of the device under test
}

// spawn starts the daemon; it must stay in the foreground. Stopping is abrupt:
// portals that are asked to end log out their clients one by one, which takes openNDS
// 20 s with 100 clients, and Stop undoes what the programs leave.
func (d daemon) spawn(ctx context.Context, argv ...string) error {
	if err := d.host.Spawn(ctx, agent.Command{Name: d.name, Argv: argv, Support: d.support, Abrupt: true}); err != nil {
		return fmt.Errorf("starting %s: %w", d.name, err)
	}
	return nil
}

// probe is one sign of readiness: a shell command that succeeds once it shows.
type probe struct {
	what  string // completes "opennds is running but …"
	shell string
}

// listens is the sign that a program listens on a port: "t" for TCP, "u" for UDP.
func listens(what, transport string, port int) probe {
	return probe{what, fmt.Sprintf("ss -Hln%s 'sport = :%d' | grep -q .", transport, port)}
}

// await returns once every probe has succeeded, in order. When the daemon ends
// first, or ctx does, the error says which and quotes the daemon's last lines.
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
			return fmt.Errorf("%s is running but %s: %w; %s", d.name, p.what, context.Cause(ctx), text)
		case err != nil:
			return err
		}
	}
	return nil
}

// errTimeIsUp: the daemon is running and a look never succeeded.
var errTimeIsUp = errors.New("time is up")

// pollUntil repeats look until it succeeds, the daemon has ended or ctx has; said are the
// daemon's last lines. A daemon without a host does not end.
func (d daemon) pollUntil(ctx context.Context, look func() error) (text string, err error) {
	for look() != nil {
		if d.host != nil {
			p, err := d.state(ctx)
			text = cmp.Or(p.Output, "it printed nothing")
			switch {
			case err != nil:
				return "", fmt.Errorf("waiting for %s: %w", d.name, err)
			case p.Ended:
				return "", fmt.Errorf("%s ended while starting, %s: %s", d.name, p.How, text)
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

// answerTimeout is how long a host may take to say how its programs are: milliseconds, but on a machine that is busy
// with others.
const answerTimeout = 10 * time.Second

// state asks the host how the daemon is, also when ctx has ended: that may be why it is asked.
func (d daemon) state(ctx context.Context) (agent.Program, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
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

// kill ends the daemon; one that never started or has ended is no error.
func (d daemon) kill(ctx context.Context) error {
	if _, err := d.host.End(ctx, agent.Ending{Name: d.name}); err != nil {
		return fmt.Errorf("ending %s: %w", d.name, err)
	}
	return nil
}

// shell runs a script to its end on a host; args are $1, $2 ….
func shell(ctx context.Context, h Host, script string, args ...string) error {
	_, err := h.Run(ctx, agent.Command{Argv: append([]string{"sh", "-ec", script, "sh"}, args...)})
	return err
}

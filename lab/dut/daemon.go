package dut

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"text/template"
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
	host Host
	name string // unique on the host
}

// spawn starts the daemon; it must stay in the foreground. support marks a
// program that is not part of the device under test. Stopping is abrupt: portals
// tear their sessions down one by one when asked politely, which takes openNDS
// 20 s with 100 clients, and what they would undo Stop undoes itself.
func (d daemon) spawn(ctx context.Context, support bool, env []string, argv ...string) error {
	cmd := agent.Command{Name: d.name, Argv: argv, Env: env, Support: support, Abrupt: true}
	if err := d.host.Spawn(ctx, cmd); err != nil {
		return fmt.Errorf("starting %s: %w", d.name, err)
	}
	return nil
}

// probe is one sign of readiness: a shell command that succeeds once it shows.
type probe struct {
	what  string // completes "opennds is running but …"
	shell string
}

// await returns once every probe has succeeded, in order. When the daemon ends
// first, or ctx does, the error says which and quotes the daemon's last lines.
func (d daemon) await(ctx context.Context, probes ...probe) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, readyTimeout)
		defer cancel()
	}
	for len(probes) > 0 {
		_, err := d.host.Run(ctx, agent.Command{Argv: []string{"sh", "-c", probes[0].shell}})
		if err == nil {
			probes = probes[1:]
			continue
		}
		p, stateErr := d.state(ctx)
		switch {
		case stateErr != nil:
			return fmt.Errorf("waiting for %s: %w", d.name, stateErr)
		case p.Ended:
			return endedWhileStarting(p)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is running but %s: %w; %s", d.name, probes[0].what, context.Cause(ctx), said(p))
		case <-time.After(pollEvery):
		}
	}
	return nil
}

// state asks the host how the daemon is. It outlives ctx: the reason to ask may
// be that ctx has ended.
func (d daemon) state(ctx context.Context) (agent.Program, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
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

func endedWhileStarting(p agent.Program) error {
	return fmt.Errorf("%s ended while starting, %s: %s", p.Name, p.How, said(p))
}

func said(p agent.Program) string { return cmp.Or(p.Output, "it printed nothing") }

// kill ends the daemon; one that never started or has ended is no error.
func (d daemon) kill(ctx context.Context) error {
	if err := d.host.Kill(ctx, d.name); err != nil {
		return fmt.Errorf("ending %s: %w", d.name, err)
	}
	return nil
}

// shell runs a script to its end on a host; args are $1, $2 ….
func shell(ctx context.Context, h Host, script string, args ...string) error {
	argv := append([]string{"sh", "-ec", script, "sh"}, args...)
	_, err := h.Run(ctx, agent.Command{Argv: argv})
	return err
}

//go:embed templates
var templateFiles embed.FS

// templates are the configuration files of the DUTs; a field that a template
// names and its data lacks is an error.
var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(templateFiles, "templates/*"))

// writeTemplate fills in one of the embedded templates and writes it to a host.
func writeTemplate(ctx context.Context, h Host, to string, mode uint32, name string, data any) error {
	var buf bytes.Buffer
	if err := templates.ExecuteTemplate(&buf, name, data); err != nil {
		return fmt.Errorf("filling in %s: %w", name, err)
	}
	if err := h.WriteFile(ctx, to, buf.Bytes(), mode); err != nil {
		return fmt.Errorf("writing %s: %w", to, err)
	}
	return nil
}

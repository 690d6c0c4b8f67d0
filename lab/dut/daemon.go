package dut

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// readyTimeout ends a Start whose context has no deadline of its own.
const readyTimeout = 30 * time.Second

// pollEvery is the pause between two looks at a starting daemon. A look costs
// a process or two, so looking more often would slow the start it waits for.
const pollEvery = 25 * time.Millisecond

// daemon is a long-running program of a DUT. Its output and process id are
// kept in files, so that an error can quote what it said and Stop can end it
// even when the process that started it is gone.
type daemon struct {
	host Host
	name string // unique on the host
	dir  string // where NAME.log and NAME.pid go; must exist
}

// spawnScript leaves the process id behind and becomes the daemon. $0 is the
// path without extension, the arguments are the daemon's.
const spawnScript = `echo $$ >"$0.pid"; exec "$@" >"$0.log" 2>&1`

// lookScript fails with status 97 when the daemon has ended, otherwise with
// the probe's own status.
const lookScript = `pid=$(cat "$0.pid" 2>/dev/null) || exit 96; kill -0 "$pid" 2>/dev/null || exit 97; exec sh -c "$1"`

const (
	statusNotStarted = 96
	statusEnded      = 97
)

func (d daemon) file(ext string) string { return path.Join(d.dir, d.name+ext) }

// spawn starts the daemon; it must stay in the foreground. support marks a
// program that is not part of the device under test.
func (d daemon) spawn(ctx context.Context, support bool, env []string, argv ...string) error {
	shell := append([]string{"sh", "-c", spawnScript, path.Join(d.dir, d.name)}, argv...)
	cmd := agent.Command{Name: d.name, Argv: shell, Env: env, Support: support}
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
		argv := []string{"sh", "-c", lookScript, path.Join(d.dir, d.name), probes[0].shell}
		out, err := d.host.Run(ctx, agent.Command{Argv: argv})
		switch {
		case err == nil:
			probes = probes[1:]
			continue
		case ctx.Err() != nil:
			return d.failure(ctx, "is running but "+probes[0].what, ctx.Err())
		case out.ExitCode == statusEnded:
			return d.failure(ctx, "ended while starting", nil)
		case out.ExitCode == 0:
			// The command did not run at all: the agent is the one to complain about.
			return fmt.Errorf("waiting for %s: %w", d.name, err)
		}
		select {
		case <-ctx.Done():
			return d.failure(ctx, "is running but "+probes[0].what, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
	return nil
}

// failure is an error about the daemon with the end of its log.
func (d daemon) failure(ctx context.Context, what string, cause error) error {
	// The reason to look may be that ctx ended; reading one file outlives it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	log, err := d.host.ReadFile(ctx, d.file(".log"))
	said := lastLines(string(log), 5)
	if err != nil || said == "" {
		said = "it printed nothing"
	}
	if cause != nil {
		return fmt.Errorf("%s %s: %w; %s", d.name, what, cause, said)
	}
	return fmt.Errorf("%s %s: %s", d.name, what, said)
}

// kill ends the daemon at once. Portals tear their sessions down one by one
// when asked politely, which takes openNDS 20 s with 100 clients, and the rules
// they would remove go with the host or are removed by Stop itself. Where the
// agent gave the daemon a process group, scripts it is running end too.
func (d daemon) kill(ctx context.Context) error {
	script := `pid=$(cat "$0" 2>/dev/null) || exit 0; rm -f "$0"
kill -s KILL -- "-$pid" 2>/dev/null; kill -s KILL "$pid" 2>/dev/null; exit 0`
	_, runErr := d.host.Run(ctx, agent.Command{Argv: []string{"sh", "-c", script, d.file(".pid")}})
	if err := errors.Join(runErr, d.host.Kill(ctx, d.name)); err != nil {
		return fmt.Errorf("ending %s: %w", d.name, err)
	}
	return nil
}

// lastLines joins the last n lines that are not blank with " | ".
func lastLines(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], " | ")
}

// shell runs a script to its end on a host; args are $1, $2 ….
func shell(ctx context.Context, h Host, script string, args ...string) error {
	argv := append([]string{"sh", "-ec", script, "sh"}, args...)
	_, err := h.Run(ctx, agent.Command{Argv: argv})
	return err
}

// needTools returns a wrapped ErrNotSupported that names the programs missing
// on PATH and what to do, or nil. The map is program to remedy.
func needTools(device string, tools map[string]string) error {
	var missing []string
	for tool, remedy := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, fmt.Sprintf("%s (%s)", tool, remedy))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// Sorted, because the text goes into reports that are compared.
	slices.Sort(missing)
	return fmt.Errorf("%s: not on PATH: %s: %w", device, strings.Join(missing, ", "), ErrNotSupported)
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

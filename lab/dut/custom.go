package dut

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
)

// ClientAddr is a client as the router sees it.
type ClientAddr struct {
	N   int        // the client's number, counts from 1
	IP  netip.Addr // the address it leased
	MAC string     // "02:00:00:00:00:01"
}

// Admitter is a DUT whose clients are admitted on the router rather than by
// logging in from their side. The lab calls Admit once per lab, after Start and
// when all clients have their leases; Revoke undoes it and is called before
// Stop. Both take all clients at once, and both may have been done half way when
// they return an error.
type Admitter interface {
	Admit(ctx context.Context, env Env, clients []ClientAddr) error
	Revoke(ctx context.Context, env Env, clients []ClientAddr) error
}

// Custom is a device described in an experiment file, [dut.NAME].
type Custom struct {
	name string
	spec experiment.CustomDUT

	vars    []string // "KEY=value" of the lab it was started in
	started bool     // Start was called and Stop has not succeeded since
	ready   bool     // Start succeeded
}

var (
	_ DUT      = (*Custom)(nil)
	_ Admitter = (*Custom)(nil)
)

// NewCustom makes the device spec describes; name is its name in the experiment.
func NewCustom(name string, spec experiment.CustomDUT) *Custom {
	return &Custom{name: name, spec: spec}
}

// needs are the programs the table requires, by name.
func (c *Custom) needs() []Need {
	var list []Need
	for _, program := range slices.Sorted(maps.Keys(c.spec.Requires)) {
		list = append(list, Need{Program: program, Package: c.spec.Requires[program], Why: "its commands"})
	}
	return list
}

// Traits implements DUT. The admission commands carry the lab's addresses once
// Start has run.
func (c *Custom) Traits() Traits {
	t := Traits{
		LAN:           c.spec.LAN,
		DHCP:          c.spec.DHCP,
		Processes:     c.spec.Processes,
		NoAggregation: c.spec.NoAggregation,
		NoTxChecksum:  c.spec.NoTxChecksum,
		Needs:         c.needs(),
		About:         c.spec.Description,
	}
	if t.About == "" {
		t.About = c.name
	}
	if len(c.spec.Login) > 0 {
		t.Admission = client.Admission{
			Kind:   client.AdmitCommand,
			Login:  c.withVars(c.spec.Login),
			Status: c.withVars(c.spec.Status),
			Logout: c.withVars(c.spec.Logout),
		}
	}
	return t
}

// withVars prefixes a client's command with the lab's variables: its argument
// vector is all that reaches the client host.
func (c *Custom) withVars(cmd experiment.Command) []string {
	if len(cmd) == 0 || len(c.vars) == 0 {
		return cmd
	}
	return slices.Concat([]string{"env"}, c.vars, cmd)
}

// Start writes the files, runs start, spawns daemon and waits for ready.
func (c *Custom) Start(ctx context.Context, env Env) error {
	c.started, c.ready = true, false
	c.vars = variables(env)
	for _, path := range slices.Sorted(maps.Keys(c.spec.Files)) {
		if err := c.writeFile(ctx, env, path); err != nil {
			return err
		}
	}
	if err := c.run(ctx, env, "start", c.spec.Start, ""); err != nil {
		return err
	}
	if len(c.spec.Daemon) > 0 {
		cmd := agent.Command{Name: c.daemon(env).name, Argv: c.spec.Daemon, Env: c.vars}
		if err := env.Host("router").Spawn(ctx, cmd); err != nil {
			return c.failed("daemon", c.spec.Daemon, err)
		}
	}
	if err := c.awaitReady(ctx, env); err != nil {
		return err
	}
	c.ready = true
	return nil
}

// writeFile writes one file, relative paths into the scratch directory.
func (c *Custom) writeFile(ctx context.Context, env Env, path string) error {
	target := path
	if !filepath.IsAbs(path) {
		target = filepath.Join(env.Scratch, path)
	}
	content := c.spec.Files[path]
	for _, v := range c.vars {
		key, value, _ := strings.Cut(v, "=")
		content = strings.ReplaceAll(content, "${"+key+"}", value)
	}
	if err := env.Host("router").WriteFile(ctx, target, []byte(content), 0o644); err != nil {
		return fmt.Errorf("%s: files: writing %s: %w", c.name, path, err)
	}
	return nil
}

// awaitReady repeats the ready command until it exits 0, the daemon has ended or
// time is up.
func (c *Custom) awaitReady(ctx context.Context, env Env) error {
	if len(c.spec.Ready) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.spec.ReadyTimeout)
	defer cancel()
	var last error
	for {
		err := c.run(ctx, env, "ready", c.spec.Ready, "")
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // once time is up, the error before says more than "killed"
		}
		if ended := c.daemonEnded(ctx, env); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready after %v: %w", c.spec.ReadyTimeout, last)
		case <-time.After(pollEvery):
		}
	}
}

// daemonEnded is an error with the daemon's last lines if it runs no more.
func (c *Custom) daemonEnded(ctx context.Context, env Env) error {
	if len(c.spec.Daemon) == 0 {
		return nil
	}
	if p, err := c.daemon(env).state(ctx); err == nil && p.Ended {
		return c.failed("daemon", c.spec.Daemon, endedWhileStarting(p))
	}
	return nil
}

// Admit runs the admit command with one line a client on its standard input.
// Without such a command it does nothing.
func (c *Custom) Admit(ctx context.Context, env Env, clients []ClientAddr) error {
	return c.run(ctx, env, "admit", c.spec.Admit, clientLines(clients))
}

// Revoke is Admit's undoing, by the revoke command.
func (c *Custom) Revoke(ctx context.Context, env Env, clients []ClientAddr) error {
	return c.run(ctx, env, "revoke", c.spec.Revoke, clientLines(clients))
}

// clientLines writes clients as commands read them: "1 192.168.137.2 02:…".
func clientLines(clients []ClientAddr) string {
	var b strings.Builder
	for _, cl := range clients {
		fmt.Fprintf(&b, "%d %s %s\n", cl.N, cl.IP, cl.MAC)
	}
	return b.String()
}

// Stop runs stop and ends the daemon. After a Start that failed it is no error
// when stop finds nothing to undo.
func (c *Custom) Stop(ctx context.Context, env Env) error {
	if !c.started {
		return nil
	}
	err := c.run(ctx, env, "stop", c.spec.Stop, "")
	if !c.ready {
		err = nil
	}
	if len(c.spec.Daemon) > 0 {
		if killErr := env.Host("router").Kill(ctx, c.daemon(env).name); killErr != nil {
			err = errors.Join(err, c.failed("daemon", c.spec.Daemon, killErr))
		}
	}
	if err == nil {
		c.started = false
	}
	return err
}

// daemon is the long-running program of the device.
func (c *Custom) daemon(env Env) daemon {
	return daemon{host: env.Host("router"), name: "dut-" + c.name}
}

// run executes the command of one key on the router, if there is one.
func (c *Custom) run(ctx context.Context, env Env, key string, argv experiment.Command, stdin string) error {
	if len(argv) == 0 {
		return nil
	}
	timeout := c.spec.Timeout
	if key == "ready" {
		timeout = c.spec.ReadyTimeout
	}
	_, err := env.Host("router").Run(ctx, agent.Command{Argv: argv, Env: c.vars, Stdin: stdin, Timeout: timeout})
	if err != nil {
		return c.failed(key, argv, err)
	}
	return nil
}

// failed names device, key and command; err carries the last lines of output.
func (c *Custom) failed(key string, argv experiment.Command, err error) error {
	shown := strings.Join(argv, " ")
	if len(argv) == 3 && argv[0] == "sh" && argv[1] == "-c" {
		shown = strings.TrimSpace(argv[2])
	}
	if first, _, more := strings.Cut(shown, "\n"); more {
		shown = first + " …"
	}
	return fmt.Errorf("%s: %s command %q: %w", c.name, key, shown, err)
}

// variables are experiment.Vars with the values of one lab.
func variables(env Env) []string {
	values := map[string]string{
		experiment.VarLANIf:   env.Port("lan"),
		experiment.VarWANIf:   env.Port("wan"),
		experiment.VarLAN:     env.LAN.String(),
		experiment.VarGateway: env.Gateway.String(),
		experiment.VarServer:  env.ServerIP.String(),
		experiment.VarService: env.ServiceIP.String(),
		experiment.VarClients: strconv.Itoa(env.Clients),
		experiment.VarScratch: env.Scratch,
	}
	vars := make([]string, len(experiment.Vars))
	for i, key := range experiment.Vars {
		vars[i] = key + "=" + values[key]
	}
	return vars
}

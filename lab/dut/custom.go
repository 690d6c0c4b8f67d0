package dut

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
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
	// Admits and Revokes report whether Admit and Revoke do anything.
	Admits() bool
	Revokes() bool
	Admit(ctx context.Context, env Env, clients []ClientAddr) error
	Revoke(ctx context.Context, env Env, clients []ClientAddr) error
}

// Custom is a device described in an experiment file, [dut.NAME].
type Custom struct {
	name string
	spec experiment.CustomDUT

	places  []*installedHost // it was started at: the router, or of a tunnel both gateways
	started bool             // Start was called and Stop has not succeeded since
	ready   bool             // Start succeeded
}

// installedHost is a host that the device is installed on.
type installedHost struct {
	Host
	gateway string   // its name, of a tunnel
	vars    []string // "KEY=value" of the lab, as the host sees it
	daemon  daemon   // without a host where there is none
}

var (
	_ Admitter = (*Custom)(nil)
	_ Proven   = (*Custom)(nil)
)

// needs are the programs the table requires, by name, and options of the kernel.
func (c *Custom) needs() (list []Need) {
	for _, program := range slices.Sorted(maps.Keys(c.spec.Requires)) {
		list = append(list, Need{Program: program, Package: c.spec.Requires[program], Why: "its commands"})
	}
	for _, option := range c.spec.Kernel {
		list = append(list, Need{Feature: machine.Feature(option)})
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
		Tunnel:        c.spec.Tunnel,
		Open:          c.spec.Open,
		Needs:         c.needs(),
		About:         cmp.Or(c.spec.Description, c.name),
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
	if len(cmd) == 0 || len(c.places) == 0 {
		return cmd
	}
	return slices.Concat([]string{"env"}, c.places[0].vars, cmd)
}

// Start writes the files, relative paths into the scratch directory, runs start, spawns
// daemon and waits for ready: of a tunnel on both gateways at the same time.
func (c *Custom) Start(ctx context.Context, env Env) error {
	c.started, c.ready, c.places = true, false, nil
	if c.spec.Tunnel {
		c.places = gatewayHosts(env, c.mtu())
	} else {
		c.places = []*installedHost{c.first(env)}
	}
	err := c.each(func(p *installedHost) error { return c.install(ctx, env, p) })
	c.ready = err == nil
	return err
}

// first is the place whose commands admit clients, also before Start: the first host that clients' packets pass.
func (c *Custom) first(env Env) *installedHost {
	switch {
	case len(c.places) > 0:
		return c.places[0]
	case c.spec.Tunnel: // it admits nobody
		return &installedHost{}
	}
	return &installedHost{Host: env.Host("router"), vars: variables(env)}
}

// each works on all places at once. Errors of a tunnel name the gateways that they are of; a text of both stands there
// once.
func (c *Custom) each(do func(*installedHost) error) error {
	errs := make([]error, len(c.places))
	var wg sync.WaitGroup
	for i, p := range c.places {
		wg.Go(func() { errs[i] = do(p) })
	}
	wg.Wait()
	if !c.spec.Tunnel {
		return errors.Join(errs...)
	}
	var said []error
	for i, err := range errs {
		alike := func(other error) bool { return err != nil && other != nil && other.Error() == err.Error() }
		if err == nil || slices.ContainsFunc(errs[:i], alike) {
			continue
		}
		var names []string
		for j, other := range errs {
			if alike(other) {
				names = append(names, c.places[j].gateway)
			}
		}
		said = append(said, fmt.Errorf("%s: %w", strings.Join(names, " and "), err))
	}
	return errors.Join(said...)
}

func (c *Custom) install(ctx context.Context, env Env, p *installedHost) error {
	for _, file := range slices.Sorted(maps.Keys(c.spec.Files)) {
		target, content := file, c.spec.Files[file]
		if !filepath.IsAbs(file) {
			target = filepath.Join(env.Scratch, file)
		}
		for _, v := range p.vars {
			key, value, _ := strings.Cut(v, "=")
			content = strings.ReplaceAll(content, "${"+key+"}", value)
		}
		if err := p.WriteFile(ctx, target, []byte(content), 0o644); err != nil {
			return fmt.Errorf("%s: files: writing %s: %w", c.name, file, err)
		}
	}
	if err := c.run(ctx, p, "start", c.spec.Start, ""); err != nil {
		return err
	}
	if len(c.spec.Daemon) > 0 {
		p.daemon = daemon{host: p.Host, name: "dut-" + c.name}
		label := c.label("daemon", c.spec.Daemon)
		if err := p.Spawn(
			ctx, agent.Command{Label: label, Name: p.daemon.name, Argv: c.spec.Daemon, Env: p.vars}); err != nil {
			return err
		}
	}
	return c.awaitReady(ctx, p)
}

// awaitReady repeats the ready command until it exits 0, the daemon has ended or
// time is up.
func (c *Custom) awaitReady(ctx context.Context, p *installedHost) error {
	if len(c.spec.Ready) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.spec.ReadyTimeout)
	defer cancel()
	var last error
	_, err := p.daemon.pollUntil(ctx, func() error {
		err := c.run(ctx, p, "ready", c.spec.Ready, "")
		if last == nil || ctx.Err() == nil {
			last = err // once time is up, the error before says more than "killed"
		}
		return err
	})
	switch {
	case errors.Is(err, errTimeIsUp):
		return fmt.Errorf("not ready after %v: %w", c.spec.ReadyTimeout, last)
	case err != nil:
		return fmt.Errorf("%s: %w", c.label("daemon", c.spec.Daemon), err)
	}
	return nil
}

// Admits reports whether there is an admit command.
func (c *Custom) Admits() bool { return len(c.spec.Admit) > 0 }

// Revokes reports whether there is a revoke command.
func (c *Custom) Revokes() bool { return len(c.spec.Revoke) > 0 }

// Admit runs the admit command with one line a client on its standard input.
// Without such a command it does nothing.
func (c *Custom) Admit(ctx context.Context, env Env, clients []ClientAddr) error {
	return c.run(ctx, c.first(env), "admit", c.spec.Admit, clientLines(clients))
}

// Revoke is Admit's undoing, by the revoke command.
func (c *Custom) Revoke(ctx context.Context, env Env, clients []ClientAddr) error {
	return c.run(ctx, c.first(env), "revoke", c.spec.Revoke, clientLines(clients))
}

// clientLines writes clients as commands read them: "1 192.168.137.2 02:…".
func clientLines(clients []ClientAddr) string {
	var b strings.Builder
	for _, cl := range clients {
		fmt.Fprintf(&b, "%d %s %s\n", cl.N, cl.IP, cl.MAC)
	}
	return b.String()
}

// Unlike is what the proof command prints where it does not exit 0, of a tunnel on either gateway. It does not count as
// the device's.
func (c *Custom) Unlike(ctx context.Context, _ Env) (string, error) {
	if len(c.spec.Proof) == 0 {
		return "", nil
	}
	messages := make([]string, len(c.places))
	err := c.each(func(p *installedHost) error {
		out, err := p.Run(ctx, agent.Command{Argv: c.spec.Proof, Env: p.vars, Timeout: askTimeout, Support: true})
		if err == nil || out.ExitCode <= 0 {
			return err
		}
		i := slices.Index(c.places, p)
		messages[i] = cmp.Or(agent.LastLines(out.Stdout+out.Stderr), fmt.Sprintf(
			"its proof command ends with exit status %d, and prints nothing", out.ExitCode))
		return nil
	})
	messages = slices.DeleteFunc(slices.Compact(messages), func(text string) bool { return text == "" })
	return strings.Join(messages, "; "), err
}

// Stop runs stop and ends the daemon. After a Start that failed it is no error
// when stop finds nothing to undo.
func (c *Custom) Stop(ctx context.Context, _ Env) error {
	if !c.started {
		return nil
	}
	err := c.each(func(p *installedHost) error {
		err := c.run(ctx, p, "stop", c.spec.Stop, "")
		if !c.ready {
			err = nil
		}
		if p.daemon.host != nil {
			err = errors.Join(err, p.daemon.kill(ctx))
		}
		return err
	})
	c.started = err != nil
	return err
}

// run executes the command of one key on a host, if there is one.
func (c *Custom) run(ctx context.Context, p *installedHost, key string, argv experiment.Command, stdin string) error {
	if len(argv) == 0 {
		return nil
	}
	timeout := c.spec.Timeout
	if key == "ready" {
		timeout = c.spec.ReadyTimeout
	}
	_, err := p.Run(ctx, agent.Command{Label: c.label(key, argv), Argv: argv, Env: p.vars, Stdin: stdin, Timeout: timeout})
	return err
}

// label names device, key and command in errors.
func (c *Custom) label(key string, argv experiment.Command) string {
	return fmt.Sprintf("%s: %s command %q", c.name, key, argv)
}

// Variables are what commands find in their environment on a host of a lab, "KEY=value": those of the device that runs
// there, where it is described in an experiment and has started on the host, and otherwise those that all devices
// share.
func Variables(d DUT, env Env, host string) []string {
	if t, ok := d.(customTunnel); ok {
		d = t.Custom
	}
	if c, ok := d.(*Custom); ok {
		if i := slices.IndexFunc(c.places, func(p *installedHost) bool { return p.gateway == host }); i >= 0 {
			return c.places[i].vars
		}
	}
	return variables(env)
}

// variables are experiment.Vars with the values of one lab.
func variables(env Env) (vars []string) {
	for key, value := range map[string]any{
		experiment.VarLANIf:   env.Port("lan"),
		experiment.VarWANIf:   env.Port("wan"),
		experiment.VarLAN:     env.LAN,
		experiment.VarGateway: env.Gateway,
		experiment.VarServer:  env.ServerIP,
		experiment.VarService: env.ServiceIP,
		experiment.VarClients: env.Clients,
		experiment.VarScratch: env.Scratch,
	} {
		vars = append(vars, fmt.Sprintf("%s=%v", key, value))
	}
	return vars
}

// withMasquerade is a device on a router that also does something else, such as masquerade:
// the start command of the device's table sets that up before the device starts.
type withMasquerade struct {
	Counted
	rest *Custom
}

// Start implements DUT.
func (c withMasquerade) Start(ctx context.Context, env Env) error {
	if err := c.rest.Start(ctx, env); err != nil {
		return err
	}
	return c.Counted.Start(ctx, env)
}

// Unlike asks the device, where it is one that can be asked.
func (c withMasquerade) Unlike(ctx context.Context, env Env) (string, error) {
	if d, ok := c.Counted.(Proven); ok {
		return d.Unlike(ctx, env)
	}
	return "", nil
}

// Stop implements DUT. The device stops first.
func (c withMasquerade) Stop(ctx context.Context, env Env) error {
	return errors.Join(c.Counted.Stop(ctx, env), c.rest.Stop(ctx, env))
}

// Traits are the device's, with the programs of both.
func (c withMasquerade) Traits() Traits {
	t := c.Counted.Traits()
	t.Needs = slices.Concat(t.Needs, c.rest.needs())
	if g, ok := c.Counted.(*Gateway); ok && g.cachesFlows(true) {
		t.Gathers = true
	}
	switch about := c.rest.spec.Description; {
	case c.rest.spec.Like == experiment.Parametrised: // it says its parameters
		t.About += ", and its table's start beside it"
	case about != "":
		t.About = fmt.Sprintf("%s (%s, and its table's start beside it)", about, c.rest.spec.Like)
	}
	return t
}

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
	IP  netip.Addr // its IPv4 address, such as the one it leased; the zero Addr: it has none
	IP6 netip.Addr // its IPv6 address; the zero Addr: it has none
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

// Custom is a device described by commands in an experiment file, [dut.NAME].
type Custom struct {
	name string
	spec experiment.CustomDUT

	places  []*installedHost // the hosts on which it was started: the router; for a tunnel, both gateways
	started bool             // Start was called and Stop has not succeeded since
	ready   bool             // Start succeeded
}

// installedHost is a host that the device is installed on.
type installedHost struct {
	Host
	gateway string   // for a tunnel: the host's name, "gw1" or "gw2"
	vars    []string // environment of the commands, "KEY=value"
	daemon  daemon   // its host is nil when the device has no daemon command
}

var (
	_ Admitter = (*Custom)(nil)
	_ Provable = (*Custom)(nil)
)

// needs lists the programs and kernel options that the device's table requires.
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
		Families:      c.spec.FamilyList(),
		NoIPv6:        "[dut." + c.name + "] says no more: families = [4, 6]",
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

// withVars puts env(1) and the lab's variables before a client's command, because only the command's arguments reach
// the client's host.
func (c *Custom) withVars(cmd experiment.Command) []string {
	if len(cmd) == 0 || len(c.places) == 0 {
		return cmd
	}
	return slices.Concat([]string{"env"}, c.places[0].vars, cmd)
}

// Start writes the device's files, runs its start command, starts its daemon and waits until its ready command
// succeeds. For a tunnel it does so on both gateways at the same time. Files with relative paths are put into the
// scratch directory.
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

// first is the host on which admit and revoke run: the router. It works before Start too. A tunnel admits nobody.
func (c *Custom) first(env Env) *installedHost {
	switch {
	case len(c.places) > 0:
		return c.places[0]
	case c.spec.Tunnel:
		return &installedHost{}
	}
	return &installedHost{Host: env.Host("router"), vars: variables(env)}
}

// each calls do for all hosts at once and waits for all. Errors of a tunnel begin with the gateway's name. When both
// gateways have the same error it is reported once, with both names.
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
	var failures []error
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
		failures = append(failures, fmt.Errorf("%s: %w", strings.Join(names, " and "), err))
	}
	return errors.Join(failures...)
}

// install starts the device on one host: files, start command, daemon, ready command.
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
		if err := c.spawn(ctx, p); err != nil {
			return err
		}
	}
	return c.awaitReady(ctx, p)
}

// spawn starts the device's daemon.
func (c *Custom) spawn(ctx context.Context, p *installedHost) error {
	p.daemon = daemon{host: p.Host, name: "dut-" + c.name}
	return p.Spawn(ctx, agent.Command{
		Label: c.label("daemon", c.spec.Daemon), Name: p.daemon.name, Argv: c.spec.Daemon, Env: p.vars})
}

// awaitReady repeats the ready command until it exits with status 0. It returns an error when the daemon ends or
// ReadyTimeout passes first.
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

// Revoke undoes Admit by the revoke command.
func (c *Custom) Revoke(ctx context.Context, env Env, clients []ClientAddr) error {
	return c.run(ctx, c.first(env), "revoke", c.spec.Revoke, clientLines(clients))
}

// clientLines is the standard input of admit and revoke: number, address and hardware address of a client a line,
// "1 192.168.137.2 02:…". A client with two addresses has two lines.
func clientLines(clients []ClientAddr) string {
	var b strings.Builder
	for _, cl := range clients {
		for _, ip := range []netip.Addr{cl.IP, cl.IP6} {
			if ip.IsValid() {
				fmt.Fprintf(&b, "%d %s %s\n", cl.N, ip, cl.MAC)
			}
		}
	}
	return b.String()
}

// FailedProof runs the proof command, on both gateways of a tunnel. An exit status other than zero is a failed proof,
// whose reason is what the command prints. The command's CPU time does not count as the device's.
func (c *Custom) FailedProof(ctx context.Context, _ Env) (string, error) {
	if len(c.spec.Proof) == 0 {
		return "", nil
	}
	messages := make([]string, len(c.places))
	err := c.each(func(p *installedHost) error {
		out, err := p.Run(ctx, agent.Command{Argv: c.spec.Proof, Env: p.vars, Timeout: queryTimeout, Support: true})
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

// Stop runs the stop command and ends the daemon. After a Start that failed, errors of the stop command are ignored,
// because it may find nothing to undo.
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

// Variables returns the environment of a device's commands on one host of a lab, "KEY=value". A custom device that has
// started on the host has variables of its own there. For any other device they are those that all devices share.
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

// variables returns the variables that all devices share, with the values of one lab.
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

		experiment.VarLAN6: orEmpty(env.LAN6), experiment.VarGateway6: orEmpty(env.Gateway6),
		experiment.VarServer6: orEmpty(env.ServerIP6),
	} {
		vars = append(vars, fmt.Sprintf("%s=%v", key, value))
	}
	return vars
}

// orEmpty returns an address or a network as text, empty for one that is not valid.
func orEmpty(a interface {
	IsValid() bool
	String() string
}) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// withSetup is a device written in Go on a router that the start command of an experiment's table sets up first, for
// instance to masquerade.
type withSetup struct {
	Counted
	setup *Custom // the table's commands
}

// Start runs the table's start command, then starts the device.
func (c withSetup) Start(ctx context.Context, env Env) error {
	if err := c.setup.Start(ctx, env); err != nil {
		return err
	}
	return c.Counted.Start(ctx, env)
}

// FailedProof is the device's; a device that is not Provable has nothing to prove.
func (c withSetup) FailedProof(ctx context.Context, env Env) (string, error) {
	if d, ok := c.Counted.(Provable); ok {
		return d.FailedProof(ctx, env)
	}
	return "", nil
}

// Stop stops the device, then runs the table's stop command.
func (c withSetup) Stop(ctx context.Context, env Env) error {
	return errors.Join(c.Counted.Stop(ctx, env), c.setup.Stop(ctx, env))
}

// Traits are the device's, with the needs of the table's commands added.
func (c withSetup) Traits() Traits {
	t := c.Counted.Traits()
	t.Needs = slices.Concat(t.Needs, c.setup.needs())
	if g, ok := c.Counted.(*Gateway); ok && g.cachesFlows(true) {
		t.Aggregates = true
	}
	switch about := c.setup.spec.Description; {
	case c.setup.spec.Like == experiment.Parametrised: // Gateway.Traits has put the description into About
		t.About += ", and its table's start beside it"
	case about != "":
		t.About = fmt.Sprintf("%s (%s, and its table's start beside it)", about, c.setup.spec.Like)
	}
	return t
}

// Package gateway assembles a gateway from its parts and runs it.
//
//	DHCP ──lease──▶ session table ──Set──▶ data path ◀── packets
//	portal ─login─▶       │  ▲                 ▲
//	   └─ users, RADIUS   │  └── control       └── DNS opens the walled garden
//	                      └─ events ─▶ RADIUS accounting
package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
	"github.com/gateweigh/gateweigh/gateway/dns"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/ident"
	"github.com/gateweigh/gateweigh/gateway/nat"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
	"github.com/gateweigh/gateweigh/gateway/portal"
	"github.com/gateweigh/gateweigh/gateway/pppoe"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/gateway/users"
)

// Daemon is what a gateway needs from the process it runs in.
type Daemon struct {
	Version string
	Log     *slog.Logger
	Ready   func() // called once, when clients and control verbs are served
}

// gateway holds the running parts; those that the configuration disables are nil.
type gateway struct {
	cfg   *config.Config
	log   *slog.Logger
	began time.Time
	said  Daemon

	socket *control.Socket
	state  io.Closer // unlocks state_dir
	dp     datapath.Running
	arp    arp.Prober // asks clients whether they are there
	table  *session.Table
	radius *radius.Client
	asks   *radius.Dynamic // what servers ask of sessions
	portal *portal.Portal
	home   bool // the portal answers at homePort too
	users  *users.Accounts
	dhcp   *dhcp.Server
	dns    *dns.Server
	pppoe  *pppoe.Server
	lines  *lines        // of pppoe
	guard  guesses.Guard // against guessing passwords, by the portal and PPPoE
	flows  *flowlog.Log
	ident  *ident.Server
	watch  *ident.Watch // of ident
	nat    *nat.NAT

	portless budget.Seldom // messages of clients without ports

	connections *conntrack.Ender // ends those of clients with their sessions

	// known is closed once the table is open. Clients that the data path reports earlier
	// are reported again with their next packet.
	known    chan struct{}
	claims   claims
	behind   networks // behind clients on lines
	switched switched
	living   context.Context // ends before the table is closed
}

// Run serves until ctx ends. What is in the kernel stays in place, and admitted clients'
// traffic continues. Run fails with control.ErrRunning if another daemon has the same
// run_dir, and with datapath.ErrBusy if another one has an interface.
func Run(ctx context.Context, cfg *config.Config, d Daemon) (err error) {
	g := &gateway{cfg: cfg, log: d.Log, began: time.Now(), said: d, known: make(chan struct{})}
	g.arp.Interface, g.arp.Source, g.arp.All = cfg.LAN.Interface, cfg.LAN.Address.Addr(), kindOf(cfg).OwnAddress
	living, end := context.WithCancel(ctx)
	g.living = living
	defer func() { end(); g.claims.end(); err = errors.Join(err, g.close()) }()
	if err := g.open(); err != nil {
		return err
	}
	return g.serve(ctx)
}

// open creates the parts: first those that decide, then those that clients reach.
func (g *gateway) open() (err error) {
	cfg := g.cfg
	if g.socket, err = control.Listen(cfg.ControlSocket()); err != nil {
		return err
	}
	found := append(CheckFiles(cfg), check(cfg, 0)...)
	for _, f := range found {
		if f.Weight == Warning {
			g.log.Warn(f.Text)
		}
	}
	if err := Refused(found); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return fmt.Errorf("making state_dir: %w", err)
	}
	if g.state, err = datapath.LockFolder(cfg.StateDir); err != nil {
		return err
	}
	if err := g.openNAT(); err != nil { // before the data path, which redirects where nothing translates
		return err
	}
	g.openHome()
	if g.dp, err = g.openPath(); err != nil {
		return err
	}
	if err := g.openTable(); err != nil {
		return err
	}
	if err := g.reconcile(); err != nil {
		return err
	}
	g.openConnections()
	if err := g.forgetUnleased(); err != nil {
		return err
	}
	close(g.known)
	if err := g.openFlows(); err != nil {
		return err
	}
	if err := g.openGarden(); err != nil {
		return err
	}
	if len(cfg.RADIUS.Servers()) > 0 {
		if g.radius, err = radius.New(g.radiusConfig()); err != nil {
			return err
		}
	}
	if at := cfg.RADIUS.Dynamic; at.IsValid() {
		if g.asks, err = radius.ListenDynamic(
			g.radiusConfig(), at, g.table, filepath.Join(cfg.StateDir, "requests"), g.log); err != nil {
			return err
		}
	}
	if err := g.openPortal(); err != nil {
		return err
	}
	if err := g.openLines(); err != nil {
		return err
	}
	if err := g.openIdent(); err != nil {
		return err
	}
	if cfg.DHCP.Mode == config.Server {
		dc := g.dhcpConfig()
		if g.dhcp, err = dhcp.New(dc, leases{g.table}); errors.Is(err, statefile.ErrDamaged) {
			if err = g.setAside(dc.Path, err, "leases begin anew"); err == nil {
				g.dhcp, err = dhcp.New(dc, leases{g.table})
			}
		}
		if err != nil {
			return err
		}
		if err := g.takeUp(g.dhcp.Leases()); err != nil {
			return err
		}
		if err := g.forgetClaims(g.dhcp.Leases()); err != nil {
			return err
		}
	}
	if cfg.DNS.Mode == config.Server {
		g.dns, err = dns.New(g.dnsConfig(), opener{g.dp})
	}
	return err
}

// openTable opens the session table. Counters of a data path in user space end with the
// daemon, those of one in the kernel end with detach or a change of kind. Sessions
// continue in either case, until the machine restarts.
func (g *gateway) openTable() error {
	file, kept := sessionsFile(g.cfg), bootFile(g.cfg)
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return fmt.Errorf("reading which boot of the machine this is: %w", err)
	}
	last, err := os.ReadFile(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading which boot of the machine sessions are of: %w", err)
	}
	why, fresh := lost(file, kept)
	if why != "" {
		g.log.Error("the session table "+why+": every client must log in again", "file", file)
	}
	open := session.Open
	if bytes.Equal(last, boot) {
		open = session.Resume
	}
	if g.table, err = open(file, g.dp.Forwarder, g.log); errors.Is(err, statefile.ErrDamaged) {
		if err = g.setAside(file, err, "every client must log in again"); err == nil {
			fresh = true
			g.table, err = open(file, g.dp.Forwarder, g.log)
		}
	}
	if err != nil {
		return err
	}
	if fresh {
		err = g.beginAnew()
	} else {
		err = g.takeBack()
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(kept, boot, 0o600); err != nil {
		return fmt.Errorf("keeping which boot of the machine sessions are of: %w", err)
	}
	return nil
}

// setAside takes a damaged state file out of the way, so that the gateway serves without
// what the file knew. Nobody is admitted who is not in the new file.
func (g *gateway) setAside(path string, damage error, effect string) error {
	aside, err := statefile.SetAside(path)
	if err != nil {
		return errors.Join(damage, err)
	}
	g.log.Error("a state file is damaged and was set aside: "+effect, "file", path, "now", aside, "err", damage)
	return nil
}

// bootID identifies the present boot of the machine; bootFile stores the boot that the
// sessions belong to.
const bootID = "/proc/sys/kernel/random/boot_id"

func bootFile(cfg *config.Config) string { return filepath.Join(cfg.StateDir, "boot") }

// reconcile blocks clients that a former daemon admitted and the table does not contain,
// because its file was lost or replaced.
func (g *gateway) reconcile() error {
	all, err := g.dp.Clients()
	if err != nil {
		return err
	}
	for _, id := range all {
		if _, known := g.table.Get(id.Addr()); known {
			continue
		}
		if err := g.dp.Remove(id); err != nil {
			return err
		}
	}
	return nil
}

// takeUp adds leases that the table does not contain, for the same reason.
func (g *gateway) takeUp(all []dhcp.Lease) error {
	for _, l := range all {
		if _, known := g.table.Get(l.Addr); known {
			continue
		}
		if err := (leases{g.table}).Leased(l.MAC[:], l.Addr, l.Hostname, l.End); err != nil {
			return fmt.Errorf("taking up the lease of %s: %w", l.Addr, err)
		}
	}
	return nil
}

// serve runs the parts until ctx ends or one of them fails; the others end with it.
func (g *gateway) serve(ctx context.Context) error {
	var open doors
	if g.portal != nil { // the portal must listen before the gateway reports ready
		var err error
		if open, err = g.listenPortal(ctx); err != nil {
			return fmt.Errorf("portal: %w", err)
		}
	}
	var asked net.Listener
	if g.ident != nil {
		var err error
		if asked, err = ident.Listen(ctx, g.cfg.WAN.Interface); err != nil {
			return err
		}
	}
	// Everything that decides about packets is in place.
	if err := forwardingSwitch(g.cfg).On(crossings(g.cfg)...); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	var mu sync.Mutex
	var failed error
	run := func(part string, fn func(context.Context) error) {
		running.Go(func() {
			err := fn(ctx)
			if err == nil && ctx.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				mu.Lock()
				failed = errors.Join(failed, fmt.Errorf("%s: %w", part, err))
				mu.Unlock()
			}
			stop(nil)
		})
	}
	if g.dp.Wait != nil {
		run("data path", g.dp.Wait)
	}
	run("forwarding", g.keepForwarding)
	run("bridges", g.watchBridges)
	if g.nat != nil {
		run("address translation", func(ctx context.Context) error { return g.nat.Run(ctx, g.detached) })
	}
	run("sessions", g.table.Run)
	run("accounting", g.account)
	run("control", func(ctx context.Context) error { return g.socket.Serve(ctx, granting{g.table, g, true}, g.status) })
	if g.asks != nil {
		run("requests of RADIUS servers", g.asks.Serve)
	}
	if g.portal != nil {
		run("portal", func(ctx context.Context) error { return g.portal.Serve(ctx, open.plain, open.secure, open.home) })
	}
	if g.users != nil {
		run("users' file", g.users.Follow)
	}
	if g.dhcp != nil {
		run("dhcp", g.dhcp.Run)
	} else {
		run("leases of others", g.renew)
	}
	if g.dns != nil {
		run("dns", g.dns.Run)
	}
	if g.flows != nil {
		run("flow log", g.flows.Run)
	}
	if g.pppoe != nil {
		run("pppoe", g.pppoe.Serve)
	}
	if g.ident != nil {
		run("ident", func(ctx context.Context) error { return g.ident.Serve(ctx, asked) })
	}
	if g.cfg.Metrics.Listen.IsValid() {
		run("metrics", func(ctx context.Context) error {
			return control.ServeMetrics(ctx, g.cfg.Metrics.Listen, g.status, func(net.Addr) {})
		})
	}
	g.said.Ready()
	running.Wait()
	return failed
}

// close closes the parts in reverse order. The data path stays in the kernel. Where it
// passes nothing without the daemon, forwarding is switched off again.
func (g *gateway) close() error {
	var errs []error
	if g.dp.Forwarder != nil && kindOf(g.cfg).Outlives == 0 {
		errs = append(errs, forwardingSwitch(g.cfg).Off())
	}
	if g.pppoe != nil { // before the table: a link that ends by then is taken up by the next daemon
		g.pppoe.Close()
	}
	if g.watch != nil {
		errs = append(errs, g.watch.Close())
	}
	if g.dns != nil {
		errs = append(errs, g.dns.Close())
	}
	if g.dhcp != nil {
		errs = append(errs, g.dhcp.Close())
	}
	if g.asks != nil {
		errs = append(errs, g.asks.Close())
	}
	if g.radius != nil {
		errs = append(errs, g.radius.Close())
	}
	if g.flows != nil { // before the table, which it asks
		errs = append(errs, g.flows.Close())
	}
	if g.table != nil {
		errs = append(errs, g.table.Close())
	}
	if g.connections != nil {
		g.connections.End() // what was to end soon; it logs errors
	}
	if g.dp.Forwarder != nil {
		// After the table, which reads the last counts from it. Clients that it reports meanwhile
		// find the table closed, and are reported to the next daemon.
		errs = append(errs, g.dp.Close())
	}
	if g.nat != nil {
		errs = append(errs, g.nat.Close())
	}
	if g.state != nil {
		errs = append(errs, g.state.Close())
	}
	if g.socket != nil {
		errs = append(errs, g.socket.Close())
	}
	return errors.Join(errs...)
}

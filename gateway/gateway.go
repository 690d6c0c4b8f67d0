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
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/daily"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/delegation"
	"github.com/gateweigh/gateweigh/gateway/dhcp"
	"github.com/gateweigh/gateweigh/gateway/dhcp6"
	"github.com/gateweigh/gateweigh/gateway/dns"
	"github.com/gateweigh/gateweigh/gateway/flowlog"
	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/ident"
	"github.com/gateweigh/gateweigh/gateway/nat"
	"github.com/gateweigh/gateweigh/gateway/netfilter/connlimit"
	"github.com/gateweigh/gateweigh/gateway/netfilter/conntrack"
	"github.com/gateweigh/gateweigh/gateway/oidc"
	"github.com/gateweigh/gateweigh/gateway/portal"
	"github.com/gateweigh/gateweigh/gateway/pppoe"
	"github.com/gateweigh/gateweigh/gateway/radius"
	"github.com/gateweigh/gateweigh/gateway/rooms"
	"github.com/gateweigh/gateweigh/gateway/routeradv"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/gateway/statefile"
	"github.com/gateweigh/gateweigh/gateway/uam"
	"github.com/gateweigh/gateweigh/gateway/users"
	"github.com/gateweigh/gateweigh/gateway/visit"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// Daemon is what a gateway needs from the process it runs in.
type Daemon struct {
	Version string
	Log     *slog.Logger
	Ready   func() // called once, when clients and control verbs are served
	// Reload reads the configuration again, and applies it by a function that it is given once, before Ready; nil: it is
	// not read again.
	Reload func() control.ReloadReply
	Apply  func(Apply)
}

// gateway holds the running parts; those that the configuration disables are nil.
type gateway struct {
	cfg     *config.Config
	log     *slog.Logger
	began   time.Time
	version string
	reload  func() control.ReloadReply // nil: the configuration is not read again

	dp          datapath.Running
	arp         arp.Prober // asks clients whether they are there
	table       *session.Table
	radius      *radius.Client
	dynamic     *radius.Dynamic // what servers ask of sessions
	portal      *portal.Portal
	homeListens bool // the portal answers at homePort too
	users       *users.Accounts
	devices     devices
	vouchers    *voucher.Book // nil: there are none
	uam         *uam.Server   // speaks with a portal elsewhere; nil: there is none
	providers   *oidc.Desk    // at which clients log in; nil: none
	visits      *visit.Garden // of clients that log in there; nil as providers is
	daily       *daily.Book   // nil: no day limits anything
	rooms       *rooms.File   // nil: guests are not asked for theirs
	dhcp        *dhcp.Server
	dns         *dns.Server
	pppoe       *pppoe.Server
	pppoeAccess *pppoeAccess  // of pppoe
	guard       guesses.Guard // against guessing passwords, by the portal and PPPoE
	flows       *flowlog.Log
	ident       *ident.Server
	identWatch  *ident.ConnWatch // of ident
	nat         *nat.NAT
	bindings    *bindings.Server // who has which IPv6 address
	addresses6  addresses6
	advertiser  *routeradv.Server
	prefixes    delegatedPrefixes
	upstream6   upstream6
	delegated6  delegations6
	delegation  *delegation.Client
	provider    *provider // of several networks' prefixes; nil: the network is the only one
	each6       clientPrefixes
	grants      grants6
	noPrefix    budget.OncePerMinute // messages of pools that are used up
	dhcp6       *dhcp6.Server
	leases6     *dhcp6.File

	admin adminPage    // of the only network
	store *sharedStore // of the daemon
	roams *roams       // between gateways; nil: there is no store
	pair  *pairLife    // of two gateways; nil: the gateway is alone

	portless budget.OncePerMinute // messages of clients without ports
	noVLANs  budget.OncePerMinute // messages of clients whose VLANs are not known

	connections *conntrack.Ender   // ends those of clients with their sessions
	counting    *connlimit.Limiter // bounds how many clients have at once; nil: nothing does

	// known is closed once the table is open. Clients that the data path reports earlier are reported again with their
	// next packet.
	tableOpened chan struct{}
	claims      newcomerClaims
	own         ownAddresses // that devices have without a lease
	behind      networks     // behind clients on lines
	switched    forwardingState
	sessionsCtx context.Context // ends before the table is closed
}

// Run serves until ctx ends. What is in the kernel stays in place, and admitted clients' traffic continues. Run fails
// with control.ErrRunning if another daemon has the same run_dir, and with datapath.ErrBusy if another one has an
// interface.
func Run(ctx context.Context, cfg *config.Config, d Daemon) error {
	if len(cfg.Networks) > 0 {
		return runNetworks(ctx, cfg, d)
	}
	if cfg.Pair.Site != "" {
		return runPair(ctx, cfg, d)
	}
	g := newGateway(cfg, d)
	g.reload = g.admin.reloading(d.Reload)
	only := func() []*config.Config { return []*config.Config{cfg} }
	page := part{"admin page", func(ctx context.Context) (opened, error) { // after the table and the vouchers
		return g.admin.part(cfg, g.log, g.answers(), adminClients{only, g.hasClient}).open(ctx)
	}}
	store := g.store.part(cfg, d, g.sessionsNow) // before the sessions, and closed after them
	return runParts(ctx, slices.Concat([]part{{"control", g.openControl}, store}, g.parts(), []part{page},
		daemonParts(cfg, g.status)), d.Ready)
}

func newGateway(cfg *config.Config, d Daemon) *gateway {
	g := &gateway{cfg: cfg, log: d.Log, began: time.Now(), version: d.Version, reload: d.Reload,
		tableOpened: make(chan struct{}), store: &sharedStore{}}
	g.arp.Interface, g.arp.Source, g.arp.AllProtocols = cfg.LAN.Interface, cfg.LAN.Address.Addr(), kindOf(cfg).OwnAddress
	g.own.asker = arp.Prober{Interface: g.arp.Interface, Source: g.arp.Source, AllProtocols: true}
	g.own.served = make(chan struct{})
	g.behind.outside = outsideOf(cfg)
	return g
}

// daemonParts are the parts that a daemon has once, however many networks it serves.
func daemonParts(cfg *config.Config, status func() control.Status) []part {
	return []part{
		{"metrics", func(context.Context) (o opened, err error) {
			if addr := cfg.Metrics.Listen; addr.IsValid() {
				o.run = func(ctx context.Context) error { return control.ServeMetrics(ctx, addr, status, func(net.Addr) {}) }
			}
			return o, nil
		}},
		{"memory", func(context.Context) (opened, error) { return opened{run: giveBack}, nil }},
	}
}

// openControl takes the place of the only daemon of this run_dir.
func (g *gateway) openControl(context.Context) (opened, error) {
	socket, err := control.Listen(g.cfg.ControlSocket())
	if err != nil {
		return opened{}, err
	}
	return opened{close: socket.Close, run: func(ctx context.Context) error {
		return socket.Serve(ctx, g.answers())
	}}, nil
}

// answers are what operators ask for, once the parts are open.
func (g *gateway) answers() control.Answers {
	answers := control.Single(g.network(), g.status)
	answers.Reload = g.reload
	answers.Cluster = g.store.cluster()
	if g.pair != nil {
		answers.Become, answers.IsStandby = g.pair.become, func() bool { return !g.pair.serving.Load() }
	}
	if g.vouchers != nil {
		answers.Vouchers = g.vouchers
	}
	return answers
}

// check logs what the machine lacks for this configuration.
func (g *gateway) check() error {
	found := append(CheckFiles(g.cfg), check(g.cfg, 0)...)
	for _, f := range found {
		if f.Weight == Warning {
			g.log.Warn(f.Text)
		}
	}
	return Refused(found)
}

// openState makes and locks state_dir.
func (g *gateway) openState(context.Context) (opened, error) {
	if err := os.MkdirAll(g.cfg.StateDir, 0o700); err != nil {
		return opened{}, fmt.Errorf("making state_dir: %w", err)
	}
	lock, err := datapath.LockFolder(g.cfg.StateDir)
	if err != nil {
		return opened{}, err
	}
	return opened{close: lock.Close}, nil
}

// openRADIUS creates the client of the servers.
func (g *gateway) openRADIUS(context.Context) (o opened, err error) {
	if len(g.cfg.RADIUS.Servers()) == 0 {
		return o, nil
	}
	if g.radius, err = radius.New(g.radiusConfig()); err != nil {
		return o, err
	}
	return opened{close: g.radius.Close}, nil
}

// openRequests listens to RADIUS servers' requests to change sessions (RFC 5176).
func (g *gateway) openRequests(context.Context) (o opened, err error) {
	addr := g.cfg.RADIUS.Dynamic
	if !addr.IsValid() {
		return o, nil
	}
	cfg := g.radiusConfig()
	cfg.Others = g.otherGateways()
	g.dynamic, err = radius.ListenDynamic(
		cfg, addr, g.table, filepath.Join(g.cfg.StateDir, "requests"), g.log)
	if err != nil {
		return o, err
	}
	return opened{run: g.dynamic.Serve, close: g.answerRequests()}, nil
}

// openUsers follows the users' file, where a part has opened it.
func (g *gateway) openUsers(context.Context) (o opened, err error) {
	if g.users != nil {
		o.run = g.users.Follow
	}
	return o, nil
}

// openDHCP begins to lease addresses.
func (g *gateway) openDHCP(context.Context) (o opened, err error) {
	if g.cfg.DHCP.Mode != config.Server {
		return o, nil
	}
	c := g.dhcpConfig()
	if g.dhcp, err = dhcp.New(c, leases{g}); errors.Is(err, statefile.ErrDamaged) {
		if err = g.setAside(c.Path, err, "leases begin anew"); err == nil {
			g.dhcp, err = dhcp.New(c, leases{g})
		}
	}
	if err != nil {
		return o, err
	}
	o = opened{run: g.dhcp.Run, close: g.dhcp.Close}
	if g.pair != nil {
		o.close = g.pair.shareLeases()
	}
	if err := g.takeUp(g.dhcp.Leases()); err != nil {
		return o, err
	}
	if err = g.forgetClaims(g.dhcp.Leases()); err == nil {
		close(g.own.served)
	}
	return o, err
}

// openRenewal keeps the clients whose addresses this gateway has not leased, as long as they are there.
func (g *gateway) openRenewal(context.Context) (o opened, err error) {
	switch {
	case g.dhcp == nil:
		o.run = g.renew
	case g.cfg.DHCP.Claims:
		o.run = g.keepClaims
	}
	return o, nil
}

func (g *gateway) openDNS(context.Context) (o opened, err error) {
	if g.cfg.DNS.Mode != config.Server {
		return o, nil
	}
	if g.dns, err = dns.New(g.dnsConfig(), opener{g.dp}); err != nil {
		return o, err
	}
	return opened{run: g.dns.Run, close: g.dns.Close}, nil
}

// openTable opens the session table. Counters of a data path in user space end with the daemon, those of one in the
// kernel end with detach or a change of kind. Sessions continue in either case, until the machine restarts.
func (g *gateway) openTable(context.Context) (o opened, err error) {
	file, kept := sessionsFile(g.cfg), bootFile(g.cfg)
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return o, fmt.Errorf("reading which boot of the machine this is: %w", err)
	}
	last, err := os.ReadFile(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return o, fmt.Errorf("reading which boot of the machine sessions are of: %w", err)
	}
	reason, fresh := whyTableLost(file, kept)
	if reason != "" && g.pair == nil {
		g.log.Error("the session table "+reason+": every client must log in again", "file", file)
	}
	copies := g.store.mirror(g.cfg.Name)
	how := g.tableOptions(bytes.Equal(last, boot), copies)
	if g.table, err = session.OpenWith(file, g.dp.Forwarder, g.log, how); errors.Is(err, statefile.ErrDamaged) {
		if err = g.setAside(file, err, "every client must log in again"); err == nil {
			fresh = true
			g.table, err = session.OpenWith(file, g.dp.Forwarder, g.log, how)
		}
	}
	if err != nil {
		return o, err
	}
	o = opened{close: g.table.Close}
	if copies != nil {
		if g.pair == nil {
			copies.Read(recordsOf(g.table))
		}
		o.close = func() error { copies.Read(nil); return g.table.Close() } // its last records are told as changes
	}
	g.table.CountedSince(g.dp.Moved)
	g.table.Cut(g.connections)
	g.table.OnEnd(g.sessionEnded)
	g.table.Revoked(func(s session.Session) { g.revoke(anchorOf(s), s.ID) })
	if err := g.tellStart(fresh); err != nil {
		return o, err
	}
	if err := os.WriteFile(kept, boot, 0o600); err != nil {
		return o, fmt.Errorf("keeping which boot of the machine sessions are of: %w", err)
	}
	return o, nil
}

// tableOptions are how the table is opened. same: it is the boot of the machine that its sessions are of.
func (g *gateway) tableOptions(same bool, copies *cluster.Mirror) session.Options {
	how := session.Options{Resume: same, Ends: g.endsAtStart}
	mirrorTo(copies, &how)
	if g.pair != nil {
		g.pair.followIn(&how)
	}
	return how
}

// setAside takes a damaged state file out of the way, so that the gateway serves without what the file knew. Nobody is
// admitted who is not in the new file.
func (g *gateway) setAside(path string, damage error, effect string) error {
	movedTo, err := statefile.SetAside(path)
	if err != nil {
		return errors.Join(damage, err)
	}
	g.log.Error("a state file is damaged and was set aside: "+effect, "file", path, "now", movedTo, "err", damage)
	return nil
}

// bootID identifies the present boot of the machine; bootFile stores the boot that the sessions belong to.
const bootID = "/proc/sys/kernel/random/boot_id"

func bootFile(cfg *config.Config) string { return filepath.Join(cfg.StateDir, "boot") }

// reconcile blocks clients that a former daemon admitted and the table does not contain, because its file was lost or
// replaced.
func (g *gateway) reconcile() error {
	all, err := g.dp.Clients()
	if err != nil {
		return err
	}
	for _, id := range all {
		if g.table.Has(id) {
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
		if err := (leases{g}).Leased(l); err != nil {
			return fmt.Errorf("taking up the lease of %s: %w", l.Addr, err)
		}
	}
	return nil
}

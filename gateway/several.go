package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/guesses"
	"github.com/gateweigh/gateweigh/gateway/timeline"
	"github.com/gateweigh/gateweigh/gateway/voucher"
)

// several runs a gateway for each network. One that fails is tried again while the others go on.
//
//	control, metrics ──▶ several ──▶ network "guests" ──▶ gateway
//	reload ──────────────▶   └─────▶ network "staff"  ──▶ gateway
type several struct {
	Daemon
	cfg   *config.Config // as the daemon was started; its networks are not used
	began time.Time
	ctx   context.Context // of the networks
	slots chan struct{}   // one for each network that is being opened: it takes a CPU

	provider *provider // of prefixes; nil: it is not asked
	vouchers *voucher.Book
	codes    guesses.Codes // wrong ones of all networks
	admin    adminPage
	store    sharedStore

	applying sync.Mutex // held while networks come and go
	mu       sync.Mutex // guards what follows
	networks []*servedNetwork
}

// servedNetwork is one of several networks.
type servedNetwork struct {
	cfg   *config.Config
	stop  context.CancelFunc
	ended chan struct{}
	tried chan struct{} // closed when it is served, or could not be for the first time

	mu      sync.Mutex // guards what follows
	gateway *gateway   // nil: it is not served
	why     error      // why not
}

// retryAfter is the time after which a network that failed is tried again.
const retryAfter = 2 * time.Second

// runNetworks serves several networks until ctx ends. Networks that cannot be served are tried again, unless none can.
func runNetworks(ctx context.Context, cfg *config.Config, d Daemon) error {
	s := &several{Daemon: d, cfg: cfg, began: time.Now(), slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
	return runParts(ctx, slices.Concat([]part{
		{"control", s.openControl},
		s.store.part(cfg, d, s.sessionsNow),
		{"WAN", s.claimWAN},
		step("former networks", func() error { return s.leaveFormer(cfg) }),
		{"prefix delegation", s.openProvider},
		{"vouchers", s.openVouchers},
		{"networks", s.open},
		{"admin page", func(ctx context.Context) (opened, error) {
			return s.admin.part(cfg, d.Log, s.answers(), adminClients{s.configs, s.hasClient}).open(ctx)
		}},
	}, daemonParts(cfg, s.status)), d.Ready)
}

func (s *several) openControl(context.Context) (opened, error) {
	socket, err := control.Listen(s.cfg.ControlSocket())
	if err != nil {
		return opened{}, err
	}
	return opened{close: socket.Close, run: func(ctx context.Context) error { return socket.Serve(ctx, s.answers()) }}, nil
}

// answers are what operators ask for, once the vouchers are open.
func (s *several) answers() control.Answers {
	return control.Answers{Networks: s.served, Status: s.status, Reload: s.admin.reloading(s.Reload),
		Vouchers: s.vouchers, Cluster: s.store.cluster()}
}

// configs are the configurations of the networks as they are now.
func (s *several) configs() (all []*config.Config) {
	for _, n := range s.all() {
		all = append(all, n.cfg)
	}
	return all
}

// claimWAN keeps other gateways from the WAN, which the networks share.
func (s *several) claimWAN(context.Context) (opened, error) {
	if err := refuseSingle(s.cfg); err != nil {
		return opened{}, err
	}
	locks, err := datapath.Lock(datapath.ExclusiveClaims(s.cfg.WAN.Interface)...)
	return opened{close: locks.Close}, err
}

// open begins to serve the networks, and returns when each is served or has failed. They end with the part.
func (s *several) open(ctx context.Context) (o opened, err error) {
	var stop context.CancelFunc
	s.ctx, stop = context.WithCancel(context.WithoutCancel(ctx))
	o.close = func() error {
		stop()
		for _, n := range s.all() {
			<-n.ended
		}
		return nil
	}
	o.run = func(ctx context.Context) error { <-ctx.Done(); return nil }
	for _, cfg := range s.cfg.Networks {
		s.begin(cfg)
	}
	var failed []error
	for _, n := range s.all() {
		select {
		case <-n.tried:
		case <-ctx.Done():
			return o, nil
		}
		if _, why := n.state(); why != nil {
			failed = append(failed, fmt.Errorf("network %q: %w", n.cfg.Name, why))
		}
	}
	if len(failed) == len(s.cfg.Networks) {
		return o, errors.Join(failed...)
	}
	if s.Apply != nil {
		s.Apply(s.apply)
	}
	return o, nil
}

// all returns the networks in the order of the configuration.
func (s *several) all() []*servedNetwork {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.networks)
}

// begin begins to serve a network.
func (s *several) begin(cfg *config.Config) *servedNetwork {
	ctx, stop := context.WithCancel(s.ctx)
	n := &servedNetwork{cfg: cfg, stop: stop, ended: make(chan struct{}), tried: make(chan struct{}),
		why: errors.New("it is being opened")}
	s.mu.Lock()
	s.networks = append(s.networks, n)
	s.mu.Unlock()
	go func() {
		defer close(n.ended)
		n.run(ctx, s)
	}()
	return n
}

// end ends a network, and returns when it has ended. What is in the kernel stays.
func (s *several) end(n *servedNetwork) {
	n.stop()
	<-n.ended
	s.mu.Lock()
	s.networks = slices.DeleteFunc(s.networks, func(other *servedNetwork) bool { return other == n })
	s.mu.Unlock()
}

// run serves a network until ctx ends.
func (n *servedNetwork) run(ctx context.Context, s *several) {
	tried := sync.OnceFunc(func() { close(n.tried) })
	defer tried()
	d := s.Daemon
	d.Log = d.Log.With("network", n.cfg.Name)
	told := "" // the reason that was logged last
	for ctx.Err() == nil {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		opening := sync.OnceFunc(func() { <-s.slots })
		g := newGateway(n.cfg, d)
		g.provider, g.vouchers, g.guard.Codes, g.store = s.provider, s.vouchers, &s.codes, &s.store
		err := runParts(ctx, g.parts(), func() { opening(); n.set(g, nil); tried(); told = "" })
		opening()
		if err == nil {
			err = ctx.Err()
		}
		n.set(nil, err)
		tried()
		if ctx.Err() == nil && oneLine(err) != told {
			told = oneLine(err)
			d.Log.Error("a network is not served: trying again, while others go on; "+WithoutDaemon(n.cfg), "err", told)
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
		}
	}
}

// oneLine returns the text of an error in one line.
func oneLine(err error) string { return strings.ReplaceAll(fmt.Sprint(err), "\n", "; ") }

func (n *servedNetwork) set(g *gateway, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gateway, n.why = g, why
}

// state returns the running gateway, or why there is none.
func (n *servedNetwork) state() (*gateway, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gateway, n.why
}

// served returns the networks that are served.
func (s *several) served() (all []control.Network) {
	for _, n := range s.all() {
		if g, _ := n.state(); g != nil {
			all = append(all, g.network())
		}
	}
	return all
}

// network is the gateway's network as operators see it.
func (g *gateway) network() control.Network {
	table := limitDefaults{g.table, g, true}
	n := control.Network{Name: g.cfg.Name, Table: table, Changes: table, Status: g.status, Devices: rememberedDevices{g},
		Counting: g.counting != nil}
	if g.cfg.Name != "" {
		n.Has = g.isOfNetwork
	}
	return n
}

// isOfNetwork reports whether an address is one of the network's.
func (g *gateway) isOfNetwork(addr netip.Addr) bool {
	if g.isClient4(addr) || g.isClient6(addr) {
		return true
	}
	_, known := g.table.Get(addr)
	return known
}

// status returns the daemon's status: of all networks together, and of each.
func (s *several) status() control.Status {
	out := control.Status{Version: s.Version, PID: os.Getpid(), Since: timeline.Wall(s.began), WAN: s.cfg.WAN.Interface,
		Datapath: s.cfg.Datapath.Kind, Sessions: map[control.State]int{}}
	out.DiskFree = scarceSpace(s.cfg.StateDir)
	var down []string
	for _, n := range s.all() {
		g, why := n.state()
		if g == nil {
			down = append(down, n.cfg.Name)
			out.Networks = append(out.Networks, control.Status{Version: s.Version, PID: out.PID, Since: out.Since,
				Network: n.cfg.Name, LAN: n.cfg.LAN.Interface, WAN: out.WAN, Datapath: n.cfg.Datapath.Kind + ", not served",
				Why: oneLine(why), Addresses: n.cfg.Addresses(), Sessions: map[control.State]int{}})
			continue
		}
		out.Add(g.status())
	}
	if len(down) > 0 {
		out.Why = "not served: " + strings.Join(down, ", ")
	}
	s.admin.showIn(&out)
	s.store.showIn(&out)
	return out
}

// Apply serves the networks of another configuration in place of the present ones.
type Apply func(fresh *config.Config) (done []string, failed bool)

// apply serves the networks of another configuration in place of the present ones: those that have not changed go on
// undisturbed. It returns what it did, a line for each network, and whether one of them is not as the file says. The
// networks must differ in nothing that is for all.
func (s *several) apply(fresh *config.Config) (done []string, failed bool) {
	s.applying.Lock()
	defer s.applying.Unlock()
	note := func(name, text string, err error) {
		if err != nil {
			text += ": " + oneLine(err)
			failed = true
		}
		s.Log.Log(s.ctx, map[bool]slog.Level{true: slog.LevelError}[err != nil], "reading the configuration again: network "+
			text, "network", name)
		done = append(done, name+": "+text)
	}
	// What goes comes first, because others may have its interface or addresses.
	changed := map[string]bool{}
	for _, n := range s.all() {
		i := slices.IndexFunc(fresh.Networks, func(c *config.Config) bool { return c.Name == n.cfg.Name })
		switch {
		case i < 0:
			s.end(n)
			note(n.cfg.Name, "removed, and its interface stays closed", closeNetwork(n.cfg))
		case !config.Same(n.cfg, fresh.Networks[i]):
			changed[n.cfg.Name] = true
			s.end(n)
			if moved(n.cfg, fresh.Networks[i]) {
				if err := closeNetwork(n.cfg); err != nil {
					note(n.cfg.Name, "leaving its former place", err)
				}
			}
		}
	}
	s.retainVouchers(fresh)
	if err := remember(s.cfg.StateDir, fresh.Networks); err != nil {
		s.Log.Error("a network that is removed while gatewayd does not run may stay in the kernel", "err", err)
	}
	var begun []*servedNetwork
	for _, cfg := range fresh.Networks {
		if !slices.ContainsFunc(s.all(), func(n *servedNetwork) bool { return n.cfg.Name == cfg.Name }) {
			begun = append(begun, s.begin(cfg))
		}
	}
	for _, n := range begun {
		<-n.tried
		_, why := n.state()
		note(n.cfg.Name, map[bool]string{true: "changed", false: "added"}[changed[n.cfg.Name]], why)
	}
	s.sort(fresh)
	return done, failed
}

// moved reports whether a network is at another place, so that nothing of what was in the kernel fits.
func moved(a, b *config.Config) bool {
	return a.LAN.Interface != b.LAN.Interface || a.LAN.Address.Masked() != b.LAN.Address.Masked()
}

// sort brings the networks into the order of a configuration.
func (s *several) sort(cfg *config.Config) {
	place := map[string]int{}
	for i, c := range cfg.Networks {
		place[c.Name] = i
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.networks, func(a, b *servedNetwork) int { return place[a.cfg.Name] - place[b.cfg.Name] })
}

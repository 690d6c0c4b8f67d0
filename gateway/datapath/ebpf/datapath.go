// Package ebpf moves the clients' packets with programs at tc: admission by MAC and address, accounting, limits and
// forwarding happen where a packet arrives, mostly without the kernel's stack.
//
// Programs and maps are pinned. Packets of admitted clients, and no others, continue to pass while the daemon is
// stopped, killed or replaced, and the programs enforce time limits and quotas without it.
package ebpf

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/neighbour"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// Forward says how packets of admitted clients are forwarded: redirected by the programs, or by the kernel's stack.
type Forward string

const (
	// ForwardAuto redirects unless netfilter rules (NAT, a firewall) affect forwarding: then the stack forwards. It
	// follows changes.
	ForwardAuto     Forward = "auto"
	ForwardRedirect Forward = "redirect" // past netfilter, whatever its rules are
	ForwardStack    Forward = "stack"
)

// Config is the configuration of the data path.
type Config struct {
	Networks    []datapath.Network // one
	WAN         string             // interface; Ethernet, without a VLAN tag of its own
	PortalPorts []uint16           // TCP ports of the portal, at most 4; clients' HTTP goes to the first
	Forward     Forward            // "" is ForwardAuto
	PinDir      string             // on a bpffs
	// Newcomer is called for clients with an address that was not leased; nil: their packets are dropped silently.
	Newcomer  func(netip.Addr, datapath.MAC)
	PPPoE     bool      // clients may be on PPPoE
	Flows     bool      // connections are logged: the stack forwards, which knows them, or the cache of flows
	DHCP      bool      // the gateway leases addresses: DHCP requests go to the reader of Requests, not to the stack
	FlowCache FlowCache // "" is FlowCacheNever
	// Beside are pins of links of gatewayd's other programs at the interfaces. They pass on what they do not
	// handle, so they are no reason not to redirect.
	ForeignPins []string
	Shaping     Shaping // "" is ShapingNever
	// Shared is the folder of pins of what networks with the same WAN share; "": this one has the WAN to itself. Reaches
	// are interfaces of those of them whose clients and this one's reach each other.
	Shared  string
	Reaches []string
	// StayClosed: Remove leaves the guard there, which lets nothing pass.
	StayClosed bool
	Log        *slog.Logger

	clsact      bool   // tests: as on kernels before 6.6
	flowEntries uint32 // tests: of the cache of flows; 0: as many as it has
}

// Datapath is the running data path.
type Datapath struct {
	gardenPorts sync.Mutex // held while a port of the walled garden changes
	cfg         Config
	net         datapath.Network
	objs        gatewayObjects
	lan         *net.Interface
	wan         *net.Interface
	cutter      cutter // with PPPoE
	locks       datapath.Locks
	epoch       uint64
	// counters is client_counters, mapped into memory.
	counters *ebpf.Memory
	meters   *ebpf.Memory // client_meters
	marks    []uint64     // Moved's: packets by place at its last call
	tallies  tallies
	// neighbours are the kernel's entries of the clients.
	neighbours     *neighbour.Table
	shaping        shaping
	routes         *routes.Table // to those of clientNetworks
	clientNetworks datapath.ClientNetworks[netip.Addr]
	furtherPlaces  furtherPlaces
	addrs6Lock     sync.Mutex // held while IPv6 addresses and networks change; guards addrs6 and networks6
	addrs6         addrs6
	networks6      networks6
	split          *split        // nil: the network has the WAN to itself
	splitNumber    uint32        // the network's
	stop           func()        // ends the watchers and waits for them
	lostInterface  chan string   // the name of an interface that has gone
	lookNow        chan struct{} // has the watcher look at once

	choosing       sync.Mutex // held while who forwards is chosen; guards what follows
	reasons        reasons
	judgedPrograms map[string][]link.AttachedProgram // all programs at tcx, by hook, as last judged
	loggedBefore   map[string]string                 // programs of others ahead of ours, by hook, as last logged
	flows          flows
	unloaded       string // why the cache's programs are not loaded

	strict      atomic.Bool            // connection tracking could not be made liberal (see keepLiberal)
	liberalNote atomic.Pointer[string] // the note in the folder of pins that this process made it liberal; nil: none

	repairing      sync.Mutex       // held while programs, pins or guard are put back; guards what follows
	places         []*pinnedProgram // the programs
	pins           map[string]bool  // names in the folder of pins; true: a folder that notes something
	pinned         unix.Timespec    // when the folder last changed before all were seen in it; zero: they were not
	loggedDetached []string         // programs that are not attached, as last logged
	rules          *nftables.Conn
	guard          [32]byte // digest of the guard's rules, as this process made them
	guardedAt      uint32   // the generation of netfilter's rules in which they were last seen so; 0: none

	loggedErrors map[string]string // errors of the watcher, as last logged; of its goroutine

	mu           sync.Mutex // guards what follows
	settings     gatewaySettings
	settings6    gatewaySettings6
	stackReason  string // the reason why the stack forwards; "" while packets are redirected
	stackReason6 string // the same for IPv6
	guardClosed  bool   // programs are missing, so the guard lets nothing pass
	refused      bool   // the settings could not be written: detached, perhaps
	retired      bool   // detached while it runs
	stampLapsed  bool   // a stamp had run out when it was replaced (see renew)
	repairs      Repairs

	uncachedWhy   string // the reason why no flows are cached; "" while they are, if the stack forwards
	flowSettings  gatewayFlowSettings
	uncachedWhy6  string // the same of IPv6
	flowSettings6 gatewayFlowSettings
	paused        int // goroutines that judge anew whether flows may be cached
}

var _ datapath.Datapath = (*Datapath)(nil)

// Open loads the programs, or replaces those of a former daemon without losing a packet, and starts to follow the
// kernel's routing. The former daemon's clients are kept. Long: the parts are opened in the order in which they need
// each other.
func Open(cfg Config) (_ *Datapath, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Datapath{
		cfg: cfg, net: cfg.Networks[0], stop: func() {}, lostInterface: make(chan string, 1), lookNow: make(chan struct{}, 1),
		loggedErrors: map[string]string{}, loggedBefore: map[string]string{},
		judgedPrograms: map[string][]link.AttachedProgram{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening the eBPF data path: %w", err), d.Close())
		}
	}()
	claims := datapath.ExclusiveClaims(cfg.lan(), cfg.WAN)
	if cfg.Shared != "" {
		claims = claims[:1] // the WAN is claimed for all networks
	}
	if d.locks, err = datapath.Lock(claims...); err != nil {
		return nil, err
	}
	lan, wan, err := cfg.interfaces()
	if err != nil {
		return nil, err
	}
	if cfg.PPPoE {
		d.cutter, err = openCutter(cfg.lan())
	} else {
		err = removeCutter(cfg.lan())
	}
	if err != nil {
		return nil, err
	}
	d.beginShaping(lan, wan)
	if err := d.joinSplit(lan, wan); err != nil {
		return nil, err
	}
	if err := d.load(lan, wan); err != nil {
		return nil, err
	}
	if err := d.mapMemory(); err != nil {
		return nil, err
	}
	if err := d.takeSettings(lan.MTU); err != nil {
		return nil, err
	}
	if err := d.begin6(); err != nil {
		return nil, err
	}
	d.lan, d.wan = lan, wan
	if d.flowsAtOnce() {
		d.openFlows()
	}
	if err := d.openNeighbours(); err != nil {
		return nil, err
	}
	if err := d.openNetworks(); err != nil {
		return nil, err
	}
	if err := d.openNetworks6(); err != nil {
		return nil, err
	}
	if err := d.adoptShaping(); err != nil {
		return nil, err
	}
	if err := d.attachAll(); err != nil {
		return nil, err
	}
	return d, d.watch()
}

// interfaces finds the LAN's and the WAN's interface.
func (c *Config) interfaces() (lan, wan *net.Interface, err error) {
	if lan, err = net.InterfaceByName(c.lan()); err != nil {
		return nil, nil, fmt.Errorf("interface %s: %w", c.lan(), err)
	}
	if wan, err = net.InterfaceByName(c.WAN); err != nil {
		return nil, nil, fmt.Errorf("interface %s: %w", c.WAN, err)
	}
	return lan, wan, nil
}

// mapMemory maps the maps of counters and meters into memory, where they are read without a system call.
func (d *Datapath) mapMemory() (err error) {
	if d.counters, err = d.objs.ClientCounters.Memory(); err != nil {
		return fmt.Errorf("mapping the clients' counters: %w", err)
	}
	if d.meters, err = d.objs.ClientMeters.Memory(); err != nil {
		return fmt.Errorf("mapping the clients' meters: %w", err)
	}
	return nil
}

// attachAll attaches the programs after installing the guard, which then gets to know the interfaces.
func (d *Datapath) attachAll() error {
	if err := d.guardian().Shut(); err != nil {
		return fmt.Errorf("keeping the machine from forwarding without the programs: %w", err)
	}
	hooks := d.hooks(d.lan, d.wan)
	if d.cfg.PPPoE {
		hooks = append([]hook{{"cut_in", d.cutter.lan, d.objs.CutIn, false}}, hooks...)
	}
	for _, h := range slices.Concat(hooks, []hook{{name: lookup, prog: d.objs.PortalLookup}}) {
		p := &pinnedProgram{hook: h}
		d.places = append(d.places, p)
		if err := d.attachPinned(p); err != nil {
			return err
		}
	}
	if err := d.enterSplit(); err != nil {
		return err
	}
	if err := leaveFilters(d.cfg.PinDir, hooks...); err != nil {
		d.cfg.Log.Error("programs stay on an interface that is no longer the LAN's or the WAN's", "err", err)
	}
	return errors.Join(d.setGuard(d.letThrough), d.listPins())
}

func (c *Config) check() error {
	if c.Forward == "" {
		c.Forward = ForwardAuto
	}
	if c.Flows && c.Forward == ForwardRedirect { // which has no connections; what is cached skips the rules too
		c.Forward, c.FlowCache = ForwardAuto, FlowCacheAlways
	}
	if c.FlowCache == "" || c.Forward != ForwardAuto {
		c.FlowCache = FlowCacheNever
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if len(c.PortalPorts) > 4 {
		return fmt.Errorf("%d portal ports: at most 4", len(c.PortalPorts))
	}
	network, err := datapath.SingleNetwork(c.Networks)
	if err != nil {
		return err
	}
	return network.Check()
}

// lan is the interface of the network; "": there is none.
func (c *Config) lan() string {
	if len(c.Networks) == 0 {
		return ""
	}
	return c.Networks[0].Interface
}

const starting = "gatewayd is starting"

// takeSettings reads a former daemon's settings, or creates the first.
func (d *Datapath) takeSettings(mtu int) error {
	if err := d.objs.GatewaySettings.Lookup(uint32(0), &d.settings); err != nil {
		return fmt.Errorf("reading the settings: %w", err)
	}
	for d.settings.Epoch == 0 {
		var b [8]byte
		rand.Read(b[:])
		d.settings.Epoch = binary.NativeEndian.Uint64(b[:])
	}
	d.epoch, d.stackReason, d.stackReason6 = d.settings.Epoch, starting, starting
	d.uncachedWhy, d.uncachedWhy6 = starting, starting
	return d.change(func(s *gatewaySettings) { s.LanMtu = uint32(mtu) })
}

// change changes the programs' settings and invalidates all cached next hops.
func (d *Datapath) change(edit func(*gatewaySettings)) error {
	return d.set(func(s *gatewaySettings) { edit(s); s.Generation++ })
}

func (d *Datapath) set(edit func(*gatewaySettings)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noteLapse()
	edit(&d.settings)
	err := d.objs.GatewaySettings.Put(uint32(0), &d.settings)
	d.refused = err != nil
	if d.refused && !d.isDetached() {
		return fmt.Errorf("changing the data path's settings: %w", err)
	}
	return nil
}

// Portal sets the listening socket that gets clients' HTTP for any IPv4 address, until it is closed.
func (d *Datapath) Portal(l syscall.Conn) error { return d.setPortal(0, l) }

// Portal6 is Portal for IPv6.
func (d *Datapath) Portal6(l syscall.Conn) error { return d.setPortal(1, l) }

func (d *Datapath) setPortal(place uint32, l syscall.Conn) error {
	rc, err := l.SyscallConn()
	if err != nil {
		return fmt.Errorf("giving the portal its connections: %w", err)
	}
	var put error
	err = rc.Control(func(fd uintptr) { put = d.objs.Portal.Put(place, uint64(fd)) })
	if err = errors.Join(err, put); err != nil {
		return fmt.Errorf("giving the portal its connections: %w", err)
	}
	return nil
}

// Wait returns when ctx ends, or with an error when an interface has gone: its programs disappeared with it, and an
// interface that replaces it has none.
func (d *Datapath) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case name := <-d.lostInterface:
		return fmt.Errorf("%s is gone: start gatewayd again for the one that comes in its place", name)
	}
}

// Close closes programs and maps, which stay in the kernel with their contents: packets of admitted clients continue to
// pass until Remove.
func (d *Datapath) Close() error {
	d.stop()
	err := d.restFlows()
	for _, p := range d.places {
		if p.link != nil {
			err = errors.Join(err, p.link.Close())
		}
	}
	d.places = nil
	if d.neighbours != nil {
		err = errors.Join(err, d.neighbours.Close())
	}
	d.endFlows()
	if d.flows.deletions != nil {
		err = errors.Join(err, d.flows.deletions.Close())
	}
	if d.rules != nil {
		err = errors.Join(err, d.rules.Close())
	}
	err = errors.Join(err, d.flows.objs.Close(), d.objs.Close(), d.split.close(), d.locks.Close())
	d.locks, d.split = nil, nil
	return err
}

// hostOrder returns an IPv4 address as a number.
func hostOrder(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// networkOrder returns an IPv4 address in network byte order.
func networkOrder(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// networkPort returns a port in network byte order.
func networkPort(p uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p))
}

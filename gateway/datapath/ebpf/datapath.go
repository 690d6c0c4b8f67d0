// Package ebpf moves the clients' packets with programs at tc: admission by MAC
// and address, accounting, limits and forwarding happen where a packet arrives,
// mostly without the kernel's stack.
//
// Programs and maps are pinned. Packets of admitted clients, and no others, continue to
// pass while the daemon is stopped, killed or replaced, and the programs enforce time
// limits and quotas without it.
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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/neighbour"
)

// Forward is the way in which packets of admitted clients are forwarded.
type Forward string

const (
	// ForwardAuto redirects unless netfilter rules (NAT, a firewall) affect forwarding:
	// then the stack forwards. It follows changes.
	ForwardAuto     Forward = "auto"
	ForwardRedirect Forward = "redirect" // past netfilter, whatever its rules are
	ForwardStack    Forward = "stack"
)

// Config is the configuration of the data path.
type Config struct {
	LAN, WAN    string       // interfaces; Ethernet, without a VLAN tag of their own
	Prefix      netip.Prefix // the LAN's network, /14 or longer
	Gateway     netip.Addr   // the gateway's address in it
	PortalPorts []uint16     // TCP ports of the portal, at most 4; clients' HTTP goes to the first
	Forward     Forward      // "" is ForwardAuto
	PinDir      string       // on a bpffs
	// Newcomer is called for clients with an address that was not leased; nil: their
	// packets are dropped silently.
	Newcomer  func(netip.Addr, datapath.MAC)
	Lines     bool      // clients may be on PPPoE lines
	Flows     bool      // connections are logged, so the stack forwards, which knows them
	DHCP      bool      // the gateway leases addresses: DHCP requests go to the reader of Requests, not to the stack
	FlowCache FlowCache // "" is FlowCacheNever
	// Beside are pins of links of gatewayd's other programs at the interfaces. They pass on what they do not
	// handle, so they are no reason not to redirect.
	Beside []string
	Log    *slog.Logger
	clsact bool // as on kernels before 6.6
}

// Datapath is the running data path.
type Datapath struct {
	cfg   Config
	objs  gatewayObjects
	lan   *net.Interface
	wan   *net.Interface
	cut   cutter // with Lines
	locks datapath.Locks
	epoch uint64
	// counters is client_counters, mapped into memory.
	counters *ebpf.Memory
	marks    []uint64 // Moved's: packets by place at its last call
	// neighbours are the kernel's entries of the clients.
	neighbours *neighbour.Table
	stop       func()        // ends the watchers and waits for them
	lost       chan string   // the name of an interface that has gone
	wake       chan struct{} // has the watcher look at once

	choosing sync.Mutex // held while who forwards is chosen; guards what follows
	reasons  reasons
	judged   map[string][]link.AttachedProgram // all programs at tcx, by hook, as last judged
	ahead    map[string]string                 // programs of others ahead of ours, by hook, as last logged
	flows    flows
	unloaded string // why the cache's programs are not loaded

	keeping sync.Mutex // held while programs, pins or guard are put back; guards what follows
	places  []*place   // the programs
	pins    []string   // names in the folder of pins
	gone    []string   // programs that are not attached, as last logged

	trouble map[string]string // errors of the watcher, as last logged; of its goroutine

	mu       sync.Mutex // guards what follows
	settings gatewaySettings
	why      string // the reason why the stack forwards; "" while packets are redirected
	shut     bool   // programs are missing, so the guard lets nothing pass
	retired  bool   // detached while it runs
	repairs  Repairs

	uncachedWhy  string // the reason why no flows are cached; "" while they are, if the stack forwards
	flowSettings gatewayFlowSettings
	paused       int // goroutines that judge anew whether flows may be cached
}

var _ datapath.Datapath = (*Datapath)(nil)

// Open loads the programs, or replaces those of a former daemon without losing a packet,
// and starts to follow the kernel's routing. The former daemon's clients are kept.
func Open(cfg Config) (_ *Datapath, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &Datapath{cfg: cfg, stop: func() {}, lost: make(chan string, 1), wake: make(chan struct{}, 1), trouble: map[string]string{}, ahead: map[string]string{}, judged: map[string][]link.AttachedProgram{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("opening the eBPF data path: %w", err), d.Close())
		}
	}()
	if d.locks, err = datapath.Lock(cfg.LAN, cfg.WAN); err != nil {
		return nil, err
	}
	lan, err := net.InterfaceByName(cfg.LAN)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", cfg.LAN, err)
	}
	wan, err := net.InterfaceByName(cfg.WAN)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", cfg.WAN, err)
	}
	if cfg.Lines {
		d.cut, err = openCutter(cfg.LAN)
	} else {
		err = removeCutter(cfg.LAN)
	}
	if err != nil {
		return nil, err
	}
	if err := d.load(lan, wan); err != nil {
		return nil, err
	}
	if d.counters, err = d.objs.ClientCounters.Memory(); err != nil {
		return nil, fmt.Errorf("mapping the clients' counters: %w", err)
	}
	if err := d.begin(lan.MTU); err != nil {
		return nil, err
	}
	d.lan, d.wan = lan, wan
	d.openFlows()
	if err := d.openNeighbours(); err != nil {
		return nil, err
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	return d, d.watch()
}

// enter attaches the programs after installing the guard, which then gets to know the
// interfaces.
func (d *Datapath) enter() error {
	if err := d.guardian().Shut(); err != nil {
		return fmt.Errorf("keeping the machine from forwarding without the programs: %w", err)
	}
	hooks := append(d.hooks(d.lan, d.wan), hook{name: lookup, prog: d.objs.PortalLookup})
	if d.cfg.Lines {
		hooks = append([]hook{{"cut_in", d.cut.in, d.objs.CutIn, false}}, hooks...)
	}
	for _, h := range hooks {
		p := &place{hook: h}
		d.places = append(d.places, p)
		if err := d.take(p); err != nil {
			return err
		}
	}
	return errors.Join(d.open(), d.listPins())
}

func (c *Config) check() error {
	if c.Forward == "" {
		c.Forward = ForwardAuto
	}
	if c.FlowCache == "" {
		c.FlowCache = FlowCacheNever
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case !c.Prefix.IsValid() || !c.Prefix.Addr().Is4() || c.Prefix.Bits() < datapath.LargestLAN:
		return fmt.Errorf("the LAN must be an IPv4 network of /%d or longer, not %s", datapath.LargestLAN, c.Prefix)
	case !c.Prefix.Contains(c.Gateway):
		return fmt.Errorf("the gateway's address %s is not in its LAN %s", c.Gateway, c.Prefix)
	case len(c.PortalPorts) > 4:
		return fmt.Errorf("%d portal ports: at most 4", len(c.PortalPorts))
	}
	c.Prefix = c.Prefix.Masked()
	return nil
}

// size is the number of addresses in the LAN.
func (c *Config) size() uint32 { return 1 << (32 - c.Prefix.Bits()) }

// load loads programs and maps, and takes over maps that a former daemon pinned.
func (d *Datapath) load(lan, wan *net.Interface) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("lifting the limit of locked memory: %w", err)
	}
	if err := onBPFFS(d.cfg.PinDir); err != nil {
		return err
	}
	if err := os.MkdirAll(d.cfg.PinDir, 0o700); err != nil {
		return fmt.Errorf("making the folder of pins: %w", err)
	}
	pins, err := datapath.LockFolder(d.cfg.PinDir)
	if err != nil {
		return err
	}
	d.locks = append(d.locks, pins)
	spec, err := d.spec(lan, wan)
	if err != nil {
		return err
	}
	if err := d.outgrow(spec); err != nil {
		return err
	}
	opts := &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: d.cfg.PinDir}}
	err = spec.LoadAndAssign(&d.objs, opts)
	var refused *ebpf.VerifierError
	if errors.Is(err, ebpf.ErrNotSupported) || errors.As(err, &refused) {
		return fmt.Errorf("%w: %w (5.15 or newer is needed)", datapath.ErrNotSupported, err)
	}
	if err != nil {
		return fmt.Errorf("loading the programs (pins in %s): %w", d.cfg.PinDir, err)
	}
	return nil
}

// onBPFFS checks that the folder of pins, or its nearest existing parent, is on a bpffs.
func onBPFFS(dir string) error {
	there := dir
	for {
		if _, err := os.Stat(there); err == nil || there == filepath.Dir(there) {
			break
		}
		there = filepath.Dir(there)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(there, &fs); err != nil {
		return fmt.Errorf("looking at the folder of pins %s: %w", there, err)
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	known, _ := os.ReadFile("/proc/filesystems")
	if !strings.Contains(string(known), "\tbpf\n") {
		return fmt.Errorf("%w: it has no bpffs to pin programs to (CONFIG_BPF_SYSCALL)", datapath.ErrNotSupported)
	}
	return fmt.Errorf("%s is not on a bpffs, which programs are pinned to: mount -t bpf bpf /sys/fs/bpf, or set datapath.pin_dir to a folder on one", dir)
}

// sessions are the maps without which admitted clients are cut off or their counts are
// lost.
var sessions = []string{"clients", "client_counters", "client_limits", "gateway_settings"}

// outgrow removes the pins of maps that do not fit this version or this LAN, so that new
// ones are created: of sessions all, because they belong together; of the others, which
// are caches, each separately. The former daemon's programs use the old maps until they
// are replaced.
func (d *Datapath) outgrow(spec *ebpf.CollectionSpec) error {
	var all, old []string // names of pinned maps; a bpffs refuses the names of some others
	for name, m := range spec.Maps {
		if m.Pinning != ebpf.PinByName {
			continue
		}
		all = append(all, name)
		pinned, err := ebpf.LoadPinnedMap(filepath.Join(d.cfg.PinDir, name), nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the pin of %s: %w", name, err)
		}
		if m.Compatible(pinned) != nil || frozen(pinned) {
			old = append(old, name)
		}
		pinned.Close()
	}
	if slices.ContainsFunc(old, func(name string) bool { return slices.Contains(sessions, name) }) {
		d.cfg.Log.Warn("the data path's tables were made for another LAN or version, or detached halfway; making new ones", "pins", d.cfg.PinDir)
		old = all
	}
	for _, name := range old {
		if err := os.Remove(filepath.Join(d.cfg.PinDir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the pin of %s: %w", name, err)
		}
	}
	return nil
}

// spec returns what to load, with constants and map sizes filled in.
func (d *Datapath) spec(lan, wan *net.Interface) (*ebpf.CollectionSpec, error) {
	spec, err := loadGateway()
	if err != nil {
		return nil, fmt.Errorf("reading the programs: %w", err)
	}
	for name, m := range spec.Maps {
		switch name {
		case "clients", "client_counters", "client_limits", "client_meters":
			m.MaxEntries = d.cfg.size()
			if name == "client_counters" {
				m.Flags |= unix.BPF_F_MMAPABLE
			}
		case "strangers":
			m.MaxEntries = d.cfg.size()
			continue
		case "devices":
			m.MaxEntries = datapath.MostStrangers
			continue
		case "senders":
			m.MaxEntries = datapath.MostSenders
			continue
		case "flow_paths":
			if d.cfg.FlowCache == FlowCacheNever {
				m.MaxEntries = unusedEntries
			}
			continue
		case "hops", "gateway_settings", "stats", "garden", "newcomers", "called", "portal":
		default:
			continue // only constant within one load
		}
		m.Pinning = ebpf.PinByName
	}
	for _, dev := range []*net.Interface{lan, wan} {
		if err := ethernet(dev); err != nil {
			return nil, err
		}
	}
	var ports [4]uint16
	for i, p := range d.cfg.PortalPorts {
		ports[i] = binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p))
	}
	flag := map[bool]uint8{true: 1}
	var cut uint32
	if d.cut.out != nil {
		cut = uint32(d.cut.out.Index)
	}
	for name, value := range map[string]any{
		"lan_base": hostOrder(d.cfg.Prefix.Addr()), "lan_size": d.cfg.size(),
		"lan_ifindex": uint32(lan.Index), "wan_ifindex": uint32(wan.Index), "lan_mac": [6]uint8(lan.HardwareAddr),
		"gateway_addr": networkOrder(d.cfg.Gateway), "portal_ports": ports, "learn": flag[d.cfg.Newcomer != nil], "hear_dhcp": flag[d.cfg.DHCP],
		"lines": flag[d.cfg.Lines], "cutter_ifindex": cut,
		"budgets": budgets(), "sender_budget": budgetOf(datapath.Senders), "new_senders_budget": budgetOf(budget.Newcomers(datapath.Senders, datapath.MostSenders)),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return spec, nil
}

const starting = "gatewayd is starting"

// begin reads a former daemon's settings, or creates the first.
func (d *Datapath) begin(mtu int) error {
	if err := d.objs.GatewaySettings.Lookup(uint32(0), &d.settings); err != nil {
		return fmt.Errorf("reading the settings: %w", err)
	}
	for d.settings.Epoch == 0 {
		var b [8]byte
		rand.Read(b[:])
		d.settings.Epoch = binary.NativeEndian.Uint64(b[:])
	}
	d.epoch, d.why, d.uncachedWhy = d.settings.Epoch, starting, starting
	return d.change(func(s *gatewaySettings) { s.LanMtu = uint32(mtu) })
}

// change changes the programs' settings and invalidates all cached next hops.
func (d *Datapath) change(how func(*gatewaySettings)) error {
	return d.set(func(s *gatewaySettings) { how(s); s.Generation++ })
}

func (d *Datapath) set(how func(*gatewaySettings)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	how(&d.settings)
	if err := d.objs.GatewaySettings.Put(uint32(0), &d.settings); err != nil && !d.resigned() {
		return fmt.Errorf("changing the data path's settings: %w", err)
	}
	return nil
}

// Portal sets the listening socket that gets clients' HTTP for any address, until it is
// closed.
func (d *Datapath) Portal(l syscall.Conn) error {
	rc, err := l.SyscallConn()
	if err != nil {
		return fmt.Errorf("giving the portal its connections: %w", err)
	}
	var put error
	err = rc.Control(func(fd uintptr) { put = d.objs.Portal.Put(uint32(0), uint64(fd)) })
	if err = errors.Join(err, put); err != nil {
		return fmt.Errorf("giving the portal its connections: %w", err)
	}
	return nil
}

// Wait returns when ctx ends, or with an error when an interface has gone: its programs
// disappeared with it, and an interface that replaces it has none.
func (d *Datapath) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case name := <-d.lost:
		return fmt.Errorf("%s is gone: start gatewayd again for the one that comes in its place", name)
	}
}

// Close closes programs and maps, which stay in the kernel with their contents: packets of
// admitted clients continue to pass until Remove.
func (d *Datapath) Close() error {
	d.stop()
	var err error
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
	err = errors.Join(err, d.flows.objs.Close(), d.objs.Close(), d.locks.Close())
	d.locks = nil
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

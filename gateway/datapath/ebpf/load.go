// Loading the programs and maps, with their sizes and constants, and taking over the maps that a former daemon pinned.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

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
	if d.split != nil {
		opts.MapReplacements = map[string]*ebpf.Map{
			"flow_paths": d.split.objs.FlowPaths, "members": d.split.objs.Members, "reaches": d.split.objs.Reaches}
		spec.Maps["flow_paths"].MaxEntries = d.split.objs.FlowPaths.MaxEntries()
	}
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
	existing := dir
	for {
		if _, err := os.Stat(existing); err == nil || existing == filepath.Dir(existing) {
			break
		}
		existing = filepath.Dir(existing)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(existing, &fs); err != nil {
		return fmt.Errorf("looking at the folder of pins %s: %w", existing, err)
	}
	if uint32(fs.Type) == unix.BPF_FS_MAGIC { // with 32 bits the type is too small for it
		return nil
	}
	known, _ := os.ReadFile("/proc/filesystems")
	if !strings.Contains(string(known), "\tbpf\n") {
		return fmt.Errorf("%w: it has no bpffs to pin programs to (CONFIG_BPF_SYSCALL)", datapath.ErrNotSupported)
	}
	return fmt.Errorf(
		"%s is not on a bpffs, which programs are pinned to: mount -t bpf bpf /sys/fs/bpf, or set datapath.pin_dir to a "+
			"folder on one", dir)
}

// sessions are the maps without which admitted clients are cut off or their counts are lost.
var sessions = []string{"clients", "clients6", "client_counters", "client_limits", "gateway_settings", "networks"}

// outgrow removes the pins of maps that do not fit this version or this LAN, so that new ones are created: of sessions
// all, because they belong together; of the others, which are caches, each separately. The former daemon's programs use
// the old maps until they are replaced.
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
		fits, err := d.fits(name, m, pinned)
		pinned.Close()
		if err != nil {
			return err
		}
		if !fits {
			old = append(old, name)
		}
	}
	if slices.ContainsFunc(old, func(name string) bool { return slices.Contains(sessions, name) }) {
		d.cfg.Log.Warn("the data path's tables were made for another LAN or version, or detached halfway; making new ones",
			"pins", d.cfg.PinDir)
		old = all
	}
	for _, name := range old {
		if err := os.Remove(filepath.Join(d.cfg.PinDir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the pin of %s: %w", name, err)
		}
	}
	return nil
}

// fits reports whether a pinned map is of this version and this LAN, and has no client at a place that is another's
// now: that one would be counted and limited as the former, by its IPv6 addresses too.
func (d *Datapath) fits(name string, m *ebpf.MapSpec, pinned *ebpf.Map) (bool, error) {
	if m.Compatible(pinned) != nil || frozen(pinned) {
		return false, nil
	}
	if name != "networks" {
		return true, nil
	}
	moved, err := d.haveMoved(pinned)
	return !moved, err
}

// sizeMap fills in the size of a map, and reports whether it is pinned. Maps that are not pinned are constant within
// one load, or made anew by each.
func (d *Datapath) sizeMap(name string, m *ebpf.MapSpec) (pinned bool) {
	switch name {
	case "client_queues", "strangers":
		m.MaxEntries = d.slots()
		return false
	case "clients":
		m.MaxEntries = d.net.Size()
		if len(d.net.Outside) > 0 {
			m.MaxEntries = d.slots()
		}
	case "client_counters", "client_limits", "client_meters":
		m.MaxEntries = d.slots()
		if name == "client_counters" || name == "client_meters" {
			m.Flags |= unix.BPF_F_MMAPABLE
		}
	case "window_scales":
		if d.cfg.Shaping != ShapingAuto {
			m.MaxEntries = unusedEntries
		}
		return false
	case "flow_paths":
		if d.cfg.FlowCache == FlowCacheNever {
			m.MaxEntries = unusedEntries
		}
		if d.cfg.flowEntries > 0 {
			m.MaxEntries = d.cfg.flowEntries
		}
		return false
	case "flow_tallies":
		m.Flags |= unix.BPF_F_MMAPABLE
		fallthrough
	case "flow_tallied":
		if !d.cfg.tallying() {
			m.MaxEntries = unusedEntries // instead of those of a former daemon
		}
	case "hops", "gateway_settings", "stats", "garden", "garden_ports", "networks", "newcomers", "portal":
	default:
		return d.sizeMap6(name, m) || d.sizeTable(name, m)
	}
	return true
}

// sizeTable is sizeMap for tables of which the networks of a daemon share one, or that are smaller where there are
// several; others are only constant within one load.
func (d *Datapath) sizeTable(name string, m *ebpf.MapSpec) (pinned bool) {
	switch name {
	case "devices":
		m.MaxEntries = datapath.MostStrangers / d.sharers()
	case "senders":
		m.MaxEntries = datapath.MostSenders / d.sharers()
	case "flows", "requests", "called":
		m.MaxEntries /= d.sharers()
	case "members", "reaches":
		if d.split == nil {
			m.MaxEntries = unusedEntries
		}
	}
	return name == "called"
}

// sharers divides the tables that are as large for each of several networks, whatever addresses it has.
func (d *Datapath) sharers() uint32 {
	if d.split == nil {
		return 1
	}
	return 8
}

// sizeMap6 is sizeMap for maps of IPv6; others are only constant within one load.
func (d *Datapath) sizeMap6(name string, m *ebpf.MapSpec) (pinned bool) {
	switch name {
	case "clients6":
		if m.MaxEntries = d.net.Addrs6(); !d.has6() {
			m.MaxEntries = unusedEntries
		}
		return true
	case "called6":
		if m.MaxEntries /= d.sharers(); !d.has6() {
			m.MaxEntries = unusedEntries
		}
		return true
	case "flow6_stamps":
		if !d.has6() || d.cfg.FlowCache == FlowCacheNever {
			m.MaxEntries = unusedEntries
		}
		return false
	case "flow6_paths":
		if m.MaxEntries /= d.sharers(); !d.has6() || d.cfg.FlowCache == FlowCacheNever {
			m.MaxEntries = unusedEntries
		}
		return false
	case "known6":
		if d.has6() {
			m.MaxEntries = 1 << d.knownBits()
		}
		return false
	case "asked6":
		if !d.has6() {
			m.MaxEntries = unusedEntries
		}
		return true
	}
	return name == "networks6" || name == "garden6" || name == "garden6_ports"
}

// spec returns the programs and maps to load, with constants and map sizes filled in.
func (d *Datapath) spec(lan, wan *net.Interface) (*ebpf.CollectionSpec, error) {
	spec, err := loadGateway()
	if err != nil {
		return nil, fmt.Errorf("reading the programs: %w", err)
	}
	for name, m := range spec.Maps {
		if d.sizeMap(name, m) {
			m.Pinning = ebpf.PinByName
		}
	}
	for _, dev := range []*net.Interface{lan, wan} {
		if err := ethernet(dev); err != nil {
			return nil, err
		}
	}
	var ports [4]uint16
	for i, p := range d.cfg.PortalPorts {
		ports[i] = networkPort(p)
	}
	flag := map[bool]uint8{true: 1}
	var cut uint32
	if d.cutter.wan != nil {
		cut = uint32(d.cutter.wan.Index)
	}
	for name, value := range map[string]any{
		"lan": constantsOf(d.net, lan, d.splitNumber), "wan_ifindex": uint32(wan.Index), "portal_ports": ports,
		"beside":    flag[d.split != nil],
		"learn":     flag[d.cfg.Newcomer != nil],
		"hear_dhcp": flag[d.cfg.DHCP],
		"lines":     flag[d.cfg.PPPoE], "timed": flag[d.shaping.timed], "tallying": flag[d.cfg.tallying()],
		"ipv6":           flag[d.has6()],
		"known6_shift":   64 - d.knownBits(),
		"cutter_ifindex": cut,
		"budgets":        budgets(), "sender_budget": budgetOf(datapath.Senders),
		"new_senders_budget": budgetOf(budget.Newcomers(datapath.Senders, datapath.MostSenders)),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return spec, nil
}

// constantsOf returns the programs' constants for a network. Its interface must be Ethernet.
func constantsOf(n datapath.Network, dev *net.Interface, number uint32) gatewayNetwork {
	return gatewayNetwork{
		Base: hostOrder(n.Prefix().Addr()), Size: n.Size(), Ifindex: uint32(dev.Index), Gateway: networkOrder(n.Gateway()),
		Mac: [6]uint8(dev.HardwareAddr), Number: uint16(number),
	}
}

package ident

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// WatchConfig is the configuration of a ConnWatch.
type WatchConfig struct {
	WAN     string       // interface
	LAN     netip.Prefix // the gateway takes queries to port 113 of these IPv4 addresses; invalid: of none
	Gateway netip.Addr   // address at which the gateway takes the queries, IPv4
	// Gateway6 is the address at which the gateway takes queries by IPv6; invalid: clients have no IPv6. Keep and Take
	// say which IPv6 addresses are clients'.
	Gateway6 netip.Addr
	Dir      string // folder on a BPF file system, for pins: programs and maps outlive the daemon
}

// ConnWatch is two eBPF programs on the WAN's interface (ident.bpf.c). They record the TCP connections that clients
// open there, and hand queries for clients to the gateway. They stay when the daemon ends; then nobody answers queries,
// and peers still cannot reach the clients' port 113.
type ConnWatch struct {
	objs  identObjects
	links []link.Link
}

// OpenWatch attaches the programs before all others, or replaces those of a former daemon and keeps its records of
// connections. It needs Linux 6.6.
func OpenWatch(cfg WatchConfig) (*ConnWatch, error) {
	dev, err := net.InterfaceByName(cfg.WAN)
	if err != nil {
		return nil, fmt.Errorf("ident: looking for %s: %w", cfg.WAN, err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("ident: making the folder of its pins: %w", err)
	}
	watch := &ConnWatch{}
	if err := watch.load(cfg); err != nil {
		return nil, fmt.Errorf("ident: loading its programs: %w", err)
	}
	for _, hook := range []struct {
		name string
		prog *ebpf.Program
		at   ebpf.AttachType
	}{{"ident_in", watch.objs.IdentIn, ebpf.AttachTCXIngress}, {"ident_out", watch.objs.IdentOut, ebpf.AttachTCXEgress}} {
		attached, err := attach(filepath.Join(cfg.Dir, "link_"+hook.name), dev.Index, hook.prog, hook.at)
		if errors.Is(err, ebpf.ErrNotSupported) {
			err = fmt.Errorf("%w: Linux 6.6 or newer is needed, or ident.enabled = false", err)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ident: attaching %s to %s: %w", hook.name, cfg.WAN, err), watch.Close())
		}
		watch.links = append(watch.links, attached)
	}
	return watch, nil
}

// load loads the programs with the pinned maps of a former daemon, or with new maps if those are incompatible.
func (w *ConnWatch) load(cfg WatchConfig) error {
	spec, err := loadIdent()
	if err != nil {
		return err
	}
	gateway := cfg.Gateway.As4()
	values := map[string]any{"gateway_addr": binary.NativeEndian.Uint32(gateway[:])}
	if cfg.LAN.IsValid() {
		base := cfg.LAN.Masked().Addr().As4()
		values["lan_base"], values["lan_size"] = binary.BigEndian.Uint32(base[:]), uint32(1)<<(32-cfg.LAN.Bits())
	}
	if cfg.Gateway6.IsValid() {
		values["gateway_addr6"] = words(cfg.Gateway6)
	}
	for name, v := range values {
		if err := spec.Variables[name].Set(v); err != nil {
			return err
		}
	}
	options := &ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: cfg.Dir}}
	err = spec.LoadAndAssign(&w.objs, options)
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		for name := range spec.Maps {
			if err := os.Remove(filepath.Join(cfg.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		err = spec.LoadAndAssign(&w.objs, options)
	}
	return err
}

// attach attaches a program by a link that it pins. If a pinned link is the first one at the interface, it only
// replaces the link's program. Otherwise it replaces the link, because programs before it may redirect packets past it.
func attach(pin string, ifindex int, prog *ebpf.Program, attachType ebpf.AttachType) (link.Link, error) {
	old, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		if isFirst(old, ifindex, attachType) {
			return old, old.Update(prog)
		}
		err = errors.Join(old.Unpin(), old.Close())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	attached, err := link.AttachTCX(link.TCXOptions{Program: prog, Interface: ifindex, Attach: attachType,
		Anchor: link.Head()})
	if err != nil {
		return nil, err
	}
	if err := attached.Pin(pin); err != nil {
		return nil, errors.Join(err, attached.Close())
	}
	return attached, nil
}

// isFirst reports whether a link's program is the first at an interface.
func isFirst(l link.Link, ifindex int, attachType ebpf.AttachType) bool {
	info, err := l.Info()
	if err != nil || info.TCX() == nil || info.TCX().Ifindex != uint32(ifindex) {
		return false
	}
	attached, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: attachType})
	return err == nil && len(attached.Programs) > 0 && attached.Programs[0].ID == info.Program
}

// Pins returns the paths of a ConnWatch's pinned links in a folder.
func Pins(dir string) []string {
	return []string{filepath.Join(dir, "link_ident_in"), filepath.Join(dir, "link_ident_out")}
}

// LeftInKernel reports whether the folder of a ConnWatch's pins exists.
func LeftInKernel(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// RemoveWatch detaches the programs of a ConnWatch whose pins are in a folder. If there are none, it does nothing.
func RemoveWatch(dir string) error {
	var all error
	for _, pin := range Pins(dir) {
		attached, err := link.LoadPinnedLink(pin, nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(attached.Detach(), attached.Unpin(), attached.Close())
		}
		all = errors.Join(all, err)
	}
	if all = errors.Join(all, os.RemoveAll(dir)); all != nil {
		return fmt.Errorf("ident: removing its programs: %w", all)
	}
	return nil
}

// Close releases the daemon's handles. The programs stay.
func (w *ConnWatch) Close() error {
	err := w.objs.Close()
	for _, attached := range w.links {
		err = errors.Join(err, attached.Close())
	}
	return err
}

// mapAddr converts an IPv4 address and a port to the form of the eBPF maps: network byte order.
func mapAddr(endpoint netip.AddrPort) (addr uint32, port uint16) {
	a := endpoint.Addr().Unmap().As4()
	return binary.NativeEndian.Uint32(a[:]), mapPort(endpoint.Port())
}

// addrOf converts an address from the form of the eBPF maps: one word of IPv4, four of IPv6.
func addrOf(words ...uint32) netip.Addr {
	var b []byte
	for _, word := range words {
		b = binary.NativeEndian.AppendUint32(b, word)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// words converts an IPv6 address to the form of the eBPF maps.
func words(addr netip.Addr) (w identAddr6) {
	a := addr.As16()
	for i := range w.Word {
		w.Word[i] = binary.NativeEndian.Uint32(a[4*i:])
	}
	return w
}

// mapPort converts a port to the form of the eBPF maps.
func mapPort(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// Began returns when a connection began. near and far are its ends as on the WAN; near sent the first segment. ok is
// false if the far end has not answered, or if both ends have closed the connection.
func (w *ConnWatch) Began(near, far netip.AddrPort) (instant time.Time, ok bool, err error) {
	var life identLife
	if near.Addr().Is6() {
		err = w.objs.IdentConns6.Lookup(identConn6{Near: words(near.Addr()), NearPort: mapPort(near.Port()),
			Far: words(far.Addr()), FarPort: mapPort(far.Port())}, &life)
	} else {
		var key identConn
		key.Near, key.NearPort = mapAddr(near)
		key.Far, key.FarPort = mapAddr(far)
		err = w.objs.IdentConns.Lookup(key, &life)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return instant, false, nil
	}
	if err != nil {
		return instant, false, fmt.Errorf("looking up a connection: %w", err)
	}
	if life.Answered == 0 || (life.NearFin != 0 && life.FarFin != 0) {
		return instant, false, nil
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return instant, false, fmt.Errorf("reading the clock: %w", err)
	}
	return time.Now().Add(time.Duration(int64(life.Began) - now.Nano())), true, nil
}

// Client returns the client to whose port 113 the asking host connected. ok is false if it connected to the gateway
// itself.
func (w *ConnWatch) Client(asker netip.AddrPort) (client netip.Addr, ok bool, err error) {
	if asker.Addr().Is6() {
		var addr identAddr6
		err = w.objs.IdentAskers6.Lookup(identAsker6{Addr: words(asker.Addr()), Port: mapPort(asker.Port())}, &addr)
		client = addrOf(addr.Word[:]...)
	} else {
		var key identAsker
		key.Addr, key.Port = mapAddr(asker)
		var addr uint32
		err = w.objs.IdentAskers.Lookup(key, &addr)
		client = addrOf(addr)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return netip.Addr{}, false, nil
	}
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("looking up a query's address: %w", err)
	}
	return client, true, nil
}

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
	LAN     netip.Prefix // whose addresses' port 113 is the gateway's; invalid: none is
	Gateway netip.Addr   // that takes the queries, IPv4
	Dir     string       // on a BPF file system: where programs and maps outlive the daemon
}

// ConnWatch is two programs on the WAN's interface (ident.bpf.c). They remember the TCP connections that leave there,
// and hand queries for clients to the gateway. They stay when the daemon ends: then nobody answers, and clients' port
// 113 remains out of reach.
type ConnWatch struct {
	objs  identObjects
	links []link.Link
}

// OpenWatch attaches the programs, ahead of others, or replaces those of a former daemon, whose connections remain
// known. It needs Linux 6.6.
func OpenWatch(cfg WatchConfig) (*ConnWatch, error) {
	dev, err := net.InterfaceByName(cfg.WAN)
	if err != nil {
		return nil, fmt.Errorf("ident: looking for %s: %w", cfg.WAN, err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("ident: making the folder of its pins: %w", err)
	}
	w := &ConnWatch{}
	if err := w.load(cfg); err != nil {
		return nil, fmt.Errorf("ident: loading its programs: %w", err)
	}
	for _, h := range []struct {
		name string
		prog *ebpf.Program
		at   ebpf.AttachType
	}{{"ident_in", w.objs.IdentIn, ebpf.AttachTCXIngress}, {"ident_out", w.objs.IdentOut, ebpf.AttachTCXEgress}} {
		l, err := attach(filepath.Join(cfg.Dir, "link_"+h.name), dev.Index, h.prog, h.at)
		if errors.Is(err, ebpf.ErrNotSupported) {
			err = fmt.Errorf("%w: Linux 6.6 or newer is needed, or ident.enabled = false", err)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ident: attaching %s to %s: %w", h.name, cfg.WAN, err), w.Close())
		}
		w.links = append(w.links, l)
	}
	return w, nil
}

// load loads the programs with the maps of a former daemon, or with new ones if those have another form.
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

// attach attaches a program with a pinned link. A pinned one at the head of the same interface gets the
// program in one step; one behind others, which may redirect packets past it, is replaced.
func attach(pin string, ifindex int, prog *ebpf.Program, attachType ebpf.AttachType) (link.Link, error) {
	old, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		if heads(old, ifindex, attachType) {
			return old, old.Update(prog)
		}
		err = errors.Join(old.Unpin(), old.Close())
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := link.AttachTCX(link.TCXOptions{Program: prog, Interface: ifindex, Attach: attachType, Anchor: link.Head()})
	if err != nil {
		return nil, err
	}
	if err := l.Pin(pin); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// heads reports whether a link is the first at an interface.
func heads(l link.Link, ifindex int, attachType ebpf.AttachType) bool {
	info, err := l.Info()
	if err != nil || info.TCX() == nil || info.TCX().Ifindex != uint32(ifindex) {
		return false
	}
	attached, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: attachType})
	return err == nil && len(attached.Programs) > 0 && attached.Programs[0].ID == info.Program
}

// Pins returns the pins of a Watch's links in a folder.
func Pins(dir string) []string {
	return []string{filepath.Join(dir, "link_ident_in"), filepath.Join(dir, "link_ident_out")}
}

// LeftInKernel reports whether anything of a Watch is in a folder.
func LeftInKernel(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// RemoveWatch detaches the programs of a ConnWatch whose pins are in a folder. If there are none, it does nothing.
func RemoveWatch(dir string) error {
	var all error
	for _, pin := range Pins(dir) {
		l, err := link.LoadPinnedLink(pin, nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(l.Detach(), l.Unpin(), l.Close())
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
	for _, l := range w.links {
		err = errors.Join(err, l.Close())
	}
	return err
}

// Keep makes the networks behind clients those given: their port 113 is the gateway's too.
func (w *ConnWatch) Keep(networks []netip.Prefix) error {
	var old []identNetwork
	var key identNetwork
	var there uint8
	all := w.objs.IdentNetworks.Iterate()
	for all.Next(&key, &there) {
		old = append(old, key)
	}
	err := all.Err()
	wanted := map[identNetwork]bool{}
	for _, n := range networks {
		wanted[networkKey(n)] = true
		err = errors.Join(err, w.Take(n))
	}
	for _, k := range old {
		if !wanted[k] {
			err = errors.Join(err, w.objs.IdentNetworks.Delete(k))
		}
	}
	if err != nil {
		return fmt.Errorf("ident: keeping the networks behind clients: %w", err)
	}
	return nil
}

// Take adds a network behind a client, and Leave removes one.
func (w *ConnWatch) Take(n netip.Prefix) error {
	return w.objs.IdentNetworks.Put(networkKey(n), uint8(1))
}

// Leave removes a network behind a client. One that is not there is no error.
func (w *ConnWatch) Leave(n netip.Prefix) error {
	if err := w.objs.IdentNetworks.Delete(networkKey(n)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

func networkKey(n netip.Prefix) identNetwork {
	addr, _ := raw(netip.AddrPortFrom(n.Addr(), 0))
	return identNetwork{Bits: uint32(n.Bits()), Addr: addr}
}

// raw returns an address and a port as the maps have them.
func raw(p netip.AddrPort) (addr uint32, port uint16) {
	a := p.Addr().Unmap().As4()
	b := binary.BigEndian.AppendUint16(nil, p.Port())
	return binary.NativeEndian.Uint32(a[:]), binary.NativeEndian.Uint16(b)
}

// Began returns when the connection between two ends began, as the WAN sees them: near sent the first segment. ok is
// false unless the connection is established, and neither end has closed it altogether.
func (w *ConnWatch) Began(near, far netip.AddrPort) (instant time.Time, ok bool, err error) {
	var key identConn
	key.Near, key.NearPort = raw(near)
	key.Far, key.FarPort = raw(far)
	var l identLife
	err = w.objs.IdentConns.Lookup(key, &l)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return instant, false, nil
	}
	if err != nil {
		return instant, false, fmt.Errorf("looking up a connection: %w", err)
	}
	if l.Answered == 0 || (l.NearFin != 0 && l.FarFin != 0) {
		return instant, false, nil
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return instant, false, fmt.Errorf("reading the clock: %w", err)
	}
	return time.Now().Add(time.Duration(int64(l.Began) - now.Nano())), true, nil
}

// Client returns the client whose port 113 a connection from a host on the WAN was meant for. ok is false if it was
// meant for the gateway itself.
func (w *ConnWatch) Client(asker netip.AddrPort) (client netip.Addr, ok bool, err error) {
	var key identAsker
	key.Addr, key.Port = raw(asker)
	var addr uint32
	err = w.objs.IdentAskers.Lookup(key, &addr)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return client, false, nil
	}
	if err != nil {
		return client, false, fmt.Errorf("looking up a query's address: %w", err)
	}
	var a [4]byte
	binary.NativeEndian.PutUint32(a[:], addr)
	return netip.AddrFrom4(a), true, nil
}

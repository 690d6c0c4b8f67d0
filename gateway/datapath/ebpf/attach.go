// Attaching the programs to the interfaces, and removing all that a data path has in the kernel. The programs are those
// of gateway.bpf.c: lan_in and wan_in see packets that come from the LAN and the WAN, and lan_out sees packets that go
// to the LAN.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/neighbour"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/routes"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
	"github.com/gateweigh/gateweigh/gateway/netfilter/guard"
)

// hook is a place where a program is attached: an interface, and a direction at tcx or its clsact.
type hook struct {
	name   string
	dev    *net.Interface
	prog   *ebpf.Program
	egress bool
}

// hooks lists the programs' attachment points: ingress first, so that no packet is forwarded without having been
// judged.
func (d *Datapath) hooks(lan, wan *net.Interface) []hook {
	atWAN := hook{"wan_in", wan, d.objs.WanIn, false}
	if d.split != nil {
		atWAN = hook{splitHook, wan, d.split.objs.WanSplit, false}
	}
	return []hook{{"lan_in", lan, d.objs.LanIn, false}, {"lan_out", lan, d.objs.LanOut, true}, atWAN}
}

// pinDir is the folder of a hook's pin.
func (d *Datapath) pinDir(h hook) string {
	if h.name == splitHook {
		return d.split.dir
	}
	return d.cfg.PinDir
}

// attach attaches a program. It replaces a former daemon's program in one step: each packet meets the old or the new
// one. The link is nil on kernels before 6.6; with an error it may be one that could not be pinned.
func (d *Datapath) attach(h hook) (l link.Link, err error) {
	err = ebpf.ErrNotSupported
	if h.name == splitHook { // all its networks' daemons look after it
		d.split.mu.Lock()
		defer d.split.mu.Unlock()
	}
	if !d.cfg.clsact {
		l, err = h.tcx(d.pinDir(h))
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = h.clsact(d.cfg.PinDir)
		if errors.Is(err, syscall.ENOENT) {
			err = fmt.Errorf("%w: before 6.6 it needs its modules sch_ingress and cls_bpf: %w", datapath.ErrNotSupported, err)
		}
	}
	if err == nil {
		err = d.removeOwnOthers(h)
	}
	if err != nil {
		return l, fmt.Errorf("attaching %s to %s: %w", h.name, h.dev.Name, err)
	}
	return l, nil
}

// unlink detaches the program of a pinned link, which a running daemon may hold too.
func unlink(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(l.Detach(), l.Unpin(), l.Close())
}

// detach detaches a program, if it is attached, whichever process pinned it.
func (h hook) detach(dir string) error {
	err := unlink(filepath.Join(dir, "link_"+h.name))
	if e := netlink.FilterDel(h.filter()); e != nil && !isGone(e) {
		err = errors.Join(err, e)
	}
	c, e := programsAt(h, nil)
	if _, e2 := dismiss(c.ownLinks); e != nil || e2 != nil {
		err = errors.Join(err, e, e2)
	}
	if err != nil {
		return fmt.Errorf("detaching %s from %s: %w", h.name, h.dev.Name, err)
	}
	return nil
}

// tcx attaches with a pinned link, on kernel 6.6 or newer. A link that cannot be pinned is returned with the error,
// still attached.
func (h hook) tcx(dir string) (link.Link, error) {
	pin := filepath.Join(dir, "link_"+h.name)
	old, err := link.LoadPinnedLink(pin, nil)
	switch {
	case err == nil:
		if h.isAttached(old) {
			return old, old.Update(h.prog)
		}
		// The link belongs to an interface that is gone, or to another one, or was detached.
		if err := errors.Join(old.Unpin(), old.Close()); err != nil {
			return nil, fmt.Errorf("removing the pin of its former place: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("reading its pin %s: %w", pin, err)
	}
	l, err := link.AttachTCX(
		link.TCXOptions{Program: h.prog, Interface: h.dev.Index, Attach: h.attachType(), Anchor: link.Head()})
	if err != nil {
		return nil, err
	}
	return l, l.Pin(pin)
}

// attachType returns a hook's direction for tcx.
func (h hook) attachType() ebpf.AttachType {
	if h.egress {
		return ebpf.AttachTCXEgress
	}
	return ebpf.AttachTCXIngress
}

// attachLookup attaches portal_lookup to the socket lookup of this network namespace.
func (d *Datapath) attachLookup() (link.Link, error) {
	pin := filepath.Join(d.cfg.PinDir, "link_"+lookup)
	old, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		if err = old.Update(d.objs.PortalLookup); err == nil {
			return old, nil
		}
		err = errors.Join(old.Unpin(), old.Close()) // the link belongs to a namespace that is gone, or was detached
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the pin %s: %w", pin, err)
	}
	ns, err := os.Open("/proc/thread-self/ns/net") // the process's first thread may be in another namespace
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	l, err := link.AttachNetNs(int(ns.Fd()), d.objs.PortalLookup)
	if err != nil {
		return nil, fmt.Errorf("attaching %s: %w", lookup, err)
	}
	if err := l.Pin(pin); err != nil {
		return l, fmt.Errorf("pinning %s: %w", lookup, err)
	}
	return l, nil
}

// isAttached reports whether a link is attached at this hook.
func (h hook) isAttached(l link.Link) bool {
	info, err := l.Info()
	if err != nil || info.TCX() == nil {
		return false
	}
	return info.TCX().Ifindex == uint32(h.dev.Index)
}

// filterHandle identifies our filters of a clsact qdisc, so that a successor replaces them and detach finds them.
const (
	filterHandle   = 0x6a77
	filterPriority = 1
)

func (h hook) filter() *netlink.BpfFilter {
	parent := uint32(netlink.HANDLE_MIN_INGRESS)
	if h.egress {
		parent = netlink.HANDLE_MIN_EGRESS
	}
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: h.dev.Index, Parent: parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Name: h.name, DirectAction: true,
	}
}

// clsact attaches on kernels before 6.6.
func (h hook) clsact(dir string) error {
	err := netlink.QdiscAdd(h.qdisc())
	if err == nil {
		err = os.Mkdir(h.clsactNote(dir), 0o700)
	}
	if err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("adding clsact: %w", err)
	}
	if err := h.free(); err != nil {
		return err
	}
	return h.replace(dir)
}

// free checks that no other qdisc has the place of clsact: filters for outgoing packets would be attached to the
// incoming ones of an ingress qdisc, without an error.
func (h hook) free() error {
	all, err := stack.ConsistentList(func() ([]netlink.Qdisc, error) {
		return netlink.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: h.dev.Index}})
	})
	if err != nil {
		return fmt.Errorf("listing its qdiscs: %w", err)
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_CLSACT && q.Type() != "clsact" {
			return fmt.Errorf("the qdisc %[1]s has the place of clsact: tc qdisc del dev %[2]s %[1]s", q.Type(), h.dev.Name)
		}
	}
	return nil
}

func (h hook) qdisc() netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: h.dev.Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
		QdiscType: "clsact",
	}
}

// clsactNote is the folder that records that gatewayd created the interface's clsact.
func (h hook) clsactNote(dir string) string {
	return filepath.Join(dir, fmt.Sprintf("clsact_%d", h.dev.Index))
}

// restore removes an interface's clsact, if gatewayd created it and no other programs use it, and the record of that.
func (h hook) restore(dir string) error {
	if _, err := os.Stat(h.clsactNote(dir)); err != nil {
		return nil
	}
	link, err := netlink.LinkByIndex(h.dev.Index)
	if noInterface(err) {
		return os.Remove(h.clsactNote(dir))
	}
	if err != nil {
		return fmt.Errorf("interface %s: %w", h.dev.Name, err)
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		left, err := stack.ConsistentList(func() ([]netlink.Filter, error) { return netlink.FilterList(link, parent) })
		if err != nil || len(left) > 0 {
			return err
		}
	}
	if err := netlink.QdiscDel(h.qdisc()); err != nil && !isGone(err) {
		return fmt.Errorf("removing clsact from %s: %w", h.dev.Name, err)
	}
	return os.Remove(h.clsactNote(dir))
}

// Remove removes everything of a data path from the kernel: programs, maps, the qdisc it created for them, the clients'
// neighbour entries, and last, if nothing failed, the guard. The interfaces may be gone. They must be locked, because
// Remove does not check whether a data path runs; one that does puts nothing back.
func Remove(cfg Config) error {
	err := freezeDaemon(cfg.PinDir)
	if e := cfg.closeLAN(); e != nil { // without programs and guard the machine would forward for everybody
		return errors.Join(err, e)
	}
	err = errors.Join(err, unlink(filepath.Join(cfg.PinDir, "link_cut_in")))
	err = errors.Join(err, leaveSplit(cfg.Shared, cfg.lan()))
	for _, name := range []string{cfg.lan(), cfg.WAN} {
		dev, lookup := net.InterfaceByName(name)
		if lookup != nil {
			continue // its programs disappeared with it
		}
		var d Datapath
		for _, h := range d.hooks(dev, dev) {
			err = errors.Join(err, h.detach(cfg.PinDir))
		}
		err = errors.Join(err, hook{dev: dev}.restore(cfg.PinDir))
		for _, major := range []uint16{wanQueue, lanQueue} {
			q := queue{dev: dev, major: major, dir: cfg.PinDir}
			err = errors.Join(err, q.recall(), q.remove())
		}
	}
	err = errors.Join(err, leaveFilters(cfg.PinDir), leaveQueues(cfg.PinDir))
	d := Datapath{cfg: cfg}
	if err = errors.Join(err, d.liberal().switchOff(), unlink(filepath.Join(cfg.PinDir, "link_"+lookup)),
		os.RemoveAll(cfg.PinDir), neighbour.Remove(cfg.lan()), routes.Remove(cfg.lan()),
		removeCutter(cfg.lan())); err != nil {
		return err
	}
	if cfg.StayClosed {
		return nil
	}
	return guard.Remove(cfg.lan())
}

// closeLAN has the guard let nothing pass until it is removed last, or where that fails.
func (c *Config) closeLAN() error {
	g := guard.Guard{LAN: c.lan()}
	if c.StayClosed {
		return g.Renew()
	}
	if !guard.IsShut(c.lan()) {
		return nil
	}
	return g.Know()
}

// noInterface reports whether an error means that the interface is gone.
func noInterface(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, syscall.ENODEV)
}

// isGone reports whether an error means that there is nothing to remove.
func isGone(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ESRCH)
}

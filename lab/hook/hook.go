// Package hook attaches eBPF programs to tc at an interface, ahead of other programs, and detaches them. Before Linux
// 6.6, which brought tcx links, a program is a filter of a clsact qdisc.
package hook

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Config says where a program is attached.
type Config struct {
	Interface int  // index of the interface
	Egress    bool // the program gets outgoing frames; otherwise incoming ones
	// Name and Handle identify a filter of clsact. A filter replaces another with the same handle. Handle 0 means 1. tcx
	// ignores both.
	Name   string
	Handle uint32

	Clsact bool // use clsact even where the kernel has tcx; for tests
}

// Attachment is a program that is attached to an interface. It is detached when the process ends, except that a clsact
// filter of a killed process stays until another filter with its handle replaces it.
type Attachment interface {
	// Lost reports whether the program was detached because its interface was removed.
	Lost() (bool, error)
	// Close detaches the program. It returns no error when the program was detached before.
	Close() error
}

var (
	_ Attachment = tcx{}
	_ Attachment = &clsact{}
)

// Attach attaches a program ahead of all others to an interface of the calling thread's network namespace.
func Attach(cfg Config, prog *ebpf.Program) (Attachment, error) {
	err := ebpf.ErrNotSupported
	if !cfg.Clsact {
		way := ebpf.AttachTCXIngress
		if cfg.Egress {
			way = ebpf.AttachTCXEgress
		}
		var l link.Link
		l, err = link.AttachTCX(link.TCXOptions{Program: prog, Interface: cfg.Interface, Attach: way, Anchor: link.Head()})
		if err == nil {
			return tcx{l}, nil
		}
	}
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return nil, fmt.Errorf("attaching the program: %w", err)
	}
	c, err := attachClsact(cfg, prog)
	if err != nil {
		return nil, fmt.Errorf(
			"attaching the program, which before kernel 6.6 needs the modules sch_ingress and cls_bpf: %w", err)
	}
	return c, nil
}

// tcx is an Attachment by a tcx link. The kernel detaches it when the process ends.
type tcx struct{ link.Link }

func (l tcx) Lost() (bool, error) {
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("asking for the program's interface: %w", err)
	}
	return info.TCX() == nil || info.TCX().Ifindex == 0, nil
}

// clsact is an Attachment by a filter of a clsact qdisc, for kernels before 6.6.
type clsact struct {
	ns     *netlink.Handle // reaches the interface's network namespace from any thread
	qdisc  *netlink.GenericQdisc
	filter *netlink.BpfFilter
	added  bool // this process has added the qdisc
}

// attachClsact adds a clsact qdisc to the interface, if it has none, and adds or replaces the filter.
func attachClsact(cfg Config, prog *ebpf.Program) (*clsact, error) {
	ns, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	parent := uint32(netlink.HANDLE_MIN_INGRESS)
	if cfg.Egress {
		parent = netlink.HANDLE_MIN_EGRESS
	}
	c := &clsact{
		ns: ns,
		qdisc: &netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: cfg.Interface, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
			QdiscType: "clsact",
		},
		filter: &netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: cfg.Interface, Parent: parent, Handle: max(1, cfg.Handle), Protocol: unix.ETH_P_ALL, Priority: 1},
			Fd: prog.FD(), Name: cfg.Name, DirectAction: true,
		},
	}
	err = ns.QdiscAdd(c.qdisc)
	c.added = err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		ns.Close()
		return nil, fmt.Errorf("adding clsact: %w", err)
	}
	if err := ns.FilterReplace(c.filter); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *clsact) Lost() (bool, error) {
	_, err := c.ns.LinkByIndex(c.filter.LinkIndex)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return true, nil
	}
	return false, err
}

// Close removes the filter. It removes the qdisc too if attachClsact has added it and no other filter uses it.
func (c *clsact) Close() error {
	defer c.ns.Close()
	err := ignoreAbsent(c.ns.FilterDel(c.filter))
	if !c.added {
		return err
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		others, e := c.ns.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: c.filter.LinkIndex}}, parent)
		if e != nil || len(others) > 0 {
			return errors.Join(err, ignoreAbsent(e))
		}
	}
	return errors.Join(err, ignoreAbsent(c.ns.QdiscDel(c.qdisc)))
}

// ignoreAbsent turns an error that says that a filter or qdisc does not exist into nil.
func ignoreAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

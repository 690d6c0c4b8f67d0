// Package hook puts eBPF programs at an interface's tc, ahead of others, and takes them away again.
package hook

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Config says where a program is to be.
type Config struct {
	Interface int  // its index
	Egress    bool // for frames that leave; else for those that come
	// Name and Handle tell filters apart that programs have where tc has no links, before Linux 6.6: one of the
	// same handle is replaced. 0: 1.
	Name   string
	Handle uint32

	Old bool // as before Linux 6.6
}

// Attachment is a program's place on an interface. It ends with the process; before Linux 6.6, one whose process was
// killed stays until the handle is used again.
type Attachment interface {
	// Lost reports whether the program is no longer there, because its interface is gone.
	Lost() (bool, error)
	// Close takes the program away; what is no longer there is no error.
	Close() error
}

var (
	_ Attachment = tcx{}
	_ Attachment = &clsact{}
)

// Attach puts a program ahead of all others, on an interface of the calling thread's network namespace.
func Attach(cfg Config, prog *ebpf.Program) (Attachment, error) {
	err := ebpf.ErrNotSupported
	if !cfg.Old {
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

// tcx is a link that ends with the process.
type tcx struct{ link.Link }

func (l tcx) Lost() (bool, error) {
	info, err := l.Info()
	if err != nil {
		return false, fmt.Errorf("asking for the program's interface: %w", err)
	}
	return info.TCX() == nil || info.TCX().Ifindex == 0, nil
}

// clsact is a filter, for kernels before 6.6.
type clsact struct {
	ns     *netlink.Handle // into the interface's network namespace, from whichever thread
	qdisc  *netlink.GenericQdisc
	filter *netlink.BpfFilter
	added  bool // the qdisc, by us
}

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

// Close leaves a qdisc that was there before, or that others use by now.
func (c *clsact) Close() error {
	defer c.ns.Close()
	err := absent(c.ns.FilterDel(c.filter))
	if !c.added {
		return err
	}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		others, e := c.ns.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: c.filter.LinkIndex}}, parent)
		if e != nil || len(others) > 0 {
			return errors.Join(err, absent(e))
		}
	}
	return errors.Join(err, absent(c.ns.QdiscDel(c.qdisc)))
}

// absent forgives that something to be removed is gone.
func absent(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

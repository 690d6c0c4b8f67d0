package receive

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attachment is the program's place on an interface.
type attachment interface {
	// Lost reports whether the program is no longer there, because its interface is gone.
	Lost() (bool, error)
	// Close takes the program away; what is no longer there is no error.
	Close() error
}

var (
	_ attachment = tcx{}
	_ attachment = &clsact{}
)

// attach puts a program ahead of all others at an interface's tc ingress.
func attach(index int, prog *ebpf.Program, old bool) (attachment, error) {
	err := ebpf.ErrNotSupported
	if !old {
		var l link.Link
		l, err = link.AttachTCX(link.TCXOptions{Program: prog, Interface: index, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
		if err == nil {
			return tcx{l}, nil
		}
	}
	if !errors.Is(err, ebpf.ErrNotSupported) {
		return nil, fmt.Errorf("attaching the program: %w", err)
	}
	c, err := attachClsact(index, prog)
	if err != nil {
		return nil, fmt.Errorf("attaching the program, which before kernel 6.6 needs the modules sch_ingress and cls_bpf: %w", err)
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

func attachClsact(index int, prog *ebpf.Program) (*clsact, error) {
	ns, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	c := &clsact{
		ns: ns,
		qdisc: &netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
			QdiscType:  "clsact",
		},
		filter: &netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
			Fd:          prog.FD(), Name: "gateweigh_frames", DirectAction: true,
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

// The queue of an interface in which packets beyond clients' rates wait: an htb with a class for each client, or an fq
// (fair.go). shape.go says for which clients.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// Major numbers of the queues that this package makes, by which they are known: WAN_CLASSES and LAN_CLASSES in limit.h.
const (
	wanQueue = 0x6a77
	lanQueue = 0x6a78
)

// Programs bound what waits of each client: see longest in limit.h.
const (
	classPackets = 1000   // of one client: that of the interface's queue, at least CLASS_PACKETS in limit.h and some
	mostClasses  = 0xfff0 // minor numbers
)

// defaults are the queues that the kernel makes by itself, and that may be replaced by one that holds packets for each
// client. An fq_codel would do more for all of the interface's packets than an htb.
var (
	replaceableQdiscs = []string{"noqueue", "pfifo_fast", "pfifo"}
	replaced          = append([]string{"fq_codel", "fq", "mq"}, replaceableQdiscs...)
)

// queue is an interface's root qdisc, in which its packets wait.
type queue struct {
	dev     *net.Interface
	major   uint16
	dir     string // of pins, where what this data path made is noted
	hasNote bool   // it made the queue
	holder  gatewayHolder
	reason  string // nothing holds packets
	// advice is how an operator's own fq holds them better; "": it does well.
	advice string
	// lacking: the kernel has no queue to put in the default one's place.
	unsupported bool
}

func (q *queue) handle() uint32 { return netlink.MakeHandle(q.major, 0) }

// root reads an interface's qdisc, and those of its transmit queues.
func (q *queue) root() (root netlink.Qdisc, parts []netlink.Qdisc, err error) {
	all, err := stack.ConsistentList(func() ([]netlink.Qdisc, error) {
		return netlink.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: q.dev.Index}})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the queues of %s: %w", q.dev.Name, err)
	}
	for _, one := range all {
		if a := one.Attrs(); a.LinkIndex == q.dev.Index && a.Parent == netlink.HANDLE_ROOT {
			root = one
		}
	}
	for _, one := range all {
		if a := one.Attrs(); root != nil && a.LinkIndex == q.dev.Index && a.Parent>>16 == root.Attrs().Handle>>16 &&
			a.Parent != netlink.HANDLE_ROOT && root.Type() == "mq" {
			parts = append(parts, one)
		}
	}
	return root, parts, nil
}

// isOwn reports whether a qdisc is one that this package made.
func (q *queue) isOwn(root netlink.Qdisc) bool {
	return root != nil && root.Attrs().Handle == q.handle() && slices.Contains([]string{"fq", "mq", "htb"}, root.Type())
}

// mayUseClasses reports whether this data path may use classes of a queue with its number, and remove it. Two may share
// a WAN, but no LAN.
func (q *queue) mayUseClasses() bool { return q.hasNote || q.major == lanQueue }

// findHolder is how the present queue can hold packets back; why it cannot.
func (q *queue) findHolder(root netlink.Qdisc, parts []netlink.Qdisc, timed bool) (
	holder gatewayHolder, reason string) {
	switch {
	case root == nil:
		return gatewayHolderHOLDER_NONE, "it has no queue"
	case q.isOwn(root) && root.Type() == "htb" && !q.mayUseClasses():
		return gatewayHolderHOLDER_NONE, fmt.Sprintf(
			"its queue is another gatewayd's, whose clients have the same classes; if there is none: tc qdisc del dev %s root",
			q.dev.Name)
	case q.isOwn(root) && root.Type() == "htb":
		return gatewayHolderHOLDER_CLASS, ""
	case !timed:
	case root.Type() == "fq", root.Type() == "mq" && len(parts) > 0 && !slices.ContainsFunc(parts, func(
		p netlink.Qdisc) bool {
		return p.Type() != "fq"
	}):
		return gatewayHolderHOLDER_TIME, ""
	}
	return gatewayHolderHOLDER_NONE, fmt.Sprintf(
		"its queue is a %s that holds no packets until a time: tc qdisc replace dev %s root fq flow_limit %d orphan_mask %d",
		root.Type(), q.dev.Name, fqFlowPackets, fqMask)
}

// open finds or makes a queue that can hold packets back. A queue that an operator configured stays: it has a number
// (handle), which the kernel's default queues do not have.
func (q *queue) open(timed bool) error {
	root, parts, err := q.root()
	if err != nil {
		return err
	}
	if q.replaceable(root) {
		err = q.replace(root, timed)
		if err == nil {
			root, parts, err = q.root()
		}
	}
	if err == nil && !q.isOwn(root) {
		err = q.removeNote()
	}
	q.holder, q.reason, q.advice = gatewayHolderHOLDER_NONE, "", ""
	if errors.Is(err, datapath.ErrNotSupported) {
		q.unsupported = true
		q.reason = "the kernel has no queue for it (CONFIG_NET_SCH_FQ, _HTB)"
		return nil
	}
	if err == nil {
		q.holder, q.reason = q.findHolder(root, parts, timed)
	}
	if err == nil && q.holder == gatewayHolderHOLDER_TIME {
		q.advice, err = q.widen(q.isOwn(root))
	}
	return err
}

// replaceable reports whether a qdisc is one that the kernel made by itself, and another may take its place.
func (q *queue) replaceable(root netlink.Qdisc) bool {
	return root != nil && root.Attrs().Handle>>16 == 0 && slices.Contains(replaced, root.Type()) && !q.unsupported
}

// replace puts a queue that holds packets in the default one's place.
func (q *queue) replace(root netlink.Qdisc, timed bool) error {
	if err := q.writeNote(); err != nil {
		return err
	}
	var made error = syscall.ENOENT
	if timed {
		made = q.makeFQ(root.Type() == "mq")
	}
	if errors.Is(made, syscall.ENOENT) && slices.Contains(replaceableQdiscs, root.Type()) {
		made = q.classful()
	}
	switch {
	case made == nil:
		return nil
	case errors.Is(made, syscall.EEXIST): // somebody else was first
		return q.removeNote()
	case errors.Is(made, syscall.ENOENT): // the kernel has no such queue
		return errors.Join(datapath.ErrNotSupported, q.removeNote())
	}
	return fmt.Errorf(
		"giving %s a queue that holds clients' packets: %w", q.dev.Name, errors.Join(made, q.remove(), q.removeNote()))
}

// classful makes an htb. Packets without a class leave at once.
func (q *queue) classful() error {
	link, err := netlink.LinkByIndex(q.dev.Index)
	if err != nil {
		return err
	}
	if link.Attrs().TxQLen < classPackets {
		return syscall.ENOENT
	}
	return netlink.QdiscAdd(
		netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: q.dev.Index, Parent: netlink.HANDLE_ROOT, Handle: q.handle()}))
}

// remove puts the interface's default queue back, if its queue is one that this package made. An htb of another
// gatewayd stays; an fq serves all, and those who need it make it again.
func (q *queue) remove() error {
	root, _, err := q.root()
	if err != nil || !q.isOwn(root) || root.Type() == "htb" && !q.mayUseClasses() {
		return err
	}
	err = netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: q.dev.Index,
		Parent: netlink.HANDLE_ROOT, Handle: q.handle()}, QdiscType: root.Type()})
	if err != nil && !isGone(err) {
		return fmt.Errorf("putting the default queue of %s back: %w", q.dev.Name, err)
	}
	return nil
}

// A class counts frames, of which the rate counts the IP packets.
const (
	frameBytes, packetBytes = 1514, 1500
	classBurst              = 2 * frameBytes
)

// class sets the rate of a client's class, bits a second, as new or changed.
func (q *queue) class(minor uint16, bps uint64) error {
	bps = bps * frameBytes / packetBytes
	c := netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: q.dev.Index, Parent: q.handle(), Handle: netlink.MakeHandle(q.major, minor)},
		netlink.HtbClassAttrs{Rate: max(bps, 800), Buffer: classBurst, Cbuffer: classBurst, Quantum: frameBytes},
	)
	if err := netlink.ClassReplace(c); err != nil {
		return fmt.Errorf("setting a client's rate in the queue of %s: %w", q.dev.Name, err)
	}
	return nil
}

// classify has a program choose the class of packets that the stack forwarded.
func (q *queue) classify(p *ebpf.Program) error {
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: q.dev.Index, Parent: q.handle(), Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1},
		Fd: p.FD(), Name: "class_of",
	}
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("having packets of the stack held at %s: %w", q.dev.Name, err)
	}
	return nil
}

// backlogs are the bytes of frames that wait in the classes, by their minor number; nil: there are no classes.
func (q *queue) backlogs() (map[uint16]uint64, error) {
	if q.holder != gatewayHolderHOLDER_CLASS {
		return nil, nil
	}
	all, err := stack.ConsistentList(func() ([]netlink.Class, error) {
		return netlink.ClassList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: q.dev.Index}}, q.handle())
	})
	if err != nil {
		return nil, fmt.Errorf("reading what waits at %s: %w", q.dev.Name, err)
	}
	out := map[uint16]uint64{}
	for _, c := range all {
		if s := c.Attrs().Statistics; s != nil && s.Queue != nil {
			out[uint16(c.Attrs().Handle)] = uint64(s.Queue.Backlog)
		}
	}
	return out, nil
}

// removeClass removes a client's class, with the packets that wait in it.
func (q *queue) removeClass(minor uint16) error {
	c := &netlink.HtbClass{ClassAttrs: netlink.ClassAttrs{LinkIndex: q.dev.Index, Parent: q.handle(),
		Handle: netlink.MakeHandle(q.major, minor)}}
	if err := netlink.ClassDel(c); err != nil && !isGone(err) {
		return fmt.Errorf("removing a client's rate from the queue of %s: %w", q.dev.Name, err)
	}
	return nil
}

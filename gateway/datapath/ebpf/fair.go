// The fair queue (fq) in which packets beyond clients' rates wait, where the programs can set when a packet leaves.
// queue.go chooses it.

package ebpf

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/machine/stack"
)

// An fq holds all of a flow while its first packet waits. Forwarded packets have no socket, so their flows are told
// apart by hash: by ten bits of it as the kernel has it, and then one in ten packets waits with a stranger beside 100
// flows that are held. What a packet's hash is of are addresses and ports, also after a redirect, which leaves it: fq
// computes it where the interface has not. A flow takes some 128 bytes for at least three seconds, so that 20 bits
// bound them to 128 MB.
const (
	fqPackets     = 100_000   // of all flows
	fqFlowPackets = 20_000    // of one, where the kernel has 100
	fqMask        = 1<<20 - 1 // of flows' hashes, where the kernel has 1023
	fqBucketsLog  = 13        // of the table of flows, 64 kB
)

// changeFQ has the kernel make an fq, or with the flags 0 change one.
func (q *queue) changeFQ(flags int, parent, handle uint32) error {
	r := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, flags|unix.NLM_F_ACK)
	r.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(q.dev.Index), Parent: parent, Handle: handle})
	r.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("fq")))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	for kind, value := range map[int]uint32{
		nl.TCA_FQ_PLIMIT: fqPackets, nl.TCA_FQ_FLOW_PLIMIT: fqFlowPackets, nl.TCA_FQ_ORPHAN_MASK: fqMask,
		nl.TCA_FQ_BUCKETS_LOG: fqBucketsLog,
		nl.TCA_FQ_RATE_ENABLE: 0, // senders on this machine pace themselves
	} {
		options.AddRtAttr(kind, nl.Uint32Attr(value))
	}
	r.AddData(options)
	_, err := r.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// makeFQ makes an fq, for each transmit queue where there are several.
func (q *queue) makeFQ(several bool) error {
	if !several {
		return q.changeFQ(unix.NLM_F_CREATE|unix.NLM_F_EXCL, netlink.HANDLE_ROOT, q.handle())
	}
	link, err := netlink.LinkByIndex(q.dev.Index)
	if err != nil {
		return err
	}
	mq := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: q.dev.Index, Parent: netlink.HANDLE_ROOT,
		Handle: q.handle()}, QdiscType: "mq"}
	if err := netlink.QdiscAdd(mq); err != nil {
		return err
	}
	for i := range link.Attrs().NumTxQueues {
		err := q.changeFQ(unix.NLM_F_CREATE|unix.NLM_F_REPLACE, netlink.MakeHandle(q.major, uint16(i+1)), 0)
		if err != nil && !(i > 0 && errors.Is(err, syscall.ENOENT)) { // transmit queues that are not in use
			return errors.Join(err, q.remove())
		}
	}
	return nil
}

// fq is a fair queueing qdisc (fq) of an interface.
type fq struct{ parent, handle, mask uint32 }

// fqs are the fqs of an interface, also those of its transmit queues.
func (q *queue) fqs() (all []fq, err error) {
	messages, err := stack.ConsistentList(func() ([][]byte, error) {
		r := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
		r.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(q.dev.Index)})
		return r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	})
	if err != nil {
		return nil, fmt.Errorf("reading how the fq of %s tells flows apart: %w", q.dev.Name, err)
	}
	for _, m := range messages {
		message := nl.DeserializeTcMsg(m)
		attrs, err := nl.ParseRouteAttr(m[message.Len():])
		if err != nil || message.Ifindex != int32(q.dev.Index) {
			continue
		}
		kind, _, _ := strings.Cut(string(value(attrs, nl.TCA_KIND)), "\x00")
		options, err := nl.ParseRouteAttr(value(attrs, nl.TCA_OPTIONS))
		if mask := value(options, nl.TCA_FQ_ORPHAN_MASK); err == nil && kind == "fq" && len(mask) == 4 {
			all = append(all, fq{message.Parent, message.Handle, nl.NativeEndian().Uint32(mask)})
		}
	}
	return all, nil
}

// value is that of an attribute; nil: it is not there.
func value(attrs []syscall.NetlinkRouteAttr, kind uint16) []byte {
	for _, a := range attrs {
		if a.Attr.Type&nl.NLA_TYPE_MASK == kind {
			return a.Value
		}
	}
	return nil
}

// widen has an fq tell more flows apart, if it is one that this package made, as a former version did. It returns
// advice for an operator's own.
func (q *queue) widen(isOurs bool) (advice string, err error) {
	all, err := q.fqs()
	if err != nil {
		return "", err
	}
	for _, f := range all {
		switch {
		case f.mask >= fqMask:
		case isOurs:
			err = errors.Join(err, q.changeFQ(0, f.parent, f.handle))
		case f.parent == netlink.HANDLE_ROOT:
			return fmt.Sprintf(
				"it tells %d connections apart, and others wait with them: tc qdisc change dev %s root fq orphan_mask %d", f.mask+1,
				q.dev.Name, fqMask), nil
		default:
			parent := fmt.Sprintf("%x:%x", f.parent>>16, f.parent&0xffff)
			return fmt.Sprintf(
				"it tells %d connections apart, and others wait with them: tc qdisc change dev %s parent %s handle %x: fq "+
					"orphan_mask %d, and so for each parent",
				f.mask+1, q.dev.Name, parent, f.handle>>16, fqMask), nil
		}
	}
	return "", err
}

package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// List calls each with the connections that there are in this network namespace.
func List(each func(Connection)) error { return list(header(unix.AF_UNSPEC), each) }

// list calls each with the connections that match a question: struct nfgenmsg and attributes. The kernel reports the
// end of a connection before it takes it out of its table (nf_conntrack_core.c, nf_ct_delete). One whose end has been
// reported may still be there, and is no connection any more.
func list(question []byte, each func(Connection)) error {
	r := nl.NewNetlinkRequest(kindGet, unix.NLM_F_DUMP)
	r.AddRawData(question)
	err := r.ExecuteIter(unix.NETLINK_NETFILTER, kindNew, func(m []byte) bool {
		if c, err := Read(m); err == nil && !c.dying {
			each(c)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("reading connection tracking: %w", err)
	}
	return nil
}

// FindByReply returns the TCP or UDP connection with a reply tuple; ok is false if there is none. The kernel looks one
// entry up, whatever the table's size.
func FindByReply(reply Tuple) (c Connection, ok bool, err error) {
	question := encode(func(e *netlink.AttributeEncoder) {
		nested(e, tupleReply, func(t *netlink.AttributeEncoder) {
			nested(t, tupleIP, func(ip *netlink.AttributeEncoder) {
				source, dest := addressKinds(reply.From.Addr())
				ip.Bytes(source, reply.From.Addr().AsSlice())
				ip.Bytes(dest, reply.To.Addr().AsSlice())
			})
			nested(t, tupleProto, func(p *netlink.AttributeEncoder) {
				p.Uint8(protoNumber, reply.Protocol)
				p.Uint16(protoSource, reply.From.Port())
				p.Uint16(protoDest, reply.To.Port())
			})
		})
	})
	// The answer is marked as one of several parts, of which there is no end but the acknowledgement. nl stops there,
	// while mdlayher's netlink waits for ever.
	r := nl.NewNetlinkRequest(kindGet, unix.NLM_F_ACK)
	r.AddRawData(slices.Concat(header(familyOf(reply.From.Addr())), question))
	answers, err := r.Execute(unix.NETLINK_NETFILTER, kindNew)
	if errors.Is(err, unix.ENOENT) || err == nil && len(answers) == 0 {
		return c, false, nil
	}
	if err == nil {
		c, err = Read(answers[0])
	}
	if err != nil {
		return c, false, fmt.Errorf("asking connection tracking: %w", err)
	}
	return c, true, nil
}

// queryFrom is a question for connections of which one direction comes from an address. Kernels before 5.8 answer with
// all.
func queryFrom(a netip.Addr, side uint16) []byte {
	const source = 1 << 0 // CTA_FILTER_F_CTA_IP_SRC
	kind, _ := addressKinds(a)
	return append(header(familyOf(a)), encode(func(e *netlink.AttributeEncoder) {
		nested(e, side, func(t *netlink.AttributeEncoder) {
			nested(t, tupleIP, func(ip *netlink.AttributeEncoder) { ip.Bytes(kind, a.AsSlice()) })
		})
		nested(e, filter, func(f *netlink.AttributeEncoder) {
			f.ByteOrder = binary.NativeEndian
			for _, direction := range []uint16{tupleOrig, tupleReply} { // CTA_FILTER_ORIG_FLAGS, CTA_FILTER_REPLY_FLAGS
				flags := map[bool]uint32{true: source}[direction == side]
				f.Uint32(direction, flags)
			}
		})
	})...)
}

// addressKinds returns the kinds of the attributes that have addresses of a's family.
func addressKinds(a netip.Addr) (source, dest uint16) {
	if a.Is4() {
		return ipSource, ipDest
	}
	return ipSource6, ipDest6
}

// remove has the kernel forget a connection. One that has ended meanwhile is left alone, though another of the same
// tuples may have begun.
func (c *Connection) remove() error {
	name, err := c.name()
	if err == nil {
		r := nl.NewNetlinkRequest(kindDelete, unix.NLM_F_ACK)
		r.AddRawData(slices.Concat(header(c.message[0]), name))
		_, err = r.Execute(unix.NETLINK_NETFILTER, 0)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("ending the connection from %s to %s: %w", c.Orig.From, c.Orig.To, err)
	}
	return nil
}

// encode returns attributes, which must be short, with numbers in network order.
func encode(fill func(*netlink.AttributeEncoder)) []byte {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	fill(e)
	attrs, err := e.Encode()
	if err != nil {
		panic(err)
	}
	return attrs
}

func nested(e *netlink.AttributeEncoder, kind uint16, fill func(*netlink.AttributeEncoder)) {
	e.Nested(kind, func(in *netlink.AttributeEncoder) error {
		in.ByteOrder = binary.BigEndian
		fill(in)
		return nil
	})
}

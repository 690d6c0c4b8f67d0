// Package conntrack reads the kernel's connection tracking, and ends connections of clients that have left.
package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Messages and attributes of ctnetlink (linux, include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	New = unix.NFNL_SUBSYS_CTNETLINK << 8 // of entries in answers
	Get = New | 1
	del = New | 2

	TupleOrig  = 1
	TupleReply = 2
	id         = 12
	zone       = 18
	filter     = 25

	TupleIP    = 1
	TupleProto = 2

	IPSource = 1
	IPDest   = 2

	ProtoNumber = 1
	ProtoSource = 2
	ProtoDest   = 3

	kind = 1<<14 - 1 // of an attribute's type, without its flags

	filterOrig, filterReply = 1, 2
	filterSource            = 1 << 0 // CTA_FILTER_F_CTA_IP_SRC
)

// Header is struct nfgenmsg of a question about IPv4.
var Header = []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}

// Tuple is one direction of a connection: packets as they come in. Ports are 0 where the protocol has none.
type Tuple struct {
	From, To netip.AddrPort
	Protocol uint8
}

// Connection is an entry.
type Connection struct {
	Orig, Reply Tuple
	name        []netlink.Attribute // that the kernel finds it by
}

var errNone = errors.New("no IPv4 connection")

// Read reads an entry from a message's data: struct nfgenmsg and attributes. It fails for other than IPv4.
func Read(data []byte) (c Connection, err error) {
	if len(data) < len(Header) || data[0] != unix.AF_INET {
		return c, errNone
	}
	attrs, err := netlink.UnmarshalAttributes(data[len(Header):])
	if err != nil {
		return c, err
	}
	for _, a := range attrs {
		switch a.Type & kind {
		case TupleOrig:
			err = errors.Join(err, c.Orig.read(a.Data))
			c.name = append(c.name, a)
		case TupleReply:
			err = errors.Join(err, c.Reply.read(a.Data))
		case zone, id:
			c.name = append(c.name, a)
		}
	}
	if err == nil && (!c.Orig.From.IsValid() || !c.Reply.From.IsValid()) {
		err = errNone
	}
	return c, err
}

// read takes a nested tuple.
func (t *Tuple) read(nested []byte) error {
	parts, err := children(nested)
	if err != nil {
		return err
	}
	ip, err := children(parts[TupleIP])
	proto, err2 := children(parts[TupleProto])
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	if len(proto[ProtoNumber]) == 1 {
		t.Protocol = proto[ProtoNumber][0]
	}
	end := func(addr, port []byte) netip.AddrPort {
		a, ok := netip.AddrFromSlice(addr)
		if !ok || !a.Is4() {
			return netip.AddrPort{}
		}
		if len(port) != 2 {
			return netip.AddrPortFrom(a, 0)
		}
		return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port))
	}
	t.From, t.To = end(ip[IPSource], proto[ProtoSource]), end(ip[IPDest], proto[ProtoDest])
	return nil
}

// children are the attributes in another, by their types.
func children(nested []byte) (map[uint16][]byte, error) {
	attrs, err := netlink.UnmarshalAttributes(nested)
	all := map[uint16][]byte{}
	for _, a := range attrs {
		all[a.Type&kind] = a.Data
	}
	return all, err
}

package flowlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Attributes of connections (linux, include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	ctaTupleOrig, ctaTupleReply       = 1, 2
	ctaCountersOrig, ctaCountersReply = 9, 10
	ctaZone, ctaTimestamp, ctaEvent   = 18, 20, 27

	ctaTupleIP, ctaTupleProto = 1, 2
	ctaIPv4Src, ctaIPv4Dst    = 1, 2

	ctaProtoNum, ctaProtoSrc, ctaProtoDst            = 1, 2, 3
	ctaProtoICMP, ctaProtoICMPType, ctaProtoICMPCode = 4, 5, 6

	ctaCountersPackets, ctaCountersBytes = 1, 2

	ctaTimestampStart, ctaTimestampStop = 1, 2
)

// Kinds of messages.
const (
	ctNew    = unix.NFNL_SUBSYS_CTNETLINK << 8
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	groupNew, groupDestroy = 1, 3
)

// tuple is one direction of a connection.
type tuple struct {
	src, dst netip.AddrPort
	protocol uint8
	// icmpType and icmpCode are those of its messages in ICMP.
	icmpType, icmpCode uint8
}

// counted is the traffic of one direction.
type counted struct{ packets, bytes uint64 }

// connection is what a message says of one. Of one that begins there are no counters. start
// and stop are zero where the kernel keeps no times. event is when it was reported, from Linux 6.14 on.
type connection struct {
	orig, reply tuple
	sent, got   counted // in the direction of orig, and of reply
	zone        uint16
	start, stop time.Time
	event       time.Time
}

var errNoIPv4 = errors.New("no IPv4 connection")

// parseConnection reads a message's data: struct nfgenmsg and attributes.
func parseConnection(data []byte) (c connection, err error) {
	if len(data) < 4 || data[0] != unix.AF_INET {
		return c, errNoIPv4
	}
	d, err := decoder(data[4:])
	if err != nil {
		return c, err
	}
	for d.Next() {
		switch d.Type() {
		case ctaTupleOrig:
			d.Nested(c.orig.read)
		case ctaTupleReply:
			d.Nested(c.reply.read)
		case ctaCountersOrig:
			d.Nested(c.sent.read)
		case ctaCountersReply:
			d.Nested(c.got.read)
		case ctaZone:
			c.zone = d.Uint16()
		case ctaTimestamp:
			d.Nested(c.times)
		case ctaEvent:
			c.event = moment(d.Uint64())
		}
	}
	if err := d.Err(); err != nil {
		return c, fmt.Errorf("a message about a connection: %w", err)
	}
	if !c.orig.valid() || !c.reply.valid() {
		return c, errNoIPv4
	}
	return c, nil
}

func decoder(b []byte) (*netlink.AttributeDecoder, error) {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return nil, fmt.Errorf("a message about a connection: %w", err)
	}
	d.ByteOrder = binary.BigEndian
	return d, nil
}

func (t *tuple) valid() bool { return t.src.Addr().Is4() && t.dst.Addr().Is4() }

// read takes a nested tuple.
func (t *tuple) read(d *netlink.AttributeDecoder) error {
	d.ByteOrder = binary.BigEndian
	var src, dst netip.Addr
	var from, to uint16
	for d.Next() {
		switch d.Type() {
		case ctaTupleIP:
			d.Nested(func(in *netlink.AttributeDecoder) error {
				for in.Next() {
					switch in.Type() {
					case ctaIPv4Src:
						src, _ = netip.AddrFromSlice(in.Bytes())
					case ctaIPv4Dst:
						dst, _ = netip.AddrFromSlice(in.Bytes())
					}
				}
				return nil
			})
		case ctaTupleProto:
			d.Nested(func(in *netlink.AttributeDecoder) error {
				in.ByteOrder = binary.BigEndian
				for in.Next() {
					switch in.Type() {
					case ctaProtoNum:
						t.protocol = in.Uint8()
					case ctaProtoSrc:
						from = in.Uint16()
					case ctaProtoDst:
						to = in.Uint16()
					case ctaProtoICMP:
						from = in.Uint16()
						to = from
					case ctaProtoICMPType:
						t.icmpType = in.Uint8()
					case ctaProtoICMPCode:
						t.icmpCode = in.Uint8()
					}
				}
				return nil
			})
		}
	}
	t.src, t.dst = netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, to)
	return nil
}

func (n *counted) read(d *netlink.AttributeDecoder) error {
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case ctaCountersPackets:
			n.packets = d.Uint64()
		case ctaCountersBytes:
			n.bytes = d.Uint64()
		}
	}
	return nil
}

// times reads nanoseconds since 1970.
func (c *connection) times(d *netlink.AttributeDecoder) error {
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		var at *time.Time
		switch d.Type() {
		case ctaTimestampStart:
			at = &c.start
		case ctaTimestampStop:
			at = &c.stop
		default:
			continue
		}
		*at = moment(d.Uint64())
	}
	return nil
}

// moment is a number of nanoseconds since 1970; 0: none.
func moment(ns uint64) time.Time {
	if int64(ns) <= 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(ns)).UTC()
}

// named returns the connection as data paths know it.
func (c *connection) named() datapath.Tracked {
	return datapath.Tracked{From: c.orig.src, To: c.orig.dst, Protocol: c.orig.protocol, Start: c.start}
}

// flow returns a connection as a flow of a client. Connections of and to the gateway itself are none.
func (c *connection) flow(client func(netip.Addr) bool, gateway netip.Addr) (f Flow, ok bool) {
	f = Flow{Protocol: c.orig.protocol, ICMPType: c.orig.icmpType, ICMPCode: c.orig.icmpCode, Start: c.start, End: c.stop}
	switch {
	case client(c.orig.src.Addr()):
		f.Client, f.Peer, f.Outside, f.Asked = c.orig.src, c.reply.src, c.reply.dst, c.orig.dst
		f.UpPkts, f.UpBytes, f.DownPkts, f.DownBytes = c.sent.packets, c.sent.bytes, c.got.packets, c.got.bytes
	case client(c.reply.src.Addr()):
		f.Client, f.Peer, f.Outside, f.Asked, f.Inbound = c.reply.src, c.orig.src, c.orig.dst, c.reply.dst, true
		f.UpPkts, f.UpBytes, f.DownPkts, f.DownBytes = c.got.packets, c.got.bytes, c.sent.packets, c.sent.bytes
	default:
		return f, false
	}
	if f.Outside == f.Client {
		f.Outside = netip.AddrPort{}
	}
	if f.Asked == f.Peer {
		f.Asked = netip.AddrPort{}
	}
	return f, f.Peer.Addr() != gateway
}

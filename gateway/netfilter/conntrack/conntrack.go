// Package conntrack reads the kernel's connection tracking, by netlink: the connections that there are, that begin and
// that end. It ends connections of clients that have left.
//
// It decodes messages itself. github.com/ti-mo/conntrack takes thirty times as long for each (BenchmarkRead). It does
// not tell when something was reported, nor go on after reports were lost, nor list what one address has.
package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Messages and attributes of ctnetlink (linux, include/uapi/linux/netfilter/nfnetlink_conntrack.h).
const (
	kindNew    = unix.NFNL_SUBSYS_CTNETLINK << 8 // of entries in answers, too
	kindGet    = kindNew | 1
	kindDelete = kindNew | 2

	tupleOrig, tupleReply, status     = 1, 2, 3
	protocolInfo                      = 4
	countersOrig, countersReply       = 9, 10
	id, zone, timestamp, filter, seen = 12, 18, 20, 25, 27

	tupleIP, tupleProto = 1, 2
	ipSource, ipDest    = 1, 2 // of IPv4
	ipSource6, ipDest6  = 3, 4

	protoNumber, protoSource, protoDest = 1, 2, 3
	protoICMPID, protoICMPType          = 4, 5
	protoICMPCode                       = 6
	protoICMP6ID, protoICMP6Type        = 7, 8
	protoICMP6Code                      = 9

	infoTCP, tcpState = 1, 1
	// States of TCP after which nothing more is sent (enum tcp_conntrack).
	tcpTimeWait, tcpClose = 7, 8

	counterPackets, counterBytes = 1, 2

	timestampStart, timestampStop = 1, 2

	// statusDying is set in the status of an entry (enum ip_conntrack_status) that the kernel is removing.
	statusDying = 1 << 9
)

// headerBytes is the length of struct nfgenmsg.
const headerBytes = 4

// header returns struct nfgenmsg of a question about a family of addresses; unix.AF_UNSPEC: about both.
func header(family uint8) []byte { return []byte{family, unix.NFNETLINK_V0, 0, 0} }

// familyOf returns an address's family.
func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// Tuple is one direction of a connection: packets as they come in. In ICMP both ports are the identifier; they are 0
// where the protocol has none.
type Tuple struct {
	From, To netip.AddrPort
	Protocol uint8
	// ICMPType and ICMPCode are those of its messages in ICMP.
	ICMPType, ICMPCode uint8
}

// Counted is the traffic of one direction.
type Counted struct{ Packets, Bytes uint64 }

// Connection is a connection as connection tracking reports it.
type Connection struct {
	Orig, Reply Tuple
	Sent, Got   Counted // in the direction of Orig, and of Reply; 0 where it has just begun or nobody counts
	Zone        uint16
	Start, Stop time.Time // zero where the kernel keeps no times
	Reported    time.Time // when this happened, from Linux 6.14 on
	message     []byte
	dying       bool // the kernel is removing it
	// Closed: it is of TCP, both sides have ended it, and its entry stays for a while.
	Closed bool
}

var (
	errNone = errors.New("no connection of IPv4 or IPv6")
	errCut  = errors.New("a message about a connection is cut short")
)

// Read reads an entry from a message's data: struct nfgenmsg and attributes. It fails for other than IPv4
// and IPv6.
func Read(data []byte) (c Connection, err error) {
	if len(data) < headerBytes || data[0] != unix.AF_INET && data[0] != unix.AF_INET6 {
		return c, errNone
	}
	c.message = data
	whole := attributes(data[headerBytes:], func(kind uint16, v []byte) bool {
		switch kind {
		case tupleOrig:
			return c.Orig.read(v)
		case tupleReply:
			return c.Reply.read(v)
		case countersOrig:
			return c.Sent.read(v)
		case countersReply:
			return c.Got.read(v)
		case status:
			c.dying = parseNumber(v)&statusDying != 0
		case protocolInfo:
			return c.readState(v)
		case zone:
			c.Zone = uint16(parseNumber(v))
		case timestamp:
			return c.readTimes(v)
		case seen:
			c.Reported = parseTime(v)
		}
		return true
	})
	if !whole {
		return c, errCut
	}
	if !c.Orig.valid() || !c.Reply.valid() {
		return c, errNone
	}
	return c, nil
}

// attributes calls each with the kind and value of each netlink attribute in b. It returns false if b ends within an
// attribute, or once each returns false.
func attributes(b []byte, each func(kind uint16, value []byte) bool) bool {
	const head, kinds = 4, 1<<14 - 1 // struct nlattr; flags are above the kind
	for len(b) > 0 {
		if len(b) < head {
			return false
		}
		n := int(binary.NativeEndian.Uint16(b))
		if n < head || n > len(b) || !each(binary.NativeEndian.Uint16(b[2:])&kinds, b[head:n]) {
			return false
		}
		b = b[min(len(b), (n+3)&^3):]
	}
	return true
}

func parseNumber(v []byte) (n uint64) {
	for _, b := range v {
		n = n<<8 | uint64(b)
	}
	return n
}

// parseTime reads nanoseconds since 1970; 0: none.
func parseTime(v []byte) time.Time {
	ns := int64(parseNumber(v))
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func (t *Tuple) valid() bool {
	return t.From.Addr().IsValid() && t.To.Addr().IsValid() && t.From.Addr().Is4() == t.To.Addr().Is4()
}

// read takes a nested tuple.
func (t *Tuple) read(nested []byte) bool {
	var from, to netip.Addr
	var source, dest uint16
	whole := attributes(nested, func(kind uint16, v []byte) bool {
		switch kind {
		case tupleIP:
			return attributes(v, func(kind uint16, v []byte) bool {
				switch kind {
				case ipSource, ipSource6:
					from, _ = netip.AddrFromSlice(v)
				case ipDest, ipDest6:
					to, _ = netip.AddrFromSlice(v)
				}
				return true
			})
		case tupleProto:
			return attributes(v, func(kind uint16, v []byte) bool {
				switch n := parseNumber(v); kind {
				case protoNumber:
					t.Protocol = uint8(n)
				case protoSource:
					source = uint16(n)
				case protoDest:
					dest = uint16(n)
				case protoICMPID, protoICMP6ID:
					source, dest = uint16(n), uint16(n)
				case protoICMPType, protoICMP6Type:
					t.ICMPType = uint8(n)
				case protoICMPCode, protoICMP6Code:
					t.ICMPCode = uint8(n)
				}
				return true
			})
		}
		return true
	})
	t.From, t.To = netip.AddrPortFrom(from, source), netip.AddrPortFrom(to, dest)
	return whole
}

func (n *Counted) read(nested []byte) bool {
	return attributes(nested, func(kind uint16, v []byte) bool {
		switch kind {
		case counterPackets:
			n.Packets = parseNumber(v)
		case counterBytes:
			n.Bytes = parseNumber(v)
		}
		return true
	})
}

// readState takes the nested properties of the connection's protocol.
func (c *Connection) readState(nested []byte) bool {
	return attributes(nested, func(kind uint16, v []byte) bool {
		return kind != infoTCP || attributes(v, func(kind uint16, v []byte) bool {
			if n := parseNumber(v); kind == tcpState {
				c.Closed = n == tcpTimeWait || n == tcpClose
			}
			return true
		})
	})
}

func (c *Connection) readTimes(nested []byte) bool {
	return attributes(nested, func(kind uint16, v []byte) bool {
		switch kind {
		case timestampStart:
			c.Start = parseTime(v)
		case timestampStop:
			c.Stop = parseTime(v)
		}
		return true
	})
}

// name returns the attributes by which the kernel finds the connection, and no other one of the same tuples.
func (c *Connection) name() ([]byte, error) {
	var all []netlink.Attribute
	attributes(c.message[headerBytes:], func(kind uint16, v []byte) bool {
		switch kind {
		case tupleOrig:
			all = append(all, netlink.Attribute{Type: kind | unix.NLA_F_NESTED, Data: v})
		case zone, id:
			all = append(all, netlink.Attribute{Type: kind, Data: v})
		}
		return true
	})
	return netlink.MarshalAttributes(all)
}

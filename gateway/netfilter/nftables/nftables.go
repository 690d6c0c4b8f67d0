// Package nftables creates tables, chains, rules and sets of the kernel's nftables, as far
// as gatewayd needs them, and reads counters (linux,
// include/uapi/linux/netfilter/nf_tables.h).
//
// Changes are transactions: a Batch takes effect as a whole, between two packets,
// or not at all.
package nftables

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Family is the kind of packets that a table handles.
type Family uint8

// The families.
const (
	Inet   Family = unix.NFPROTO_INET
	IPv4   Family = unix.NFPROTO_IPV4
	ARP    Family = unix.NFPROTO_ARP
	IPv6   Family = unix.NFPROTO_IPV6
	NetDev Family = unix.NFPROTO_NETDEV // all frames of a device
)

// Table names a table.
type Table struct {
	Family Family
	Name   string
}

// Hook is the hook of a base chain.
type Hook struct {
	Type     string // "filter" or "nat"
	Number   uint32 // NF_INET_..., NF_ARP_... or NF_NETDEV_...
	Priority int32
	Device   string // of NetDev, the interface's name
	Drops    bool   // what no rule accepts
}

// Set is a set of keys, or a map of them to verdicts.
type Set struct {
	Name     string
	KeyType  uint32 // as nft shows the keys; see Concat
	KeyBytes int
	Size     uint32 // elements at most; 0: any number
	Verdicts bool   // a map to chains
	DataType uint32 // a map to data of this type; 0: none
	Data     int    // bytes of it; 0: four
	Ranges   bool   // data are a first and a last value
	Dynamic  bool   // rules change it too
	Timeouts bool   // elements may have timeouts
	Counters bool   // a map to counters
	// Fields are the lengths of the parts of keys, bytes, in a set whose elements are ranges of keys (Element.End); nil:
	// elements are single keys. It takes two parts at least, each padded to four bytes.
	Fields []int
}

// Data types of keys, as nft numbers them.
const (
	TypeFamily   = 2
	TypeIPv4     = 7
	TypeIPv6     = 8
	TypeEthernet = 9
	TypePort     = 13

	TypeInterface = 20
	typeBits      = 6
)

// Concat returns the type of concatenated keys, each padded to four bytes.
func Concat(types ...uint32) (all uint32) {
	for _, t := range types {
		all = all<<typeBits | t
	}
	return all
}

// Batch is a transaction being built.
type Batch struct {
	// Held makes tables that only the connection which created them can change or delete,
	// even when the whole ruleset is flushed. When the connection ends they stay and lose
	// this protection. It needs Linux 6.9: before, such a batch is an error.
	Held bool

	messages []netlink.Message
	err      error // of encoding
	sets     uint32
}

// Empty reports whether the batch changes nothing.
func (b *Batch) Empty() bool { return len(b.messages) == 0 && b.err == nil }

// Append adds the changes of another batch, which has no sets.
func (b *Batch) Append(other *Batch) {
	b.messages, b.err = append(b.messages, other.messages...), errors.Join(b.err, other.err)
}

// add appends a message about something in a table.
func (b *Batch) add(kind uint16, flags netlink.HeaderFlags, family Family, fill func(*netlink.AttributeEncoder)) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	fill(e)
	attrs, err := e.Encode()
	b.err = errors.Join(b.err, err)
	b.messages = append(b.messages, netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request | flags},
		Data:   append([]byte{byte(family), unix.NFNETLINK_V0, 0, 0}, attrs...),
	})
}

// AddTable adds a table, unless it exists.
func (b *Batch) AddTable(t Table) {
	b.add(unix.NFT_MSG_NEWTABLE, netlink.Create, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_TABLE_NAME, t.Name)
		var flags uint32
		if b.Held {
			const owner, persist = 2, 4 // NFT_TABLE_F_...
			flags = owner | persist
		}
		e.Uint32(unix.NFTA_TABLE_FLAGS, flags)
	})
}

// DeleteTable deletes a table with its contents. A missing one is no error.
func (b *Batch) DeleteTable(t Table) {
	var kind uint16 = unix.NFT_MSG_DELTABLE
	if b.Held {
		kind = 26 // NFT_MSG_DESTROYTABLE: if it is there
	} else {
		b.AddTable(t) // older kernels lack that message
	}
	b.add(kind, 0, t.Family, func(e *netlink.AttributeEncoder) { e.String(unix.NFTA_TABLE_NAME, t.Name) })
}

// AddChain adds a chain; with a hook it is a base chain, whose policy is to accept unless it Drops.
func (b *Batch) AddChain(t Table, name string, hook *Hook) {
	b.add(unix.NFT_MSG_NEWCHAIN, netlink.Create, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_CHAIN_TABLE, t.Name)
		e.String(unix.NFTA_CHAIN_NAME, name)
		if hook == nil {
			return
		}
		e.Nested(unix.NFTA_CHAIN_HOOK, func(in *netlink.AttributeEncoder) error {
			in.ByteOrder = binary.BigEndian
			in.Uint32(unix.NFTA_HOOK_HOOKNUM, hook.Number)
			in.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(hook.Priority))
			if hook.Device != "" {
				in.String(unix.NFTA_HOOK_DEV, hook.Device)
			}
			return nil
		})
		e.String(unix.NFTA_CHAIN_TYPE, hook.Type)
		if hook.Drops {
			e.Uint32(unix.NFTA_CHAIN_POLICY, verdictDrop)
		}
	})
}

// AddRule appends a rule to a chain.
func (b *Batch) AddRule(t Table, chain string, exprs ...Expr) {
	b.add(unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_RULE_TABLE, t.Name)
		e.String(unix.NFTA_RULE_CHAIN, chain)
		e.Nested(unix.NFTA_RULE_EXPRESSIONS, func(in *netlink.AttributeEncoder) error {
			for _, x := range exprs {
				in.Nested(unix.NFTA_LIST_ELEM, x.encode)
			}
			return nil
		})
	})
}

// ClearChain deletes all rules of a chain.
func (b *Batch) ClearChain(t Table, name string) {
	b.add(unix.NFT_MSG_DELRULE, 0, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_RULE_TABLE, t.Name)
		e.String(unix.NFTA_RULE_CHAIN, name)
	})
}

// DeleteChain deletes a chain without rules.
func (b *Batch) DeleteChain(t Table, name string) {
	b.add(unix.NFT_MSG_DELCHAIN, 0, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_CHAIN_TABLE, t.Name)
		e.String(unix.NFTA_CHAIN_NAME, name)
	})
}

// AddSet adds a set.
func (b *Batch) AddSet(t Table, s Set) {
	b.sets++
	b.add(unix.NFT_MSG_NEWSET, netlink.Create, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_SET_TABLE, t.Name)
		e.String(unix.NFTA_SET_NAME, s.Name)
		e.Uint32(unix.NFTA_SET_ID, b.sets)
		e.Uint32(unix.NFTA_SET_KEY_TYPE, s.KeyType)
		e.Uint32(unix.NFTA_SET_KEY_LEN, uint32(s.KeyBytes))
		var flags uint32
		if s.Verdicts {
			flags |= unix.NFT_SET_MAP
			e.Uint32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		}
		if s.DataType != 0 {
			flags |= unix.NFT_SET_MAP
			e.Uint32(unix.NFTA_SET_DATA_TYPE, s.DataType)
			e.Uint32(unix.NFTA_SET_DATA_LEN, uint32(cmp.Or(s.Data, 4)))
		}
		switch {
		case s.Ranges: // keys and data are in network order, data are intervals
			e.Bytes(unix.NFTA_SET_USERDATA, forNft([2]byte{0, 2}, [2]byte{1, 2}, [2]byte{6, 1}))
		case s.KeyType == TypeInterface: // keys are in host order
			e.Bytes(unix.NFTA_SET_USERDATA, forNft([2]byte{0, 1}))
		}
		if s.Dynamic {
			flags |= unix.NFT_SET_EVAL
		}
		if s.Timeouts {
			flags |= unix.NFT_SET_TIMEOUT
		}
		if s.Counters {
			flags |= unix.NFT_SET_OBJECT
			e.Uint32(unix.NFTA_SET_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
		}
		if len(s.Fields) > 0 {
			const concat = 0x80 // NFT_SET_CONCAT
			flags |= unix.NFT_SET_INTERVAL | concat
		}
		e.Uint32(unix.NFTA_SET_FLAGS, flags)
		if s.Size != 0 || len(s.Fields) > 0 {
			e.Nested(unix.NFTA_SET_DESC, s.describe)
		}
	})
}

// describe tells the kernel how large a set may be, and which parts its keys have.
func (s Set) describe(e *netlink.AttributeEncoder) error {
	const fields, length = 2, 1 // NFTA_SET_DESC_CONCAT, NFTA_SET_FIELD_LEN
	e.ByteOrder = binary.BigEndian
	if s.Size != 0 {
		e.Uint32(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if len(s.Fields) == 0 {
		return nil
	}
	e.Nested(fields, func(in *netlink.AttributeEncoder) error {
		for _, n := range s.Fields {
			in.Nested(unix.NFTA_LIST_ELEM, func(one *netlink.AttributeEncoder) error {
				one.ByteOrder = binary.BigEndian
				one.Uint32(length, uint32(n))
				return nil
			})
		}
		return nil
	})
	return nil
}

// forNft tells nft how to show a set: types and lengths of a byte, then values (nftables, enum nftnl_udata_set_types).
func forNft(values ...[2]byte) (b []byte) {
	for _, v := range values {
		b = binary.NativeEndian.AppendUint32(append(b, v[0], 4), uint32(v[1]))
	}
	return b
}

// Conn is a connection to the kernel's nftables. Its methods may be called from
// several goroutines.
type Conn struct {
	mu sync.Mutex // one request at a time
	c  *netlink.Conn
}

// Dial connects to the nftables of this network namespace.
func Dial() (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("connecting to nftables: %w", err)
	}
	return &Conn{c: c}, nil
}

// Close closes the connection; tables stay.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.c.Close()
}

// Port returns the connection's netlink port, which the kernel names in change messages.
func (c *Conn) Port() (port uint32, err error) {
	rc, err := c.c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("asking for the port of a connection to nftables: %w", err)
	}
	var at unix.Sockaddr
	e := rc.Control(func(fd uintptr) { at, err = unix.Getsockname(int(fd)) })
	if err = errors.Join(e, err); err != nil {
		return 0, fmt.Errorf("asking for the port of a connection to nftables: %w", err)
	}
	return at.(*unix.SockaddrNetlink).Pid, nil
}

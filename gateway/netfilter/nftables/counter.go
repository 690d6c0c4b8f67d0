package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Counted is a counter's value: packets as the kernel handles them, an aggregated one
// being one packet, and their bytes.
type Counted struct{ Packets, Bytes uint64 }

// Plus returns the sum of two counters.
func (n Counted) Plus(m Counted) Counted { return Counted{n.Packets + m.Packets, n.Bytes + m.Bytes} }

// AddCounter adds a counter for use by rules and maps.
func (b *Batch) AddCounter(t Table, name string) {
	b.add(unix.NFT_MSG_NEWOBJ, netlink.Create, t.Family, func(e *netlink.AttributeEncoder) {
		nameCounter(e, t, name)
		e.Nested(unix.NFTA_OBJ_DATA, func(*netlink.AttributeEncoder) error { return nil })
	})
}

// DeleteCounter deletes a counter that nothing uses any more.
func (b *Batch) DeleteCounter(t Table, name string) {
	b.add(unix.NFT_MSG_DELOBJ, 0, t.Family, func(e *netlink.AttributeEncoder) { nameCounter(e, t, name) })
}

func nameCounter(e *netlink.AttributeEncoder, t Table, name string) {
	e.String(unix.NFTA_OBJ_TABLE, t.Name)
	if name != "" {
		e.String(unix.NFTA_OBJ_NAME, name)
	}
	e.Uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
}

// Count counts the packet with a counter.
func Count(counter string) Expr {
	return Expr{"objref", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_OBJREF_IMM_TYPE, unix.NFT_OBJECT_COUNTER)
		e.String(unix.NFTA_OBJREF_IMM_NAME, counter)
	}}
}

// CountBy continues if a map has a counter for the key, and counts the packet with it.
func CountBy(counters string, key Register) Expr {
	return Expr{"objref", func(e *netlink.AttributeEncoder) {
		e.Uint32(unix.NFTA_OBJREF_SET_SREG, key.number())
		e.String(unix.NFTA_OBJREF_SET_NAME, counters)
	}}
}

// Counter reads a counter.
func (c *Conn) Counter(t Table, name string) (out Counted, err error) {
	err = c.counters(t, name, 0, func(_ string, n Counted) { out = n })
	if err != nil {
		return Counted{}, fmt.Errorf("reading the counter %s: %w", name, err)
	}
	return out, nil
}

// Counters reads all counters of a table.
func (c *Conn) Counters(t Table, each func(name string, n Counted)) error {
	if err := c.counters(t, "", netlink.Dump, each); err != nil {
		return fmt.Errorf("reading the counters of %s: %w", t.Name, err)
	}
	return nil
}

func (c *Conn) counters(t Table, name string, flags netlink.HeaderFlags, each func(string, Counted)) error {
	var b Batch
	b.add(unix.NFT_MSG_GETOBJ, flags, t.Family, func(e *netlink.AttributeEncoder) { nameCounter(e, t, name) })
	if b.err != nil {
		return b.err
	}
	m := b.messages[0]
	c.mu.Lock()
	defer c.mu.Unlock()
	got, err := c.c.Execute(m)
	if err != nil {
		return c.failed(err)
	}
	for _, m := range got {
		name, n, err := readCounter(m.Data)
		if err != nil {
			return err
		}
		each(name, n)
	}
	return nil
}

// readCounter decodes a message about a counter.
func readCounter(data []byte) (name string, n Counted, err error) {
	if len(data) < 4 {
		return "", n, errors.New("a message is cut short")
	}
	d, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return "", n, err
	}
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_OBJ_NAME:
			name = d.String()
		case unix.NFTA_OBJ_DATA:
			d.Nested(n.read)
		}
	}
	return name, n, d.Err()
}

func (n *Counted) read(d *netlink.AttributeDecoder) error {
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case unix.NFTA_COUNTER_BYTES:
			n.Bytes = d.Uint64()
		case unix.NFTA_COUNTER_PACKETS:
			n.Packets = d.Uint64()
		}
	}
	return nil
}

// failed discards answers that are left on the connection, so that no later request reads
// them. The kernel has sent all of them when the system call returns.
func (c *Conn) failed(err error) error {
	rc, e := c.c.SyscallConn()
	if e != nil {
		return errors.Join(err, e)
	}
	b := make([]byte, 1<<16)
	e = rc.Control(func(fd uintptr) {
		for {
			_, _, err := unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
			if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
				return // no answer is left
			}
		}
	})
	return errors.Join(err, e)
}

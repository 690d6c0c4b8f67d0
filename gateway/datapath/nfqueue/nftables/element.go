package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Element is a member of a set.
type Element struct {
	Key     []byte
	Jump    string        // of a map: the chain to go on in
	Timeout time.Duration // 0: it stays
}

// Counted is what an element has counted.
type Counted struct{ Packets, Bytes uint64 }

// AddElements adds elements to a set. One that is there is an error, unless the
// batch deletes it before.
func (b *Batch) AddElements(t Table, set string, elements ...Element) {
	b.elements(unix.NFT_MSG_NEWSETELEM, netlink.Create|netlink.Excl, t, set, elements)
}

// DeleteElements takes elements out of a set. One that is not there is an error.
func (b *Batch) DeleteElements(t Table, set string, elements ...Element) {
	b.elements(unix.NFT_MSG_DELSETELEM, 0, t, set, elements)
}

// TakeElements is DeleteElements, and tells what they had counted to the end, once
// the batch is committed.
func (b *Batch) TakeElements(t Table, set string, each func(key []byte, n Counted), elements ...Element) {
	b.elements(unix.NFT_MSG_DELSETELEM, netlink.Echo, t, set, elements)
	if b.taken == nil {
		b.taken = map[string]func([]byte, Counted){}
	}
	b.taken[set] = each
}

func (b *Batch) elements(kind uint16, flags netlink.HeaderFlags, t Table, set string, elements []Element) {
	// A list is an attribute, which cannot be longer than 64 KiB.
	const most = 512
	for len(elements) > 0 {
		some := elements[:min(most, len(elements))]
		elements = elements[len(some):]
		b.add(kind, flags, t.Family, func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
			e.String(unix.NFTA_SET_ELEM_LIST_SET, set)
			e.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(in *netlink.AttributeEncoder) error {
				for _, x := range some {
					in.Nested(unix.NFTA_LIST_ELEM, x.encode)
				}
				return nil
			})
		})
	}
}

func (x Element) encode(e *netlink.AttributeEncoder) error {
	e.ByteOrder = binary.BigEndian
	value(e, unix.NFTA_SET_ELEM_KEY, x.Key)
	if x.Jump != "" {
		e.Nested(unix.NFTA_SET_ELEM_DATA, verdictData(verdictJump, x.Jump))
	}
	if x.Timeout != 0 {
		e.Uint64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(x.Timeout.Milliseconds()))
	}
	return nil
}

// ErrNotThere is wrapped when a set does not have an element.
var ErrNotThere = errors.New("it is not in the set")

// Counted reads what an element of a set has counted.
func (c *Conn) Counted(t Table, set string, key []byte) (Counted, error) {
	var out Counted
	err := c.get(t, set, []Element{{Key: key}}, func(_ []byte, n Counted) { out = n })
	if errors.Is(err, unix.ENOENT) {
		err = ErrNotThere
	}
	if err != nil {
		return Counted{}, fmt.Errorf("reading an element of %s: %w", set, err)
	}
	return out, nil
}

// All reads what every element of a set has counted.
func (c *Conn) All(t Table, set string, each func(key []byte, n Counted)) error {
	if err := c.get(t, set, nil, each); err != nil {
		return fmt.Errorf("reading the set %s: %w", set, err)
	}
	return nil
}

// get reads elements; all of the set where none are named.
func (c *Conn) get(t Table, set string, some []Element, each func([]byte, Counted)) error {
	var b Batch
	b.elements(unix.NFT_MSG_GETSETELEM, 0, t, set, some)
	if len(some) == 0 {
		b.add(unix.NFT_MSG_GETSETELEM, netlink.Dump, t.Family, func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
			e.String(unix.NFTA_SET_ELEM_LIST_SET, set)
		})
	}
	if b.err != nil {
		return b.err
	}
	m := b.messages[0]
	m.Header.Flags &^= netlink.Acknowledge
	c.mu.Lock()
	defer c.mu.Unlock()
	got, err := c.c.Execute(m)
	if err != nil {
		return c.failed(err)
	}
	for _, m := range got {
		if err := readElements(m.Data, func(string) func([]byte, Counted) { return each }); err != nil {
			return err
		}
	}
	return nil
}

// readElements decodes a message of elements. into says where those of a set go; nil:
// nowhere.
func readElements(data []byte, into func(set string) func([]byte, Counted)) error {
	if len(data) < 4 {
		return errors.New("a message of elements is cut short")
	}
	d, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return err
	}
	var each func([]byte, Counted)
	for d.Next() {
		switch {
		case d.Type() == unix.NFTA_SET_ELEM_LIST_SET:
			each = into(d.String())
		case d.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS && each != nil:
			d.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(func(e *netlink.AttributeDecoder) error { return readElement(e, each) })
				}
				return nil
			})
		}
	}
	return d.Err()
}

func readElement(e *netlink.AttributeDecoder, each func([]byte, Counted)) error {
	var key []byte
	var n Counted
	for e.Next() {
		switch e.Type() {
		case unix.NFTA_SET_ELEM_KEY:
			e.Nested(func(in *netlink.AttributeDecoder) error {
				for in.Next() {
					if in.Type() == unix.NFTA_DATA_VALUE {
						key = in.Bytes()
					}
				}
				return nil
			})
		case unix.NFTA_SET_ELEM_EXPR:
			e.Nested(n.read)
		}
	}
	each(key, n)
	return nil
}

// read takes what an element's counter says.
func (n *Counted) read(x *netlink.AttributeDecoder) error {
	for x.Next() {
		if x.Type() != unix.NFTA_EXPR_DATA {
			continue
		}
		x.Nested(func(in *netlink.AttributeDecoder) error {
			in.ByteOrder = binary.BigEndian
			for in.Next() {
				switch in.Type() {
				case unix.NFTA_COUNTER_BYTES:
					n.Bytes = in.Uint64()
				case unix.NFTA_COUNTER_PACKETS:
					n.Packets = in.Uint64()
				}
			}
			return nil
		})
	}
	return nil
}

package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Element is a member of a set.
type Element struct {
	Key     []byte
	End     []byte        // of a range: its last key; nil: Key alone
	Jump    string        // of a verdict map: the chain to continue in
	Counter string        // of a map of counters: the counter
	Data    []byte        // of a map to data
	Timeout time.Duration // 0: none
}

// Name is the element's key as Elements lists it.
func (x Element) Name() string { return string(x.Key) + string(x.End) }

const elementEnd = 10 // NFTA_SET_ELEM_KEY_END

// AddElements adds elements to a set. An existing one is an error, unless the batch deletes it before.
func (b *Batch) AddElements(t Table, set string, elements ...Element) {
	b.elements(unix.NFT_MSG_NEWSETELEM, netlink.Create|netlink.Excl, t, set, elements)
}

// DeleteElements removes elements from a set. A missing one is an error.
func (b *Batch) DeleteElements(t Table, set string, elements ...Element) {
	b.elements(unix.NFT_MSG_DELSETELEM, 0, t, set, elements)
}

// ClearSet removes all elements from a set.
func (b *Batch) ClearSet(t Table, set string) {
	b.add(unix.NFT_MSG_DELSETELEM, 0, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
		e.String(unix.NFTA_SET_ELEM_LIST_SET, set)
	})
}

func (b *Batch) elements(kind uint16, flags netlink.HeaderFlags, t Table, set string, elements []Element) {
	// The list is one attribute, which cannot be longer than 64 KiB.
	const most = 512
	for len(elements) > 0 {
		part := elements[:min(most, len(elements))]
		elements = elements[len(part):]
		b.add(kind, flags, t.Family, func(e *netlink.AttributeEncoder) {
			e.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
			e.String(unix.NFTA_SET_ELEM_LIST_SET, set)
			e.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(in *netlink.AttributeEncoder) error {
				for _, x := range part {
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
	if x.End != nil {
		value(e, elementEnd, x.End)
	}
	if x.Jump != "" {
		e.Nested(unix.NFTA_SET_ELEM_DATA, verdictData(verdictJump, x.Jump))
	}
	if x.Data != nil {
		value(e, unix.NFTA_SET_ELEM_DATA, x.Data)
	}
	if x.Counter != "" {
		e.String(unix.NFTA_SET_ELEM_OBJREF, x.Counter)
	}
	if x.Timeout != 0 {
		e.Uint64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(x.Timeout.Milliseconds()))
	}
	return nil
}

// SomeElements lists the keys of a set once: where the set changes meanwhile, some may be missing. A missing set is an
// error.
func (c *Conn) SomeElements(t Table, set string) (keys map[string]bool, err error) {
	keys = map[string]bool{}
	_, err = c.eachElement(t, set, func(key, _ []byte) { keys[string(key)] = true })
	if err != nil {
		return nil, fmt.Errorf("table %s: listing the elements of the set %s: %w", t.Name, set, err)
	}
	return keys, nil
}

// Elements lists the keys of a set, with the data that a map has for them, each once, in any order. Of a range it lists
// the first key with the last one behind it. A missing set is an error.
func (c *Conn) Elements(t Table, set string, each func(key, data []byte)) error {
	all, err := Listed(set,
		func() (map[string][]byte, error) { return c.listElements(t, set) },
		func(a, b map[string][]byte) bool { return a != nil && b != nil && maps.EqualFunc(a, b, bytes.Equal) })
	if err != nil {
		return fmt.Errorf("table %s: %w", t.Name, err)
	}
	for key, data := range all {
		each([]byte(key), data)
	}
	return nil
}

// Listed lists the elements of a set until two listings in a row are the same. The kernel resumes a listing of several
// messages after so many elements, and does not say when the hash table was resized in between, which it does in the
// background after a transaction that adds many: then some elements are listed twice, others not at all
// (nft_rhash_walk).
func Listed[Elements any](set string, list func() (Elements, error), same func(a, b Elements) bool) (Elements, error) {
	const attempts = 20
	var last Elements
	for n := range attempts {
		current, err := list()
		if err != nil {
			return current, fmt.Errorf("listing the elements of the set %s: %w", set, err)
		}
		if n > 0 && same(current, last) {
			return current, nil
		}
		last = current
	}
	return last, fmt.Errorf("listing the elements of the set %s: no two of %d listings are the same", set, attempts)
}

// listElements lists the elements of a set once, as a map from key to data. It returns nil if an element is listed
// twice.
func (c *Conn) listElements(t Table, set string) (map[string][]byte, error) {
	all := map[string][]byte{}
	listed, err := c.eachElement(t, set, func(key, data []byte) { all[string(key)] = data })
	if err == nil && len(all) != listed {
		all = nil
	}
	return all, err
}

// eachElement calls each for each element that the kernel lists, and returns how many these were.
func (c *Conn) eachElement(t Table, set string, each func(key, data []byte)) (listed int, err error) {
	var b Batch
	b.add(unix.NFT_MSG_GETSETELEM, netlink.Dump, t.Family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_SET_ELEM_LIST_TABLE, t.Name)
		e.String(unix.NFTA_SET_ELEM_LIST_SET, set)
	})
	messages, err := c.dump(b.messages[0])
	for _, m := range messages {
		if err == nil {
			err = readElements(m.Data, func(key, data []byte) { each(key, data); listed++ })
		}
	}
	return listed, err
}

// readElements reads a message with elements.
func readElements(message []byte, each func(key, data []byte)) error {
	if len(message) < 4 {
		return errors.New("a message is cut short")
	}
	return attributes(message[4:], func(d *netlink.AttributeDecoder) error {
		if d.Type() != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return nil
		}
		return attributes(d.Bytes(), func(d *netlink.AttributeDecoder) error { return readElement(d.Bytes(), each) })
	})
}

func readElement(element []byte, each func(key, data []byte)) error {
	values := map[uint16][]byte{}
	err := attributes(element, func(d *netlink.AttributeDecoder) error {
		kind := d.Type()
		if kind != unix.NFTA_SET_ELEM_KEY && kind != unix.NFTA_SET_ELEM_DATA && kind != elementEnd {
			return nil
		}
		return attributes(d.Bytes(), func(d *netlink.AttributeDecoder) error {
			if d.Type() == unix.NFTA_DATA_VALUE {
				values[kind] = d.Bytes()
			}
			return nil
		})
	})
	if err == nil {
		each(slices.Concat(values[unix.NFTA_SET_ELEM_KEY], values[elementEnd]), values[unix.NFTA_SET_ELEM_DATA])
	}
	return err
}

// attributes reads attributes until one is in error.
func attributes(b []byte, each func(*netlink.AttributeDecoder) error) error {
	d, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for d.Next() {
		if err := each(d); err != nil {
			return err
		}
	}
	return d.Err()
}

package stack

import (
	"bytes"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
)

// set is a set or map of nftables.
type set struct {
	flags    uint32
	elements []element // once read is true
	read     bool
}

// element is an element of a set, with the verdict of a verdict map.
type element struct {
	key      []byte
	catchall bool // NFT_SET_ELEM_CATCHALL
	verdict  verdict
}

func decodeSet(data []byte) (id setID, s *set, ok bool) {
	attrs, family, ok := decoder(data)
	if !ok {
		return id, nil, false
	}
	id.family, s = family, &set{}
	for attrs.Next() {
		switch attrs.Type() {
		case unix.NFTA_SET_TABLE:
			id.table = attrs.String()
		case unix.NFTA_SET_NAME:
			id.name = attrs.String()
		case unix.NFTA_SET_FLAGS:
			s.flags = attrs.Uint32()
		}
	}
	return id, s, attrs.Err() == nil
}

// lookup looks a register up in a set or map.
func (e *evaluation) lookup(a attributes) (t truth, v []verdict, varying string) {
	id := setID{e.base.family, e.base.table, a.text(unix.NFTA_LOOKUP_SET)}
	s := e.sets[id]
	if s == nil {
		return unknown, nil, "looks into a set that gatewayd cannot read"
	}
	if s.flags&(unix.NFT_SET_TIMEOUT|unix.NFT_SET_EVAL) != 0 {
		return unknown, nil, "looks into the set " + id.name + ", whose elements come and go by themselves"
	}
	if e.err = e.readElements(s, id); e.err != nil {
		return unknown, nil, ""
	}
	bytes := 4
	if len(s.elements) > 0 {
		bytes = len(s.elements[0].key)
	}
	key := e.r.bytes(a.number(unix.NFTA_LOOKUP_SREG), uint32(bytes))
	found, varying := s.find(key)
	if varying != "" {
		return unknown, nil, matchWords(varying)
	}
	const inverted = 1 // NFT_LOOKUP_F_INV
	t = unknown
	switch {
	case len(found) == 0:
		t = never
	case len(found) == 1 && s.flags&unix.NFT_SET_INTERVAL == 0 && isCertain(key):
		t = always
	}
	if a.number(unix.NFTA_LOOKUP_FLAGS)&inverted != 0 {
		t = t.not()
	}
	if !a.has(unix.NFTA_LOOKUP_DREG) {
		return t, nil, ""
	}
	if dreg := a.number(unix.NFTA_LOOKUP_DREG); dreg != unix.NFT_REG_VERDICT {
		e.load(dreg, fixed("", 16))
		return t, nil, ""
	}
	for _, x := range found {
		if x.verdict.code&0xff == nfQueue {
			return t, nil, actionWords("queue")
		}
		v = append(v, x.verdict)
	}
	return t, v, ""
}

func isCertain(o []octet) bool { _, all := knownValue(o); return all }

// find returns the elements that a partly known key may match, and the part of the key on which that depends.
func (s *set) find(key []octet) (found []element, varying string) {
	if s.flags&(unix.NFT_SET_INTERVAL) != 0 || len(s.elements) == 0 || len(key) == 0 {
		return s.elements, whatVaries(key)
	}
	var rest []element
	for _, x := range s.elements {
		if x.catchall {
			rest = append(rest, x)
			continue
		}
		t, varies := equals(key, x.key)
		switch {
		case t == always:
			return []element{x}, ""
		case t == unknown:
			found = append(found, x)
			if varying == "" {
				varying = varies
			}
		}
	}
	return append(found, rest...), varying
}

// readElements reads a set's elements.
func (r *reading) readElements(s *set, id setID) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.read {
		return nil
	}
	s.elements, err = nftables.Listed(id.name,
		func() ([]element, error) { return listElements(r.conn, id) },
		func(a, b []element) bool { return slices.EqualFunc(a, b, sameKey) && !hasDuplicate(a) })
	s.read = err == nil
	return err
}

func sameKey(a, b element) bool { return bytes.Equal(a.key, b.key) }

// hasDuplicate reports whether a sorted list has an element twice.
func hasDuplicate(all []element) bool {
	return len(slices.CompactFunc(slices.Clone(all), sameKey)) < len(all)
}

// listElements reads a set's elements once, in the order of their keys.
func listElements(c *nftables.Conn, id setID) (all []element, err error) {
	e := netlink.NewAttributeEncoder()
	e.String(unix.NFTA_SET_ELEM_LIST_TABLE, id.table)
	e.String(unix.NFTA_SET_ELEM_LIST_SET, id.name)
	filter, err := e.Encode()
	if err != nil {
		return nil, err
	}
	messages, err := c.Dump(unix.NFT_MSG_GETSETELEM, nftables.Family(id.family), filter)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		attrs, _, ok := decoder(m.Data)
		for ok && attrs.Next() {
			if attrs.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				attrs.Nested(func(list *netlink.AttributeDecoder) error {
					all = append(all, decodeElements(list)...)
					return nil
				})
			}
		}
	}
	slices.SortFunc(all, func(a, b element) int { return bytes.Compare(a.key, b.key) })
	return all, nil
}

func decodeElements(list *netlink.AttributeDecoder) (all []element) {
	const catchall, intervalEnd = 2, 1 // NFT_SET_ELEM_CATCHALL, NFT_SET_ELEM_INTERVAL_END
	for list.Next() {
		a := fields(list.Bytes())
		flags := a.number(unix.NFTA_SET_ELEM_FLAGS)
		if flags&intervalEnd != 0 {
			continue
		}
		all = append(all, element{
			key: bytes.Clone(a.value(unix.NFTA_SET_ELEM_KEY)), catchall: flags&catchall != 0,
			verdict: a.verdict(unix.NFTA_SET_ELEM_DATA),
		})
	}
	return all
}

// Netlink attributes of nftables expressions, for the evaluation of rules (evaluate.go).

package stack

import (
	"encoding/binary"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// attributes are the netlink attributes of an nftables expression, not decoded yet.
type attributes map[uint16][]byte

func fields(data []byte) attributes {
	all := attributes{}
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return all
	}
	for d.Next() {
		all[d.Type()] = d.Bytes()
	}
	return all
}

func (a attributes) has(kind uint16) bool { _, found := a[kind]; return found }

// number returns an attribute that is a number in network order; 0 if there is none.
func (a attributes) number(kind uint16) uint32 {
	switch b := a[kind]; len(b) {
	case 1:
		return uint32(b[0])
	case 4:
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// text returns an attribute that is a string, without the zero byte at its end.
func (a attributes) text(kind uint16) string {
	b := a[kind]
	if len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}

// value returns the value that an attribute contains (NFTA_DATA_VALUE).
func (a attributes) value(kind uint16) []byte { return fields(a[kind])[unix.NFTA_DATA_VALUE] }

// verdict returns the verdict that an attribute contains (NFTA_DATA_VERDICT).
func (a attributes) verdict(kind uint16) verdict {
	in := fields(fields(a[kind])[unix.NFTA_DATA_VERDICT])
	return verdict{code: int32(in.number(unix.NFTA_VERDICT_CODE)), chain: in.text(unix.NFTA_VERDICT_CHAIN)}
}

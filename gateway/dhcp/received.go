package dhcp

import (
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Offsets of a message's fields, bytes (RFC 2131, figure 1).
const (
	atXID      = 4
	atFlags    = 10
	atCiaddr   = 12
	atYiaddr   = 16
	atSiaddr   = 20
	atGiaddr   = 24
	atHardware = 28
	atServer   = 44 // sname
	atFile     = 108
	atCookie   = 236
	atOptions  = 240
)

var cookie = []byte{99, 130, 83, 99}

// received is a DHCP message as it came. Clients err in single options, and a message is worth an answer
// without them: what cannot be read is as good as missing.
type received struct {
	bytes []byte   // the fields
	areas [][]byte // where options are, in the order of RFC 2131, 4.1: the options field, file, sname
}

// receive returns false for bytes that are no DHCP message: too short, or without the cookie. It does not copy.
func receive(b []byte) (received, bool) {
	if len(b) < atOptions || !slices.Equal(b[atCookie:atOptions], cookie) {
		return received{}, false
	}
	m := received{b, [][]byte{b[atOptions:]}}
	if overload := m.option(dhcpv4.OptionOptionOverload, 1); overload != nil {
		if overload[0]&1 != 0 {
			m.areas = append(m.areas, b[atFile:atCookie])
		}
		if overload[0]&2 != 0 {
			m.areas = append(m.areas, b[atServer:atFile])
		}
	}
	return m, true
}

// optionsOf returns the options of a code. One that is cut off ends its area, as does the area's end without an
// End option.
func (m received) optionsOf(code dhcpv4.OptionCode) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, area := range m.areas {
			for len(area) > 1 && area[0] != dhcpv4.OptionEnd.Code() {
				if area[0] == dhcpv4.OptionPad.Code() {
					area = area[1:]
					continue
				}
				end := 2 + int(area[1])
				if end > len(area) {
					break
				}
				if area[0] == code.Code() && !yield(area[2:end:end]) {
					return
				}
				area = area[end:]
			}
		}
	}
}

// option returns the first option of a code that has at least size bytes; nil: there is none.
func (m received) option(code dhcpv4.OptionCode, size int) []byte {
	for data := range m.optionsOf(code) {
		if len(data) >= size {
			return data
		}
	}
	return nil
}

// joinedOption returns an option that may come in parts (RFC 3396); nil: there is none, or it is empty. Of parts that
// make more than an answer could repeat as one, only the first counts.
func (m received) joinedOption(code dhcpv4.OptionCode) []byte {
	var whole []byte
	for part := range m.optionsOf(code) {
		whole = append(whole, part...)
	}
	if len(whole) > 255 {
		return m.option(code, 1)
	}
	return whole
}

// address returns an option's first address; the zero Addr: there is none.
func (m received) address(code dhcpv4.OptionCode) netip.Addr {
	if b := m.option(code, 4); b != nil {
		return netip.AddrFrom4([4]byte(b))
	}
	return netip.Addr{}
}

// kind is the message's type; 0: it has none.
func (m received) kind() dhcpv4.MessageType {
	if b := m.option(dhcpv4.OptionDHCPMessageType, 1); b != nil {
		return dhcpv4.MessageType(b[0])
	}
	return dhcpv4.MessageTypeNone
}

// maxReply is the length of the longest reply that its client takes, bytes of DHCP message.
func (m received) maxReply() int {
	size := minMessage
	if b := m.option(dhcpv4.OptionMaximumDHCPMessageSize, 2); b != nil {
		size = int(binary.BigEndian.Uint16(b))
	}
	return min(max(size, minMessage), maxMessage) - ipv4Len - udpLen
}

// field returns the address in a field.
func (m received) field(offset int) netip.Addr { return netip.AddrFrom4([4]byte(m.bytes[offset:])) }

package bindings

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/ndp"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// The types of neighbour discovery messages (RFC 4861, section 4).
const (
	RouterSolicitation    = 133
	RouterAdvertisement   = 134
	NeighborSolicitation  = 135
	NeighborAdvertisement = 136
	Redirect              = 137
)

const (
	ethernetLen = 14
	ipv6Len     = 40
	icmpv6      = 58
	hopLimit    = 255 // no router forwards a packet that has it
)

// Message is a neighbour discovery message in an Ethernet frame.
type Message struct {
	Type         uint8
	From         Anchor     // the frame's sender, and the message's where it names one
	Source, Dest netip.Addr // Source may be unspecified
	Target       netip.Addr // of neighbour solicitations and advertisements; otherwise zero
}

// Why Decode refuses a frame.
var (
	ErrNoMessage = errors.New("not a neighbour discovery message")
	ErrExtension = errors.New("an extension header before the message, which may be a fragment") // RFC 6980
	ErrForwarded = errors.New("the hop limit is not 255: the message is from another link")
	ErrMalformed = errors.New("malformed")
	ErrForged    = errors.New("names another MAC address than the frame's")
)

// Decode returns the message of an untagged Ethernet frame, with everything checked that RFC 4861 has a receiver check
// (sections 6.1.1, 7.1.1 and 7.1.2). Of router advertisements and redirects it checks hop limit and checksum alone: a
// client may send none. Errors wrap one of this package's.
func Decode(frame []byte) (Message, error) {
	m, body, err := decodeHeaders(frame)
	if err != nil {
		return Message{}, err
	}
	if m.Type == RouterAdvertisement || m.Type == Redirect {
		return m, nil
	}
	if body[1] != 0 {
		return Message{}, fmt.Errorf("%w: code %d", ErrMalformed, body[1])
	}
	if len(body) < 8 { // the reserved word of each of them
		return Message{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(body))
	}
	parsed, err := ndp.ParseMessage(body)
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	switch p := parsed.(type) {
	case *ndp.RouterSolicitation:
		err = m.checkOptions(p.Options, ndp.Source)
	case *ndp.NeighborSolicitation:
		m.Target = p.TargetAddress
		err = errors.Join(m.checkSolicitation(), m.checkOptions(p.Options, ndp.Source))
	case *ndp.NeighborAdvertisement:
		m.Target = p.TargetAddress
		err = errors.Join(m.checkAdvertisement(p.Solicited), m.checkOptions(p.Options, ndp.Target))
	}
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

// decodeHeaders returns the message without its target, and its ICMPv6 part, which has 4 bytes at least.
func decodeHeaders(frame []byte) (m Message, body []byte, err error) {
	from, ip, is6 := framelink.Split(frame)
	if !is6 || len(ip) < ipv6Len {
		return m, nil, ErrNoMessage
	}
	size, next := int(binary.BigEndian.Uint16(ip[4:])), ip[6]
	switch {
	case ip[0]>>4 != 6:
		return m, nil, ErrNoMessage
	case isExtension(next):
		return m, nil, ErrExtension
	case next != icmpv6 || size < 4 || size > len(ip)-ipv6Len:
		return m, nil, ErrNoMessage
	}
	body = ip[ipv6Len : ipv6Len+size] // what follows is padding
	m = Message{Type: body[0], From: from,
		Source: netip.AddrFrom16([16]byte(ip[8:24])), Dest: netip.AddrFrom16([16]byte(ip[24:40]))}
	switch {
	case m.Type < RouterSolicitation || m.Type > Redirect:
		return m, nil, ErrNoMessage
	case ip[7] != hopLimit:
		return m, nil, ErrForwarded
	case m.From.MAC[0]&1 != 0 || m.From.MAC == MAC{}:
		return m, nil, fmt.Errorf("%w: the sender is no host's MAC address", ErrMalformed)
	case !m.Source.IsUnspecified() && !isUnicast(m.Source):
		return m, nil, fmt.Errorf("%w: from %s", ErrMalformed, m.Source)
	case checksum(uint32(size)+icmpv6, ip[8:40], body) != 0:
		return m, nil, fmt.Errorf("%w: wrong checksum", ErrMalformed)
	}
	return m, body, nil
}

// isExtension reports whether a next header is an extension header (RFC 8200, section 4, and RFC 7045).
func isExtension(next uint8) bool {
	switch next {
	case 0, 43, 44, 50, 51, 60, 135, 139, 140, 253, 254:
		return true
	}
	return false
}

func (m Message) checkSolicitation() error {
	switch {
	case !isUnicast(m.Target):
		return fmt.Errorf("%w: the target is %s", ErrMalformed, m.Target)
	case m.Source.IsUnspecified() && m.Dest != solicitedNode(m.Target):
		return fmt.Errorf("%w: a probe of %s to %s", ErrMalformed, m.Target, m.Dest)
	}
	return nil
}

func (m Message) checkAdvertisement(solicited bool) error {
	switch {
	case !isUnicast(m.Target):
		return fmt.Errorf("%w: the target is %s", ErrMalformed, m.Target)
	case m.Source.IsUnspecified():
		return fmt.Errorf("%w: an advertisement from nobody", ErrMalformed)
	case solicited && m.Dest.IsMulticast():
		return fmt.Errorf("%w: an answer to a group", ErrMalformed)
	}
	return nil
}

// checkOptions checks the link-layer addresses of a message, which has them of one direction only.
func (m Message) checkOptions(options []ndp.Option, direction ndp.Direction) error {
	for _, o := range options {
		lla, is := o.(*ndp.LinkLayerAddress)
		switch {
		case !is || m.From.Session != 0: // PPP has no such addresses, whatever is named (RFC 5072, section 5)
		case lla.Direction != direction:
			return fmt.Errorf("%w: a link-layer address of the other direction", ErrMalformed)
		case m.Source.IsUnspecified():
			return fmt.Errorf("%w: a link-layer address of nobody", ErrMalformed)
		case MAC(lla.Addr) != m.From.MAC:
			return ErrForged
		}
	}
	return nil
}

// solicitedNode is the group to which solicitations for an address go (RFC 4291, section 2.7.1).
func solicitedNode(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// checksum is the Internet checksum of parts with an even length, but for the last, and of a number (RFC 1071). It is 0
// for parts that contain their checksum.
func checksum(sum uint32, parts ...[]byte) uint16 {
	for _, b := range parts {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

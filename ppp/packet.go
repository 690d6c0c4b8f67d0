package ppp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Protocol is a PPP frame's protocol field (RFC 1661, 2). In PPPoE it is never compressed.
type Protocol uint16

// Protocols, as assigned by IANA.
const (
	IPv4   Protocol = 0x0021
	IPv6   Protocol = 0x0057
	IPCP   Protocol = 0x8021 // RFC 1332
	IPV6CP Protocol = 0x8057 // RFC 5072
	LCP    Protocol = 0xc021 // RFC 1661
	PAP    Protocol = 0xc023 // RFC 1334
	CHAP   Protocol = 0xc223 // RFC 1994
)

// Code says what a control packet is. LCP has all codes, IPCP and IPV6CP those up to
// CodeReject.
type Code uint8

// Codes of LCP, IPCP and IPV6CP (RFC 1661, 5).
const (
	ConfigureRequest Code = 1 + iota
	ConfigureAck
	ConfigureNak
	ConfigureReject
	TerminateRequest
	TerminateAck
	CodeReject
	ProtocolReject
	EchoRequest
	EchoReply
	DiscardRequest
)

// Codes of PAP (RFC 1334, 2.2).
const (
	AuthenticateRequest Code = 1 + iota
	AuthenticateAck
	AuthenticateNak
)

// Codes of CHAP (RFC 1994, 4).
const (
	Challenge Code = 1 + iota
	Response
	Success
	Failure
)

const (
	protocolLen = 2 // bytes of a frame's protocol field
	headerLen   = 4 // bytes of a control packet: code, identifier, length
)

var errShort = errors.New("ends before its length")

// Packet is a packet of a control or authentication protocol.
type Packet struct {
	Code Code
	ID   uint8
	Data []byte // what follows the length; shared with the frame
}

// ParsePacket reads a packet. What follows its length is padding (RFC 1661, 5).
func ParsePacket(b []byte) (Packet, error) {
	if len(b) < headerLen {
		return Packet{}, fmt.Errorf("a control packet of %d bytes: %w", len(b), errShort)
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	if n < headerLen || n > len(b) {
		return Packet{}, fmt.Errorf("a control packet of %d bytes with the length %d: %w", len(b), n, errShort)
	}
	return Packet{Code(b[0]), b[1], b[headerLen:n]}, nil
}

// Append appends the packet's bytes.
func (p Packet) Append(b []byte) []byte {
	b = append(b, byte(p.Code), p.ID)
	b = binary.BigEndian.AppendUint16(b, uint16(headerLen+len(p.Data)))
	return append(b, p.Data...)
}

// Frame returns the PPP frame of a packet.
func Frame(proto Protocol, p Packet) []byte {
	return p.Append(binary.BigEndian.AppendUint16(make([]byte, 0, protocolLen+headerLen+len(p.Data)), uint16(proto)))
}

// SplitFrame returns a frame's protocol and what follows it. Protocol numbers are odd, with an
// even first byte (RFC 1661, 2).
func SplitFrame(b []byte) (Protocol, []byte, error) {
	if len(b) < protocolLen {
		return 0, nil, fmt.Errorf("a PPP frame of %d bytes: %w", len(b), errShort)
	}
	proto := Protocol(binary.BigEndian.Uint16(b))
	if proto&0x0101 != 1 {
		return 0, nil, fmt.Errorf("a PPP frame of the protocol %#04x: no protocol has this number", uint16(proto))
	}
	return proto, b[protocolLen:], nil
}

// Option is a configuration option of LCP, IPCP or IPV6CP (RFC 1661, 6).
type Option struct {
	Type uint8
	Data []byte
}

// optionLen is the length of an option's type and length.
const optionLen = 2

// ParseOptions reads the options of a Configure packet. They share memory with b.
func ParseOptions(b []byte) ([]Option, error) {
	var options []Option
	for len(b) > 0 {
		if len(b) < optionLen || int(b[1]) < optionLen || int(b[1]) > len(b) {
			return nil, fmt.Errorf("option %d: %w", b[0], errShort)
		}
		options = append(options, Option{b[0], b[optionLen:b[1]]})
		b = b[b[1]:]
	}
	return options, nil
}

// AppendOptions appends options in their order.
func AppendOptions(b []byte, options []Option) []byte {
	for _, o := range options {
		b = append(append(b, o.Type, uint8(optionLen+len(o.Data))), o.Data...)
	}
	return b
}

func option16(t uint8, v uint16) Option {
	return Option{t, binary.BigEndian.AppendUint16(nil, v)}
}

func option32(t uint8, v uint32) Option {
	return Option{t, binary.BigEndian.AppendUint32(nil, v)}
}

// ParseLabels reads values with a type and a length that does not include these two, as the tag
// of an access node has them (TR-101, R-124).
func ParseLabels(b []byte) ([]Option, error) {
	var options []Option
	for len(b) > 0 {
		if len(b) < optionLen || int(b[1]) > len(b)-optionLen {
			return nil, fmt.Errorf("label %d: %w", b[0], errShort)
		}
		options = append(options, Option{b[0], b[optionLen : optionLen+int(b[1])]})
		b = b[optionLen+int(b[1]):]
	}
	return options, nil
}

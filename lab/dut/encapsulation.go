package dut

import (
	"fmt"
	"strings"
)

// Header is one header or trailer that a tunnel adds to the packet that it carries (the inner packet).
type Header struct {
	Name   string
	Bytes  int  // its fixed length
	Padded bool // the tunnel encrypts it with the inner packet, so it counts for the padding
}

// Pad says how a tunnel pads the bytes that it encrypts. The zero value pads nothing.
type Pad struct {
	To    int  // pads to a multiple of this many bytes
	Least int  // the padding has at least this many bytes
	ByMTU bool // the padded length does not exceed the tunnel's MTU
}

// Encapsulation describes the packet that leaves a gateway (the outer packet): the headers that the tunnel adds to an
// inner packet, from the outside to the inside, without Ethernet's, and the padding. The zero value adds nothing.
//
// For a tunnel in a TCP connection (Stream) it describes an inner packet that is sent alone. Inner packets that are
// sent together share TCP segments: the first Inner headers then stand once in a segment, and the others once a packet.
type Encapsulation struct {
	Headers []Header
	Pad     Pad
	Stream  bool
	Inner   int // for Stream: the number of Headers that stand once in a segment
}

// OuterLink is the MTU of the link between the gateways: the largest outer packet, in bytes with its IP header.
const OuterLink = 1500

// Outer returns the length of the outer packet for an inner packet, both in bytes with their IP headers. mtu is the
// tunnel's MTU, which bounds the padding of some tunnels (Pad.ByMTU).
func (e Encapsulation) Outer(inner, mtu int) int {
	outside, padded := 0, inner
	for _, h := range e.Headers {
		if h.Padded {
			padded += h.Bytes
		} else {
			outside += h.Bytes
		}
	}
	if e.Pad.To == 0 {
		return outside + padded
	}
	filled := (padded + e.Pad.Least + e.Pad.To - 1) / e.Pad.To * e.Pad.To
	if e.Pad.ByMTU {
		filled = max(padded, min(filled, mtu))
	}
	return outside + filled
}

// MTU returns the length of the largest inner packet whose outer packet has at most outer bytes.
func (e Encapsulation) MTU(outer int) int {
	mtu := outer
	for mtu > 0 && e.Outer(mtu, mtu) > outer {
		mtu--
	}
	return mtu
}

// String lists the headers with their bytes, and the padding: "IPv4 20 + UDP 8 + …".
func (e Encapsulation) String() string {
	if len(e.Headers) == 0 {
		return "nothing"
	}
	var parts []string
	for _, h := range e.Headers {
		part := fmt.Sprintf("%s %d", h.Name, h.Bytes)
		if h.Padded {
			part += " (filled up)"
		}
		parts = append(parts, part)
	}
	text := strings.Join(parts, " + ")
	if e.Pad.To > 0 {
		text += fmt.Sprintf("; filled up to a multiple of %d", e.Pad.To)
		if e.Pad.Least > 0 {
			text += fmt.Sprintf(" by at least %d", e.Pad.Least)
		}
		if e.Pad.ByMTU {
			text += ", not beyond the MTU"
		}
	}
	return text
}

// Headers that several tunnels have.
var (
	ipv4 = Header{Name: "IPv4", Bytes: 20}
	udp  = Header{Name: "UDP", Bytes: 8}
	tcp  = Header{Name: "TCP with time stamps", Bytes: 32}
)

package dut

import (
	"fmt"
	"strings"
)

// Header is a part of a tunnel's outer packet besides the packet that it carries.
type Header struct {
	Name  string
	Bytes int // always the same number
	// Padded: it is filled up to a multiple of Pad.To together with the packet that it stands beside.
	Padded bool
}

// Pad is how a tunnel fills up what it encrypts. The zero value fills nothing up.
type Pad struct {
	To    int  // a multiple of so many bytes,
	Least int  // by at least so many
	ByMTU bool // but to no more than the tunnel's MTU
}

// Encapsulation is what a tunnel puts around each packet: its headers from the outside to the inside, as they leave the
// gateway, without Ethernet's. The zero value carries packets as they are.
//
// Where the tunnel is a TCP connection (Stream), this is what a packet that is sent alone takes. Packets that are sent
// together share segments: then the headers before Inner stand once in each segment.
type Encapsulation struct {
	Headers []Header
	Pad     Pad
	Stream  bool
	Inner   int // Stream: how many of Headers stand once in a segment; those after them are each packet's own
}

// OuterLink is the largest packet on the link between the gateways, bytes with its IP header.
const OuterLink = 1500

// Outer is the length of the outer packet around an inner one, both with their IP headers, in a tunnel with a given
// MTU.
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

// MTU is the length of the largest inner packet whose outer one has at most so many bytes.
func (e Encapsulation) MTU(outer int) int {
	mtu := outer
	for mtu > 0 && e.Outer(mtu, mtu) > outer {
		mtu--
	}
	return mtu
}

// String is the sum in words: "IPv4 20 + UDP 8 + …".
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

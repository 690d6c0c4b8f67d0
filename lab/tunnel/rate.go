// Package tunnel says what a tunnel leaves of a link's rate to the payload of a TCP connection, from headers alone.
package tunnel

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes of headers.
const (
	// LinkHeader is what the lab's links count of a frame beside its packet: the Ethernet header. Preamble (8 bytes),
	// frame check sequence (4) and gap (12), which a cable carries too, do not exist on them.
	LinkHeader = 14
	// StudyHeader is what study 4 counts: Ethernet header and frame check sequence.
	StudyHeader = 18

	IPv4       = 20
	TCP        = 20
	TimeStamps = 12 // TCP's option with its padding, in each segment of Linux (RFC 7323)
)

// Packet is a full packet of a connection in a tunnel, as it leaves the gateway.
type Packet struct {
	Inner   int     // of the connection, bytes with its IP header: the tunnel's MTU
	Outer   float64 // around it, bytes with its IP header: a whole number, but of a tunnel whose packets share segments
	Options int     // of TCP, bytes
	Link    int     // bytes of the frame beside the outer packet
}

// Payload is what the packet carries for the connection, bytes.
func (p Packet) Payload() int { return p.Inner - IPv4 - TCP - p.Options }

// Share is the payload's share of the link's bytes.
func (p Packet) Share() float64 {
	if p.Payload() <= 0 || p.Outer <= 0 {
		return 0
	}
	return float64(p.Payload()) / (p.Outer + float64(p.Link))
}

// Mbps is the useful rate of a link of so many Mbit/s.
func (p Packet) Mbps(link float64) float64 { return link * p.Share() }

// Formula is the sum in words: "(1464 - 20 - 20 - 12) / (1500 + 14)".
func (p Packet) Formula() string {
	parts := []string{strconv.Itoa(p.Inner), strconv.Itoa(IPv4), strconv.Itoa(TCP)}
	if p.Options > 0 {
		parts = append(parts, strconv.Itoa(p.Options))
	}
	return fmt.Sprintf("(%s) / (%s + %d)", strings.Join(parts, " − "), strconv.FormatFloat(p.Outer, 'f', -1, 64), p.Link)
}

// Shared is the outer bytes of a packet in a tunnel that is a TCP connection: packets, each with own bytes of headers,
// follow each other in segments of at most outer bytes, of which headers are head.
func Shared(inner, packetHeaders, head, outer, link int) float64 {
	return float64(inner+packetHeaders)*float64(outer+link)/float64(outer-head) - float64(link)
}

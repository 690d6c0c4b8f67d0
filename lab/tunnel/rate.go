// Package tunnel computes which part of a link's rate a tunnel leaves for the payload of a TCP connection. It uses the
// lengths of headers alone, without any measurement: reports show the result as "theory".
package tunnel

import (
	"fmt"
	"strconv"
	"strings"
)

// Bytes of headers.
const (
	// LinkHeader is the Ethernet header, the only bytes of a frame besides its packet that the lab's virtual links count.
	// A cable also carries preamble (8 bytes), frame check sequence (4) and gap (12).
	LinkHeader = 14
	// StudyHeader is the Ethernet header with the frame check sequence, as study 4 counts frames.
	StudyHeader = 18

	IPv4       = 20
	TCP        = 20
	TimeStamps = 12 // TCP's option with its padding, in each segment of Linux (RFC 7323)
)

// Packet holds the lengths of a full packet of a TCP connection in a tunnel, as it leaves the gateway. Lengths are in
// bytes.
type Packet struct {
	Inner   int     // the connection's packet, with its IP header
	Outer   float64 // the tunnel's packet around it, with its IP header; a mean where packets share segments: see Shared
	Options int     // TCP options in the inner packet
	Link    int     // bytes of a frame besides the outer packet: LinkHeader or StudyHeader
}

// Payload is the TCP payload of the packet, bytes.
func (p Packet) Payload() int { return p.Inner - IPv4 - TCP - p.Options }

// Share is the payload's share of the link's bytes.
func (p Packet) Share() float64 {
	if p.Payload() <= 0 || p.Outer <= 0 {
		return 0
	}
	return float64(p.Payload()) / (p.Outer + float64(p.Link))
}

// Mbps is the payload rate on a link with a rate of link, both Mbit/s.
func (p Packet) Mbps(link float64) float64 { return link * p.Share() }

// Formula is Share as a formula for reports: "(1464 − 20 − 20 − 12) / (1500 + 14)".
func (p Packet) Formula() string {
	parts := []string{strconv.Itoa(p.Inner), strconv.Itoa(IPv4), strconv.Itoa(TCP)}
	if p.Options > 0 {
		parts = append(parts, strconv.Itoa(p.Options))
	}
	return fmt.Sprintf("(%s) / (%s + %d)", strings.Join(parts, " − "), strconv.FormatFloat(p.Outer, 'f', -1, 64), p.Link)
}

// Shared returns the mean length of an outer packet (Packet.Outer) for a tunnel in a TCP connection, bytes. Inner
// packets of inner bytes, each with packetHeaders bytes of the tunnel's headers, follow each other in the stream
// without gaps. The stream is sent in full segments: IP packets of outer bytes with segmentHeaders bytes of headers,
// each in a frame with link further bytes.
func Shared(inner, packetHeaders, segmentHeaders, outer, link int) float64 {
	return float64(inner+packetHeaders)*float64(outer+link)/float64(outer-segmentHeaders) - float64(link)
}

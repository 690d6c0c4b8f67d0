package nfqueue

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/nfqueue/queue"
)

// capture brings strangers' HTTP to the portal, from behind the routing: the kernel
// notes where a packet was going and drops it, and a copy is sent to the portal with
// the stranger's own address. Rules give the answers the address that was wanted.
type capture struct {
	raw    int // a raw socket
	portal netip.AddrPort
	kept   []*queue.Packet // of one turn

	// heard is when a port of a stranger was last heard of: what the kernel notes,
	// which has room for some hundred strangers who want all they can have.
	heard map[[addressSize]byte]map[uint16]int64
	swept int64 // when heard was last looked through
}

// soughtEach bounds the connections of one stranger to the portal that are noted at a
// time, for each queue.
const soughtEach = 256

func newCapture(portal netip.AddrPort) (*capture, error) {
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("opening a socket towards the portal: %w", err)
	}
	return &capture{raw: raw, portal: portal, heard: map[[addressSize]byte]map[uint16]int64{}}, nil
}

func (c *capture) close() error { return unix.Close(c.raw) }

// hasRoom reports whether a stranger's packet is of a connection that is known, or of
// one more that it may have. now is admission.Now.
func (c *capture) hasRoom(b []byte, now int64) bool {
	const ipHeader = 20
	if len(b) < ipHeader || len(b) < int(b[0]&15)*4+portSize {
		return true // redirect has no use for it
	}
	c.sweep(now)
	stranger, port := [addressSize]byte(b[sender:]), binary.BigEndian.Uint16(b[int(b[0]&15)*4+senderPort:])
	ports := c.heard[stranger]
	if ports == nil {
		ports = map[uint16]int64{}
		c.heard[stranger] = ports
	}
	if _, known := ports[port]; !known && len(ports) >= soughtEach {
		forgetSilent(ports, now)
		if len(ports) >= soughtEach {
			return false
		}
	}
	ports[port] = now
	return true
}

// sweep forgets strangers who are silent, now and then.
func (c *capture) sweep(now int64) {
	if now < c.swept+soughtLife.Nanoseconds() {
		return
	}
	c.swept = now
	for stranger, ports := range c.heard {
		if forgetSilent(ports, now); len(ports) == 0 {
			delete(c.heard, stranger)
		}
	}
}

func forgetSilent(ports map[uint16]int64, now int64) {
	maps.DeleteFunc(ports, func(_ uint16, heard int64) bool { return now >= heard+soughtLife.Nanoseconds() })
}

// keep keeps a packet until all of its turn have their verdicts.
func (c *capture) keep(p *queue.Packet) { c.kept = append(c.kept, p) }

// send sends the packets that were kept. One that is lost comes again.
func (c *capture) send() {
	for _, p := range c.kept {
		if redirect(p.Data, p.Length, c.portal) {
			unix.Sendto(c.raw, p.Data, 0, &unix.SockaddrInet4{Addr: c.portal.Addr().As4()})
		}
	}
	c.kept = c.kept[:0]
}

// redirect gives a TCP segment another destination. It reports whether it could: not
// for fragments, nor when not all of the packet is there. The IP header's sum is left
// to the kernel.
func redirect(b []byte, length int, to netip.AddrPort) bool {
	const ipHeader, tcpHeader, fragment, sum = 20, 20, 0x3fff, 16
	if len(b) < ipHeader || len(b) != length || binary.BigEndian.Uint16(b[6:])&fragment != 0 {
		return false
	}
	header := int(b[0]&15) * 4
	if header < ipHeader || len(b) < header+tcpHeader || b[9] != unix.IPPROTO_TCP {
		return false
	}
	addr := to.Addr().As4()
	copy(b[receiver:], addr[:])
	segment := b[header:]
	binary.BigEndian.PutUint16(segment[receiverPort:], to.Port())
	binary.BigEndian.PutUint16(segment[sum:], 0)
	binary.BigEndian.PutUint16(segment[sum:], checksum(segment, uint32(unix.IPPROTO_TCP)+uint32(len(segment)), b[sender:sender+2*addressSize]))
	return true
}

// checksum is that of RFC 9293, 3.1, over a segment and its pseudo-header: the two
// addresses, and the sum of the rest.
func checksum(segment []byte, sum uint32, addresses []byte) uint16 {
	for _, b := range [][]byte{addresses, segment} {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint32(b[0])<<8 | uint32(b[1])
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

package nfqueue

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/compared/nfqueue/queue"
)

// capture brings HTTP of unauthenticated clients to the portal, after the routing decision: the kernel records where a
// packet was going and drops it, and a copy with the client's own address is sent to the portal. Rules restore the
// requested address in the answers.
type capture struct {
	raw    int // a raw socket
	portal netip.AddrPort
	batch  []*queue.Packet // of one batch

	// portSeen is when a port of a client was last seen. It mirrors what the kernel records, which has space for some
	// hundred clients with as many connections as they may have.
	portSeen map[[addressSize]byte]map[uint16]int64
	swept    int64 // when old entries of portSeen were last removed
}

// soughtEach bounds the recorded connections of one unauthenticated client to the portal, for each queue.
const soughtEach = 256

func newCapture(portal netip.AddrPort) (*capture, error) {
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("opening a socket towards the portal: %w", err)
	}
	return &capture{raw: raw, portal: portal, portSeen: map[[addressSize]byte]map[uint16]int64{}}, nil
}

func (c *capture) close() error { return unix.Close(c.raw) }

// hasRoom reports whether a packet belongs to a recorded connection, or to a new one that the client may have. now is
// admission.Now.
func (c *capture) hasRoom(b []byte, now int64) bool {
	const ipHeader = 20
	if len(b) < ipHeader || len(b) < int(b[0]&15)*4+portSize {
		return true // redirect ignores it
	}
	c.sweep(now)
	client, port := [addressSize]byte(b[sender:]), binary.BigEndian.Uint16(b[int(b[0]&15)*4+senderPort:])
	ports := c.portSeen[client]
	if ports == nil {
		ports = map[uint16]int64{}
		c.portSeen[client] = ports
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

// sweep forgets silent clients, from time to time.
func (c *capture) sweep(now int64) {
	if now < c.swept+soughtLife.Nanoseconds() {
		return
	}
	c.swept = now
	for client, ports := range c.portSeen {
		if forgetSilent(ports, now); len(ports) == 0 {
			delete(c.portSeen, client)
		}
	}
}

func forgetSilent(ports map[uint16]int64, now int64) {
	maps.DeleteFunc(ports, func(_ uint16, heard int64) bool { return now >= heard+soughtLife.Nanoseconds() })
}

// hold keeps a packet until the whole batch has its verdicts.
func (c *capture) hold(p *queue.Packet) { c.batch = append(c.batch, p) }

// send sends the kept packets. A lost one is retransmitted by the client.
func (c *capture) send() {
	for _, p := range c.batch {
		if redirect(p.Data, p.Length, c.portal) {
			unix.Sendto(c.raw, p.Data, 0, &unix.SockaddrInet4{Addr: c.portal.Addr().As4()})
		}
	}
	c.batch = c.batch[:0]
}

// redirect changes the destination of a TCP segment. It returns false for fragments and incomplete packets. The kernel
// computes the IP header's checksum.
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
	binary.BigEndian.PutUint16(
		segment[sum:], checksum(segment, uint32(unix.IPPROTO_TCP)+uint32(len(segment)), b[sender:sender+2*addressSize]))
	return true
}

// checksum is that of RFC 9293, 3.1, over a segment and its pseudo-header: the two addresses, and the sum of the rest.
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

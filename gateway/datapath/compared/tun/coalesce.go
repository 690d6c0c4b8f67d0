package tun

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Limits of aggregation: how many flows at once, and how many packets of a flow. These are enough for the longest IP
// packet of full segments.
const (
	maxRuns     = 16
	maxSegments = 64
)

// leastTCP is the length of the shortest TCP packets that are aggregated, bytes. Linux 6.1 silently drops an aggregated
// packet with 12 bytes of options and segments of at most 8 bytes of payload, where the interface does not split
// packets itself; longer segments were measured to pass. This leaves room for 40 bytes of options.
const leastTCP = 128

// coalescer aggregates consecutive packets of each TCP connection and UDP flow in a batch into one packet, which the
// kernel splits again where it leaves the machine. The work for each packet on the way is then done once. Packets of a
// flow stay in order. The packets' memory must not change until flush.
type coalescer struct {
	fd          int  // a queue of the TUN device, or the LAN's packet socket
	headerBytes int  // bytes of Ethernet header before a packet: 0 for the device
	udp         bool // this kernel accepts aggregated UDP
	srcMAC      [6]byte

	runs   [maxRuns]run
	used   int
	recent int // the run that took the last packet
	unsent int // packets that could not be sent since this was read
	head   [virtioLen + ethernetLen]byte
}

// run is the consecutive packets of one flow that are aggregated so far.
type run struct {
	flow     flow
	dstMAC   datapath.MAC
	first    []byte // packet
	v        virtio
	headers  int // bytes of IP and transport header
	size     int // bytes of payload of each segment but the last
	payload  int // total bytes
	seq      uint32
	segments int
	pushed   bool // the last packet has PSH
	closed   bool // by PSH, or by a short packet
	head     [virtioLen + ethernetLen + 60 + 60]byte
	vec      [1 + maxSegments]unix.Iovec
}

// flow is what packets of a connection have in common; the zero value is no flow.
type flow struct {
	addrs    uint64
	ports    uint32
	protocol uint8
}

// add adds a packet that may be sent; v's offsets count from its beginning. Its memory is read until flush.
func (c *coalescer) add(ip []byte, v virtio, to datapath.MAC) {
	f, headers := flowOf(ip)
	r := c.runOf(f)
	if r != nil && r.dstMAC == to && r.append(ip, v, headers) {
		return
	}
	if r != nil {
		c.end(r)
	} else if f.protocol == 0 && (ip[9] == protocolTCP || ip[9] == protocolUDP) {
		c.flush() // for example a fragment, whose flow is unknown
	}
	if f.protocol == 0 || headers == 0 || !c.mayGrow(ip, v, headers) {
		c.sendOne(ip, v, to)
		return
	}
	if c.used == maxRuns {
		c.flush()
	}
	c.recent = c.used
	c.used++
	c.runs[c.recent].begin(f, ip, v, headers, to)
}

// runOf returns the run of a flow.
func (c *coalescer) runOf(f flow) *run {
	if f.protocol == 0 || c.used == 0 {
		return nil
	}
	if r := &c.runs[c.recent]; r.flow == f {
		return r
	}
	for i := range c.used {
		if r := &c.runs[i]; r.flow == f {
			c.recent = i
			return r
		}
	}
	return nil
}

// flush sends everything that was aggregated.
func (c *coalescer) flush() {
	for i := range c.used {
		c.end(&c.runs[i])
	}
	c.used, c.recent = 0, 0
}

// flowOf returns a packet's flow and the length of its headers; the zero flow for fragments, options, and other
// protocols.
func flowOf(ip []byte) (f flow, headers int) {
	if ip[0] != 0x45 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 {
		return flow{}, 0
	}
	switch {
	case ip[9] == protocolTCP && len(ip) >= ipLen+tcpLen:
		headers = ipLen + int(ip[ipLen+12]>>4)*4
		if headers < ipLen+tcpLen || headers > len(ip) {
			return flow{}, 0
		}
	case ip[9] == protocolUDP && len(ip) >= ipLen+udpLen:
		headers = ipLen + udpLen
	default:
		return flow{}, 0
	}
	return flow{binary.NativeEndian.Uint64(ip[12:]), binary.NativeEndian.Uint32(ip[ipLen:]), ip[9]}, headers
}

// mayGrow reports whether a packet can be the first of several: it has payload, no flag that needs attention, must not
// be fragmented, and its checksum is right or left for later.
func (c *coalescer) mayGrow(ip []byte, v virtio, headers int) bool {
	if len(ip) == headers || v.gso != unix.VIRTIO_NET_HDR_GSO_NONE || ip[6]&0x40 == 0 {
		return false
	}
	if ip[9] == protocolUDP {
		udp := ip[ipLen:]
		return c.udp && int(binary.BigEndian.Uint16(udp[4:])) == len(udp) &&
			binary.BigEndian.Uint16(udp[udpChecksum:]) != 0 && sumIsRight(ip, v)
	}
	return len(ip) >= leastTCP && ip[ipLen+13]&^flagPSH == flagACK && sumIsRight(ip, v)
}

// sumIsRight reports whether a packet's transport checksum is right, or left for later.
func sumIsRight(ip []byte, v virtio) bool {
	if v.flags&(unix.VIRTIO_NET_HDR_F_NEEDS_CSUM|unix.VIRTIO_NET_HDR_F_DATA_VALID) != 0 {
		return true
	}
	return fold(sum(ip[ipLen:], pseudo(ip, len(ip)-ipLen))) == 0xffff
}

// begin makes a packet the first of a run.
func (r *run) begin(f flow, ip []byte, v virtio, headers int, to datapath.MAC) {
	r.flow, r.first, r.v, r.dstMAC, r.headers = f, ip, v, to, headers
	r.size, r.payload, r.segments = len(ip)-headers, len(ip)-headers, 1
	r.pushed = f.protocol == protocolTCP && ip[ipLen+13]&flagPSH != 0
	r.closed = r.pushed
	if f.protocol == protocolTCP {
		r.seq = binary.BigEndian.Uint32(ip[ipLen+4:]) + uint32(r.payload)
	}
	r.vec[1] = iovec(ip[headers:])
}

// append adds a packet for the same station to a run, if it is the run's next segment.
func (r *run) append(ip []byte, v virtio, headers int) bool {
	n := len(ip) - headers
	if r.closed || headers != r.headers || n == 0 || n > r.size || r.segments == maxSegments ||
		v.gso != unix.VIRTIO_NET_HDR_GSO_NONE {
		return false
	}
	if number := uint16(r.segments) + binary.BigEndian.Uint16(r.first[4:]); number != binary.BigEndian.Uint16(ip[4:]) {
		return false
	}
	if headers+r.payload+n > maxPacket || !sameHeaders(r.first, ip, headers) || !sumIsRight(ip, v) {
		return false
	}
	if r.flow.protocol == protocolTCP {
		if binary.BigEndian.Uint32(ip[ipLen+4:]) != r.seq {
			return false
		}
		r.pushed = ip[ipLen+13]&flagPSH != 0
		r.seq += uint32(n)
	} else if udp := ip[ipLen:]; int(binary.BigEndian.Uint16(udp[4:])) != len(udp) ||
		binary.BigEndian.Uint16(udp[udpChecksum:]) == 0 {
		return false
	}
	r.closed = r.pushed || n < r.size
	r.segments++
	r.payload += n
	r.vec[r.segments] = iovec(ip[headers:])
	return true
}

// sameHeaders compares a packet's headers with those of the first packet, except fields that differ by segment:
// lengths, IP identification, checksums, sequence, PSH. Kernels number the segments they make consecutively.
func sameHeaders(first, ip []byte, headers int) bool {
	const tosOnly, ttlAndProtocol = 1, 8
	if first[tosOnly] != ip[tosOnly] || ip[0] != 0x45 || ip[6] != first[6] || ip[7] != first[7] ||
		binary.NativeEndian.Uint16(first[ttlAndProtocol:]) != binary.NativeEndian.Uint16(ip[ttlAndProtocol:]) {
		return false
	}
	if ip[9] == protocolUDP {
		return true
	}
	const ackAt, lengthAt, flagsAt, windowAt = ipLen + 8, ipLen + 12, ipLen + 13, ipLen + 14
	if first[lengthAt] != ip[lengthAt] || binary.NativeEndian.Uint32(first[ackAt:]) != binary.NativeEndian.Uint32(
		ip[ackAt:]) || ip[flagsAt]&^flagPSH != flagACK ||
		binary.NativeEndian.Uint16(first[windowAt:]) != binary.NativeEndian.Uint16(ip[windowAt:]) {
		return false
	}
	return string(first[ipLen+tcpLen:headers]) == string(ip[ipLen+tcpLen:headers]) // does not allocate
}

// end sends a run and removes it.
func (c *coalescer) end(r *run) {
	switch {
	case r.flow.protocol == 0: // was sent before
		return
	case r.segments == 1:
		c.sendOne(r.first, r.v, r.dstMAC)
	default:
		c.sendRun(r)
	}
	r.flow = flow{}
}

// sendRun sends a run of several packets as one packet.
func (c *coalescer) sendRun(r *run) {
	start := virtioLen + c.headerBytes
	head := r.head[:start+r.headers]
	ip := head[start:]
	copy(ip, r.first[:r.headers])
	total := r.headers + r.payload
	binary.BigEndian.PutUint16(ip[2:], uint16(total))
	sumHeader(ip)
	v := virtio{
		flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, headers: uint16(c.headerBytes + r.headers), size: uint16(r.size),
		sumStart: uint16(c.headerBytes + ipLen),
	}
	if r.flow.protocol == protocolTCP {
		v.gso, v.sumOffset = unix.VIRTIO_NET_HDR_GSO_TCPV4, tcpChecksum
		if r.pushed {
			ip[ipLen+13] |= flagPSH
		}
	} else {
		v.gso, v.sumOffset = unix.VIRTIO_NET_HDR_GSO_UDP_L4, udpChecksum
		binary.BigEndian.PutUint16(ip[ipLen+4:], uint16(total-ipLen))
	}
	binary.BigEndian.PutUint16(ip[ipLen+int(v.sumOffset):], fold(pseudo(ip, total-ipLen)))
	v.write(head)
	c.ethernet(head, r.dstMAC)
	r.vec[0] = iovec(head)
	if writeAll(c.fd, r.vec[:1+r.segments]) < 0 {
		c.unsent += r.segments
	}
}

// sendOne sends one packet unchanged.
func (c *coalescer) sendOne(ip []byte, v virtio, to datapath.MAC) {
	lost := max(1, v.segments(ip))
	head := c.head[:virtioLen+c.headerBytes]
	v.flags &= unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	if v.flags != 0 {
		v.sumStart += uint16(c.headerBytes)
	}
	if v.headers != 0 {
		v.headers += uint16(c.headerBytes)
	}
	v.write(head)
	c.ethernet(head, to)
	if writeTwo(c.fd, head, ip) < 0 {
		c.unsent += lost
	}
}

// ethernet writes the Ethernet header after a virtio header, where one is needed.
func (c *coalescer) ethernet(b []byte, to datapath.MAC) {
	if c.headerBytes == 0 {
		return
	}
	b = b[virtioLen:]
	copy(b, to[:])
	copy(b[6:], c.srcMAC[:])
	b[12], b[13] = 8, 0
}

func iovec(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b)) // Len has another type on 32-bit machines
	return v
}

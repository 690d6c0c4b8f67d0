package send

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// MAC is a hardware address.
type MAC [6]byte

// String is the usual notation, "02:67:77:61:00:01".
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Stream is a sequence of frames that share their addresses: UDP over IPv4 or IPv6 over Ethernet.
type Stream struct {
	SrcMAC, DstMAC MAC
	Src, Dst       netip.AddrPort
}

const (
	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	dontFragment  = 0x4000
	ttl           = 64
	protocolUDP   = 17
)

// is6 reports whether the frames are IPv6.
func (s Stream) is6() bool { return s.Src.Addr().Is6() }

// heads makes the head of each stream. A frame is a head, a stamp (magic number, number and time), and filler. Streams
// of both families use the same buffers in turn, where the stamp of an IPv6 frame lies on bytes that IPv4 frames have
// as filler: then the heads of IPv4 have these bytes too (Shares), and write puts them back.
func heads(streams []Stream, f *filler) (list []programsHead, err error) {
	with6 := slices.ContainsFunc(streams, Stream.is6)
	for i, s := range streams {
		h, err := s.head(f)
		if err != nil {
			return nil, fmt.Errorf("stream %d: %w", i, err)
		}
		if with6 && !s.is6() {
			h.Shares = 1
			copy(h.Bytes[frames.MinBytes:], f.bytes[frames.MinBytes:frames.MinBytes6])
		}
		list = append(list, h)
	}
	return list, nil
}

// minBytes is the length of the shortest frame of streams with these heads.
func minBytes(list []programsHead) int {
	if slices.ContainsFunc(list, func(h programsHead) bool { return h.V6 != 0 }) {
		return frames.MinBytes6
	}
	return frames.MinBytes
}

// head is the common beginning of all frames of the stream. Its lengths and checksums are 0.
func (s Stream) head(f *filler) (h programsHead, err error) {
	if !s.Src.Addr().IsValid() || s.Src.Addr().Is4() != s.Dst.Addr().Is4() || s.Dst.Addr().Is4In6() {
		return h, fmt.Errorf("%s to %s: both addresses must be IPv4, or both IPv6", s.Src, s.Dst)
	}
	if s.DstMAC == (MAC{}) {
		return h, errors.New("no destination MAC address: name the router's, or the receiver's on a direct link")
	}
	if s.is6() {
		return s.head6(f), nil
	}
	b, src, dst := h.Bytes[:0], s.Src.Addr().As4(), s.Dst.Addr().As4()
	b = append(append(b, s.DstMAC[:]...), s.SrcMAC[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv4)
	b = append(b, 0x45, 0, 0, 0, 0, 0) // version and header length; service, length, identification
	b = binary.BigEndian.AppendUint16(b, dontFragment)
	b = append(append(append(b, ttl, protocolUDP, 0, 0), src[:]...), dst[:]...)
	b = binary.BigEndian.AppendUint16(b, s.Src.Port())
	binary.BigEndian.AppendUint16(b, s.Dst.Port()) // length and checksum follow: 0
	ip := h.Bytes[frames.EthernetBytes:][:frames.IPv4Bytes]
	h.IpSum = wordSum(ip)
	// The pseudo-header is addresses and protocol (RFC 768); the length comes with each frame.
	h.UdpSum = wordSum(ip[12:]) + wordSum([]byte{0, protocolUDP}) +
		wordSum(h.Bytes[frames.EthernetBytes+frames.IPv4Bytes:])
	return h, nil
}

// head6 is head of a stream of IPv6 (RFC 8200).
func (s Stream) head6(f *filler) (h programsHead) {
	b, src, dst := h.Bytes[:0], s.Src.Addr().As16(), s.Dst.Addr().As16()
	b = append(append(b, s.DstMAC[:]...), s.SrcMAC[:]...)
	b = binary.BigEndian.AppendUint16(b, etherTypeIPv6)
	b = append(b, 0x60, 0, 0, 0, 0, 0, protocolUDP, ttl) // version, class and flow label; length; next header, hop limit
	b = append(append(b, src[:]...), dst[:]...)
	b = binary.BigEndian.AppendUint16(b, s.Src.Port())
	binary.BigEndian.AppendUint16(b, s.Dst.Port())
	h.V6 = 1
	ip := h.Bytes[frames.EthernetBytes:]
	// The pseudo-header is addresses and next header (RFC 8200, 8.1). f.sums count from byte 60 on, but an IPv6 frame's
	// filler begins behind its stamp: the complement takes away the bytes between.
	h.UdpSum = wordSum(ip[8:frames.IPv6Bytes]) + wordSum([]byte{0, protocolUDP}) +
		wordSum(ip[frames.IPv6Bytes:][:frames.UDPBytes]) + uint32(^f.sums[frames.MinBytes6])
	return h
}

// wordSum adds up 16-bit words as they lie in memory, an odd last byte with a zero behind it. The Internet
// checksum is the same in either byte order (RFC 1071).
func wordSum(b []byte) (sum uint32) {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.NativeEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(binary.NativeEndian.Uint16([]byte{b[0], 0}))
	}
	return sum
}

// foldChecksum makes 16 bits of a sum of 16-bit words.
func foldChecksum(sum uint64) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// filler is the payload behind the stamp, from the frame's byte 60 on, with the sum of its beginning in frames of each
// size. Random bytes: a tunnel that compresses must not look cheap.
type filler struct {
	bytes [frames.MaxBytes]byte // a whole frame's length; the first 60 are 0
	sums  [frames.MaxBytes + 1]uint16
}

func newFiller() *filler {
	f := &filler{}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(f.bytes[frames.MinBytes:]) // never fails
	for n := frames.MinBytes + 1; n <= frames.MaxBytes; n++ {
		if even := n &^ 1; even == n {
			f.sums[n] = foldChecksum(uint64(f.sums[n-2]) + uint64(wordSum(f.bytes[n-2:n])))
		} else {
			f.sums[n] = foldChecksum(uint64(f.sums[n-1]) + uint64(wordSum(f.bytes[n-1:n])))
		}
	}
	return f
}

// write makes a frame of s.Bytes in b, whose bytes from 60 on are the filler's. It is what write_frame is in
// send.bpf.c.
func (f *filler) write(b []byte, h *programsHead, s *programsSlot, sentNs uint64) {
	if h.V6 != 0 {
		f.write6(b, h, s, sentNs)
		return
	}
	if h.Shares != 0 {
		copy(b[frames.MinBytes:], h.Bytes[frames.MinBytes:])
	}
	copy(b, h.Bytes[:frames.PayloadAt])
	ip, udp := b[frames.EthernetBytes:], b[frames.EthernetBytes+frames.IPv4Bytes:]
	binary.BigEndian.PutUint16(ip[2:], uint16(s.Bytes-frames.EthernetBytes))
	binary.NativeEndian.PutUint16(ip[10:], ^foldChecksum(uint64(h.IpSum)+uint64(binary.NativeEndian.Uint16(ip[2:]))))
	binary.BigEndian.PutUint16(udp[4:], uint16(s.Bytes-frames.EthernetBytes-frames.IPv4Bytes))
	f.finish(udp, b[frames.PayloadAt:frames.MinBytes], h, s, sentNs)
}

// write6 is write of a frame of IPv6, write_frame6 in send.bpf.c.
func (f *filler) write6(b []byte, h *programsHead, s *programsSlot, sentNs uint64) {
	copy(b, h.Bytes[:frames.PayloadAt6])
	ip, udp := b[frames.EthernetBytes:], b[frames.EthernetBytes+frames.IPv6Bytes:]
	length := uint16(s.Bytes - frames.EthernetBytes - frames.IPv6Bytes)
	binary.BigEndian.PutUint16(ip[4:], length)
	binary.BigEndian.PutUint16(udp[4:], length)
	f.finish(udp, b[frames.PayloadAt6:frames.MinBytes6], h, s, sentNs)
}

// finish writes a frame's stamp and UDP's checksum.
func (f *filler) finish(udp, stamp []byte, h *programsHead, s *programsSlot, sentNs uint64) {
	binary.BigEndian.PutUint16(stamp, frames.Magic)
	binary.BigEndian.PutUint64(stamp[2:], s.Which)
	binary.BigEndian.PutUint64(stamp[10:], sentNs)
	sum := ^foldChecksum(uint64(h.UdpSum) + 2*uint64(binary.NativeEndian.Uint16(udp[4:])) + uint64(wordSum(stamp)) +
		uint64(f.sums[s.Bytes]))
	if sum == 0 {
		sum = 0xffff // 0 would say that there is no checksum
	}
	binary.NativeEndian.PutUint16(udp[6:], sum)
}

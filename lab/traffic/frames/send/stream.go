package send

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// MAC is a hardware address.
type MAC [6]byte

// String is the usual notation, "02:67:77:61:00:01".
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Stream is a sequence of frames that share their addresses: UDP over IPv4 over Ethernet.
type Stream struct {
	SrcMAC, DstMAC MAC
	Src, Dst       netip.AddrPort
}

const (
	etherTypeIPv4 = 0x0800
	dontFragment  = 0x4000
	ttl           = 64
	protocolUDP   = 17
)

// head is the common beginning of all frames of the stream. Its lengths and checksums are 0.
func (s Stream) head() (h programsHead, err error) {
	if !s.Src.Addr().Is4() || !s.Dst.Addr().Is4() {
		return h, fmt.Errorf("%s to %s: both addresses must be IPv4", s.Src, s.Dst)
	}
	if s.DstMAC == (MAC{}) {
		return h, errors.New("no destination MAC address: name the router's, or the receiver's on a direct link")
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
	copy(b, h.Bytes[:frames.PayloadAt])
	ip, udp := b[frames.EthernetBytes:], b[frames.EthernetBytes+frames.IPv4Bytes:]
	binary.BigEndian.PutUint16(ip[2:], uint16(s.Bytes-frames.EthernetBytes))
	binary.NativeEndian.PutUint16(ip[10:], ^foldChecksum(uint64(h.IpSum)+uint64(binary.NativeEndian.Uint16(ip[2:]))))
	binary.BigEndian.PutUint16(udp[4:], uint16(s.Bytes-frames.EthernetBytes-frames.IPv4Bytes))
	stamp := b[frames.PayloadAt:frames.MinBytes]
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

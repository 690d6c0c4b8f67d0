package send_test

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// steady is a plan whose frames follow each other at a constant gap. Sizes and streams repeat in turn.
type steady struct {
	frames  int // number of frames; 0: without end
	gapNs   int64
	sizes   []int
	streams int
	n       int // number of the next frame
}

// frameAt returns frame n of the plan.
func (p *steady) frameAt(n int) frames.Frame {
	return frames.Frame{Bytes: uint16(p.sizes[n%len(p.sizes)]), Stream: uint16(n % p.streams), Due: int64(n) * p.gapNs}
}

func (p *steady) Fill(batch []frames.Frame) int {
	if p.frames > 0 {
		batch = batch[:min(len(batch), p.frames-p.n)]
	}
	for i := range batch {
		batch[i] = p.frameAt(p.n + i)
	}
	p.n += len(batch)
	return len(batch)
}

func (p *steady) MaxBytes() int { return slices.Max(p.sizes) }
func (p *steady) Streams() int  { return p.streams }

// received is a frame as it arrived.
type received struct {
	frames.Stamp
	bytes    int
	src, dst netip.AddrPort
	srcMAC   send.MAC
}

// parse reads a frame of the sender's and checks what every such frame must have. It reports false for other frames.
func parse(t testing.TB, b []byte) (r received, ok bool) {
	t.Helper()
	if len(b) < frames.MinBytes {
		return r, false
	}
	ip, udp := b[14:34], b[34:42]
	if r.Stamp, ok = frames.ReadStamp(b[42:]); !ok {
		return r, false
	}
	r.bytes = len(b)
	copy(r.srcMAC[:], b[6:12])
	addr := func(a, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a)), binary.BigEndian.Uint16(port))
	}
	r.src, r.dst = addr(ip[12:16], udp), addr(ip[16:20], udp[2:])
	if got := int(binary.BigEndian.Uint16(ip[2:])); got != len(b)-14 {
		t.Fatalf("IP length %d in a frame of %d bytes", got, len(b))
	}
	if got := int(binary.BigEndian.Uint16(udp[4:])); got != len(b)-34 {
		t.Fatalf("UDP length %d in a frame of %d bytes", got, len(b))
	}
	if sum := onesSum(ip); sum != 0xffff {
		t.Fatalf("the IP header adds up to %#x", sum)
	}
	pseudo := append(slices.Clone(ip[12:20]), 0, 17, udp[4], udp[5])
	if sum := onesSum(append(pseudo, b[34:]...)); sum != 0xffff {
		t.Fatalf("UDP of %d bytes adds up to %#x", len(b), sum)
	}
	if udp[6] == 0 && udp[7] == 0 {
		t.Fatal("a UDP checksum of 0 says that there is none")
	}
	return r, true
}

// onesSum adds up 16-bit words with end-around carry (RFC 1071).
func onesSum(b []byte) uint32 {
	var sum uint32
	for i, v := range b {
		if i%2 == 0 {
			sum += uint32(v) << 8
		} else {
			sum += uint32(v)
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return sum
}

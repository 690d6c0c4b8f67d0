// Tests of frames of IPv6. engines are the two ways of sending; newPair makes two namespaces with a link; carryOut
// sends a plan to its end, and steady is a plan with a constant gap (send_test.go, plans_test.go).

package send_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

var serverIP6 = netip.MustParseAddr("2001:db8::1")

// The tests of this file send frames over IPv6, and over IPv4 and IPv6 in turn, with both engines.

// dualStreams makes the streams with odd numbers IPv6, or all of them if only6 is true.
func dualStreams(to []send.Stream, only6 bool) []send.Stream {
	for i := range to {
		if only6 || i%2 == 1 {
			client := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i + 2)})
			to[i].Src, to[i].Dst = netip.AddrPortFrom(client, uint16(4000+i)), netip.AddrPortFrom(serverIP6, frames.Port)
		}
	}
	return to
}

// sumOfDatagram adds up a frame's UDP datagram and pseudo-header (RFC 768, RFC 8200, 8.1): 0xffff where the checksum is
// right.
func sumOfDatagram(frame []byte) uint32 {
	ip, header, addrs := frame[frames.EthernetBytes:], frames.IPv4Bytes, 12
	if ip[0]>>4 == 6 {
		header, addrs = frames.IPv6Bytes, 8
	}
	udp := ip[header:]
	pseudo := binary.BigEndian.AppendUint32(append([]byte(nil), ip[addrs:header]...), uint32(len(udp)))
	return onesSum(append(append(pseudo, 0, 17), udp...))
}

// TestFramesOfBothFamilies: each frame that arrives has exactly the bytes of its stream and number, and a right
// checksum. That also holds if frames of IPv4 and IPv6 are written one after the other into the same memory.
func TestFramesOfBothFamilies(t *testing.T) {
	p := newPair(t)
	for _, only6 := range []bool{true, false} {
		for _, e := range engines {
			t.Run(fmt.Sprintf("%s, only IPv6 %v", e, only6), func(t *testing.T) {
				to := dualStreams(streams(t, p, 6), only6)
				const n = 600
				fd := listen(t, p.Server, unix.ETH_P_ALL)
				carryOut(t, p.Client, send.Config{
					Streams: to, Engine: e, Plan: &steady{frames: n, sizes: []int{80, 81, 590, 101, 1514}, streams: len(to)}})
				seen := make([]uint64, len(to))
				for _, frame := range readStamped(t, fd, n) {
					stamp := stampOf(frame)
					want, err := send.Frame(to[stamp.Stream], len(frame), uint64(stamp.Stream)<<48|stamp.Number, stamp.SentNs)
					if err != nil {
						t.Fatal(err)
					}
					stampAt := frames.PayloadAt
					if to[stamp.Stream].Src.Addr().Is6() {
						stampAt = frames.PayloadAt6
					}
					behind := stampAt + frames.StampBytes
					// send.Frame writes another stamp, and so another checksum in the two bytes before it. These are not compared.
					if !bytes.Equal(frame[:stampAt-2], want[:stampAt-2]) || !bytes.Equal(frame[behind:], want[behind:]) {
						t.Fatalf("frame %d of stream %d:\n%x, want\n%x", stamp.Number, stamp.Stream, frame, want)
					}
					if sum := sumOfDatagram(frame); sum != 0xffff {
						t.Fatalf("frame %d of stream %d, %d bytes: its datagram adds up to %#x", stamp.Number, stamp.Stream,
							len(frame), sum)
					}
					seen[stamp.Stream]++
				}
				for i, n := range seen {
					if n == 0 {
						t.Errorf("no frame of stream %d", i)
					}
				}
			})
		}
	}
}

// TestShortFramesOfIPv6: a plan with frames into which the stamp does not fit is refused.
func TestShortFramesOfIPv6(t *testing.T) {
	p := newPair(t)
	sender, err := start(t, p.Client, send.Config{
		Streams: dualStreams(streams(t, p, 2), false), Plan: &steady{frames: 2, sizes: []int{79, 590}, streams: 2}})
	if err == nil {
		err = sender.Wait()
	}
	if err == nil || !strings.Contains(err.Error(), "80 to 590 bytes") {
		t.Errorf("frames of 79 bytes: %v", err)
	}
}

// stampOf reads a frame's stamp; its Stream is out of range for a frame that is not the generator's.
func stampOf(frame []byte) frames.Stamp {
	place := frames.PayloadAt
	if len(frame) >= frames.MinBytes6 && frame[frames.EthernetBytes]>>4 == 6 {
		place = frames.PayloadAt6
	}
	if len(frame) < place {
		return frames.Stamp{Stream: noStream}
	}
	stamp, ok := frames.ReadStamp(frame[place:])
	if !ok {
		stamp.Stream = noStream
	}
	return stamp
}

// noStream is the stream of a frame without a stamp.
const noStream = 1<<16 - 1

// readStamped reads n frames of the generator from the packet socket fd.
func readStamped(t testing.TB, fd, n int) (all [][]byte) {
	t.Helper()
	b := make([]byte, 1<<14)
	labtest.Await(t, fmt.Sprintf("%d frames", n), func() bool {
		for len(all) < n {
			got, err := unix.Read(fd, b)
			if err != nil {
				return false
			}
			if stampOf(b[:got]).Stream != noStream {
				all = append(all, append([]byte(nil), b[:got]...))
			}
		}
		return true
	})
	return all
}

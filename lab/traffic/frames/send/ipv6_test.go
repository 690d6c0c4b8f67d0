package send_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

var serverIP6 = netip.MustParseAddr("2001:db8::1")

// dualStreams are n streams, of which those with odd places are IPv6; all are where only6 is true.
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

// TestFramesOfBothFamilies: each frame that arrives is the stream's frame of its number, byte for byte, and its
// checksum is right: also where frames of IPv4 and IPv6 are made one after the other in the same memory.
func TestFramesOfBothFamilies(t *testing.T) {
	p := newPair(t)
	for _, only6 := range []bool{true, false} {
		for _, e := range engines {
			t.Run(fmt.Sprintf("%s, only IPv6 %v", e, only6), func(t *testing.T) {
				to := dualStreams(streams(t, p, 6), only6)
				const n = 600
				fd := listenToAll(t, p.Server)
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
					// Frame has no number of a stream in its stamp, and so another checksum before it.
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

// listenToAll opens a packet socket at the server's end that keeps all frames.
func listenToAll(t testing.TB, s *netnstest.Space) (fd int) {
	t.Helper()
	var err error
	s.Do(func() {
		const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // network order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, all); err != nil {
			return
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
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

const noStream = 1<<16 - 1

// readStamped takes n frames of the generator from fd.
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

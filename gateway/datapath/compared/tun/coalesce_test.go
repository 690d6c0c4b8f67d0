// Tests of the coalescer, which joins packets of a flow into one aggregated packet. tcp and udp make a packet from the
// client to the site, changed by edits (packets_test.go). tap records what the coalescer writes, and splitMessages
// splits that into packets again.

package tun

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// The tests of coalescer, which aggregates packets of a flow and writes them as messages: a virtio header, an Ethernet
// header where the LAN is the receiver ("front" bytes), and a packet. splitMessages splits the packets again, and
// comparePackets compares them with those that went in.

// tap records the messages written to a descriptor, in; out is where the test reads them.
type tap struct{ in, out int }

func newTap(t testing.TB) tap {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	must(t, unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 1<<26))
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return tap{fds[0], fds[1]}
}

// messages returns what was written since the last call.
func (c tap) messages() (all [][]byte) {
	b := make([]byte, bufferLen)
	for {
		n := read(c.out, b)
		if n < 0 {
			return all
		}
		all = append(all, bytes.Clone(b[:n]))
	}
}

// splitMessages splits a coalescer's output into packets with checksums. front is how many bytes of Ethernet header
// precede each packet.
func splitMessages(t *testing.T, messages [][]byte, front int) (all [][]byte) {
	t.Helper()
	for _, m := range messages {
		v := readVirtio(m)
		v.sumStart -= min(v.sumStart, uint16(front))
		ip, ok := ipv4(m[virtioLen+front:])
		if !ok || !settle(ip, v, make([]byte, bufferLen), func(ip []byte) { all = append(all, bytes.Clone(ip)) }) {
			t.Fatalf("a message cannot be split: %+v %x", v, m)
		}
	}
	return all
}

// stream returns a connection's segments with the given payloads, the last with PSH.
func stream(port uint16, sizes ...int) (all [][]byte) {
	at := uint32(1000)
	for i, n := range sizes {
		all = append(all, tcp(ports(port, 443), timestamps, id(uint16(i)), seq(at), carrying(text(n)), flags(false, true,
			false, i == len(sizes)-1)))
		at += uint32(n)
	}
	return all
}

// repeat returns n sizes.
func repeat(size, n int) []int {
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

// TestCoalesceByStation: packets of a flow that go to different MAC addresses are not aggregated. A client's address
// may get another owner between two packets.
func TestCoalesceByStation(t *testing.T) {
	tap := newTap(t)
	co := coalescer{fd: tap.in, udp: true, headerBytes: ethernetLen}
	all := stream(1, repeat(1448, 4)...)
	for i, ip := range all {
		co.add(ip, virtio{}, datapath.MAC{2, 0, 0, 0, 0, byte(i / 2)})
	}
	co.flush()
	got := tap.messages()
	if len(got) != 2 || got[0][virtioLen+5] != 0 || got[1][virtioLen+5] != 1 {
		t.Errorf("handed on as %d, want one for each station", len(got))
	}
	comparePackets(t, splitMessages(t, got, ethernetLen), all)
}

// TestCoalesce: packets of a flow are aggregated into the given number of messages, and splitting gives the same
// packets. Long: most lines are the table of cases.
func TestCoalesce(t *testing.T) {
	datagrams := func(sizes ...int) (all [][]byte) {
		for i, n := range sizes {
			all = append(all, udp(id(uint16(i)), carrying(text(n))))
		}
		return all
	}
	// changed makes packet n of a stream a segment of 1,000 bytes that edits made unlike its neighbours; broken gives it
	// a wrong checksum.
	changed := func(all [][]byte, n int, edits ...func(*packet)) [][]byte {
		l := binary.BigEndian.Uint32(all[n][ipLen+4:])
		all[n] = tcp(append(
			[]func(*packet){ports(1, 443), timestamps, id(uint16(n)), seq(l), carrying(text(1000))}, edits...)...)
		return all
	}
	broken := func(all [][]byte, n int) [][]byte { all[n][len(all[n])-1] ^= 1; return all }
	for name, c := range map[string]struct {
		in       [][]byte
		messages int
	}{
		"a burst":           {stream(1, repeat(1448, 44)...), 1},
		"more than 64 KiB":  {stream(1, repeat(1448, 60)...), 2},
		"many small ones":   {stream(1, repeat(76, 130)...), 3},
		"too small":         {stream(1, repeat(75, 130)...), 130},
		"a short end":       {stream(1, 1448, 1448, 100), 1},
		"short in between":  {stream(1, 1448, 100, 1448), 2},
		"longer ones later": {stream(1, 100, 1448, 1448), 2},
		"one":               {stream(1, 1448), 1},
		"acknowledgements":  {[][]byte{tcp(), tcp(), tcp()}, 3},
		"a gap": {
			append(stream(1, 1000, 1000), tcp(ports(1, 443), timestamps, seq(9000), carrying(text(1000)))), 2},
		"FIN":               {changed(stream(1, repeat(1000, 3)...), 1, flags(false, true, true, false)), 3},
		"another window":    {changed(stream(1, repeat(1000, 3)...), 1, window), 3},
		"another TTL":       {changed(stream(1, repeat(1000, 3)...), 1, func(p *packet) { p.ip.TTL = 9 }), 3},
		"another TOS":       {changed(stream(1, repeat(1000, 3)...), 1, func(p *packet) { p.ip.TOS = 3 }), 3},
		"another numbering": {changed(stream(1, repeat(1000, 3)...), 1, id(9)), 3},
		"other options":     {changed(stream(1, repeat(1000, 3)...), 1, later), 3},
		"may be fragmented": {changed(stream(1, repeat(1000, 3)...), 1, func(p *packet) { p.ip.Flags = 0 }), 3},
		"a fragment": {
			changed(stream(1, repeat(1000, 3)...), 1, func(p *packet) { p.ip.Flags = layers.IPv4MoreFragments }), 3},
		"a wrong sum":         {broken(stream(1, repeat(1000, 3)...), 1), 3},
		"a wrong sum first":   {broken(stream(1, repeat(1000, 3)...), 0), 2},
		"datagrams":           {datagrams(repeat(1200, 10)...), 1},
		"datagrams, one less": {datagrams(1200, 1200, 700, 1200), 2},
		"empty datagrams":     {datagrams(0, 0), 2},
		"two connections":     {interleave(stream(1, repeat(1448, 20)...), stream(2, repeat(1448, 20)...)), 2},
	} {
		for _, front := range []int{0, ethernetLen} {
			t.Run(fmt.Sprintf("%s, %d in front", name, front), func(t *testing.T) {
				tap := newTap(t)
				co := coalescer{fd: tap.in, udp: true, headerBytes: front, srcMAC: [6]byte{2, 0, 0, 0, 1, 1}}
				to := datapath.MAC{2, 0, 0, 0, 0, 10}
				for _, ip := range c.in {
					co.add(ip, virtio{}, to)
				}
				co.flush()
				got := tap.messages()
				if len(got) != c.messages || co.unsent != 0 {
					t.Errorf("handed on as %d, want %d", len(got), c.messages)
				}
				if front > 0 {
					for _, m := range got {
						if want := []byte("\x02\x00\x00\x00\x00\x0a\x02\x00\x00\x00\x01\x01\x08\x00"); !bytes.Equal(
							m[virtioLen:virtioLen+ethernetLen], want) {
							t.Errorf("Ethernet header %x", m[virtioLen:virtioLen+ethernetLen])
						}
					}
				}
				comparePackets(t, splitMessages(t, got, front), c.in)
			})
		}
	}
}

// comparePackets fails the test unless the packets of each flow are the ones wanted, in the same order.
func comparePackets(t *testing.T, got, want [][]byte) {
	t.Helper()
	byFlow := func(all [][]byte) map[string][][]byte {
		out := map[string][][]byte{}
		for _, ip := range all {
			key := string(ip[9:10]) + string(ip[12:24])
			out[key] = append(out[key], ip)
		}
		return out
	}
	g, w := byFlow(got), byFlow(want)
	if len(got) != len(want) || len(g) != len(w) {
		t.Fatalf("%d packets of %d flows, want %d of %d", len(got), len(g), len(want), len(w))
	}
	for flow, all := range w {
		for i, ip := range all {
			if i >= len(g[flow]) || !bytes.Equal(g[flow][i], ip) {
				t.Fatalf("packet %d of flow %x is\n%x\nwant\n%x", i, flow, g[flow][i], ip)
			}
		}
	}
}

// interleave alternates the packets of two flows of the same length.
func interleave(a, b [][]byte) (all [][]byte) {
	for i := range a {
		all = append(all, a[i], b[i])
	}
	return all
}

// TestCoalesceAtRandom mixes up to 40 connections. Some packets' checksums are left for later, as between hosts on the
// same machine.
func TestCoalesceAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	tap := newTap(t)
	co := coalescer{fd: tap.in, udp: true}
	for range 300 {
		var flows [][][]byte
		for port := range random.IntN(40) + 1 {
			var sizes []int
			for range random.IntN(20) + 1 {
				sizes = append(sizes, []int{0, 1, 500, 1448, 1448, 1448}[random.IntN(6)])
			}
			flows = append(flows, stream(uint16(port), sizes...))
		}
		var sent [][]byte
		for len(flows) > 0 {
			i := random.IntN(len(flows))
			for range min(random.IntN(6)+1, len(flows[i])) {
				ip := flows[i][0]
				flows[i] = flows[i][1:]
				sent = append(sent, bytes.Clone(ip))
				if random.IntN(2) == 0 {
					co.add(unsummed(ip), partialSum(tcpChecksum), datapath.MAC{})
				} else {
					co.add(ip, virtio{}, datapath.MAC{})
				}
			}
			if len(flows[i]) == 0 {
				flows = append(flows[:i], flows[i+1:]...)
			}
		}
		co.flush()
		comparePackets(t, splitMessages(t, tap.messages(), 0), sent)
	}
}

// TestCoalesceCountsLosses: packets that cannot be written are counted, also the 5 of an aggregated one.
func TestCoalesceCountsLosses(t *testing.T) {
	co := coalescer{fd: -1}
	for _, ip := range append(stream(1, repeat(1448, 5)...), tcp(), udp()) {
		co.add(ip, virtio{}, datapath.MAC{})
	}
	co.flush()
	whole := tcp(ports(2, 443), timestamps, carrying(text(5*1448)))
	co.add(whole, virtio{flags: 1, gso: unix.VIRTIO_NET_HDR_GSO_TCPV4, headers: 52, size: 1448, sumStart: ipLen,
		sumOffset: tcpChecksum}, datapath.MAC{})
	if co.unsent != 7+5 {
		t.Errorf("%d lost, want 12", co.unsent)
	}
}

// TestAggregatedGoThrough: an aggregated packet is sent unchanged, after earlier ones.
func TestAggregatedGoThrough(t *testing.T) {
	tap := newTap(t)
	co := coalescer{fd: tap.in, headerBytes: ethernetLen}
	before := stream(1, 1448, 1448)
	whole := tcp(ports(1, 443), timestamps, seq(1000+2*1448), carrying(text(5*1448)))
	for _, ip := range before {
		co.add(ip, virtio{}, datapath.MAC{})
	}
	co.add(unsummed(whole), virtio{flags: 1, gso: unix.VIRTIO_NET_HDR_GSO_TCPV4, headers: 52, size: 1448, sumStart: ipLen,
		sumOffset: tcpChecksum}, datapath.MAC{})
	co.flush()
	got := tap.messages()
	want := virtio{flags: 1, gso: 1, headers: 66, size: 1448, sumStart: ethernetLen + ipLen, sumOffset: tcpChecksum}
	if len(got) != 2 || readVirtio(got[1]) != want || !bytes.Equal(got[1][packetStart:], whole) {
		t.Errorf("%d messages, the last with %+v, want %+v", len(got), readVirtio(got[len(got)-1]), want)
	}
}

func BenchmarkCoalesce(b *testing.B) {
	null, err := unix.Open("/dev/null", unix.O_WRONLY, 0)
	must(b, err)
	defer unix.Close(null)
	burst := stream(1, repeat(1448, 44)...)
	rooms := make([][]byte, len(burst))
	for i, ip := range burst {
		rooms[i] = unsummed(ip)
	}
	co := coalescer{fd: null}
	for b.Loop() {
		for _, r := range rooms {
			co.add(r, partialSum(tcpChecksum), datapath.MAC{})
		}
		co.flush()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(burst)), "ns/packet")
}

// Helpers that make packets for this package's tests.

package tun

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

var (
	client  = netip.MustParseAddr("10.1.0.10")
	portal  = netip.MustParseAddr("10.1.0.1")
	site    = netip.MustParseAddr("192.0.2.2")
	another = netip.MustParseAddr("192.0.2.3")
)

// Packets for this package's tests. tcp and udp make a packet from the client to the site, changed by edits such as
// syn, ports and between.

// packet is an IP packet under construction.
type packet struct {
	ip      layers.IPv4
	l4      gopacket.SerializableLayer
	payload []byte
}

// tcp returns a segment from the client to the site's web server, changed by edits.
func tcp(edits ...func(*packet)) []byte {
	l4 := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: 1000, Ack: 2000, ACK: true, Window: 500}
	return build(&packet{l4: l4, ip: layers.IPv4{Protocol: layers.IPProtocolTCP}}, edits)
}

// udp returns a datagram from the client to the site's port 443, changed by edits.
func udp(edits ...func(*packet)) []byte {
	return build(&packet{l4: &layers.UDP{SrcPort: 40000, DstPort: 443}, ip: layers.IPv4{Protocol: layers.IPProtocolUDP}},
		edits)
}

func build(p *packet, edits []func(*packet)) []byte {
	p.ip.Version, p.ip.TTL, p.ip.Flags, p.ip.Id = 4, 64, layers.IPv4DontFragment, 7
	p.ip.SrcIP, p.ip.DstIP = client.AsSlice(), site.AsSlice()
	for _, edit := range edits {
		edit(p)
	}
	switch l := p.l4.(type) {
	case *layers.TCP:
		l.SetNetworkLayerForChecksum(&p.ip)
	case *layers.UDP:
		l.SetNetworkLayerForChecksum(&p.ip)
	}
	b := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, opts, &p.ip, p.l4, gopacket.Payload(p.payload)); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func flags(syn, ack, fin, psh bool) func(*packet) {
	return func(p *packet) { l := p.l4.(*layers.TCP); l.SYN, l.ACK, l.FIN, l.PSH = syn, ack, fin, psh }
}

func syn(p *packet) { flags(true, false, false, false)(p) }

func carrying(b []byte) func(*packet) { return func(p *packet) { p.payload = b } }

func seq(n uint32) func(*packet) { return func(p *packet) { p.l4.(*layers.TCP).Seq = n } }

func id(n uint16) func(*packet) { return func(p *packet) { p.ip.Id = n } }

func ports(from, to uint16) func(*packet) {
	return func(p *packet) {
		switch l := p.l4.(type) {
		case *layers.TCP:
			l.SrcPort, l.DstPort = layers.TCPPort(from), layers.TCPPort(to)
		case *layers.UDP:
			l.SrcPort, l.DstPort = layers.UDPPort(from), layers.UDPPort(to)
		}
	}
}

func between(from, to netip.Addr) func(*packet) {
	return func(p *packet) { p.ip.SrcIP, p.ip.DstIP = from.AsSlice(), to.AsSlice() }
}

func timestamps(p *packet) {
	p.l4.(*layers.TCP).Options = []layers.TCPOption{{OptionType: 1}, {OptionType: 1}, {
		OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}
}

// later changes a segment's TCP timestamp.
func later(p *packet) { p.l4.(*layers.TCP).Options[2].OptionData = []byte{0, 0, 0, 9, 0, 0, 0, 0} }

func window(p *packet) { p.l4.(*layers.TCP).Window = 9 }

// text returns n bytes, each different from its neighbours.
func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// checkSums fails the test if one of a packet's checksums is wrong.
func checkSums(t *testing.T, ip []byte) {
	t.Helper()
	if header := ip[:int(ip[0]&15)*4]; fold(sum(header, 0)) != 0xffff {
		t.Errorf("the header's sum is wrong: %x", header)
	}
	l4 := ip[int(ip[0]&15)*4:]
	initial := uint64(0)
	if ip[9] != protocolICMP {
		initial = pseudo(ip, len(l4))
	}
	if fold(sum(l4, initial)) != 0xffff {
		t.Errorf("the transport's sum is wrong: %x", ip)
	}
}

// slowSum implements RFC 1071 literally.
func slowSum(b []byte) uint16 {
	var s uint32
	for i, v := range b {
		s += uint32(v) << (8 * ((i + 1) % 2))
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

func FuzzSum(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add(text(33), uint16(0xffff))
	f.Add(bytes.Repeat([]byte{0xff}, 64), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, initial uint16) {
		want := slowSum(append(binary.BigEndian.AppendUint16(nil, initial), b...))
		if got := fold(sum(b, uint64(initial))); got%0xffff != want%0xffff { // 0 has two forms
			t.Errorf("%x and %x: %x, want %x", initial, b, got, want)
		}
	})
}

// TestReplace changes addresses and ports at random, and compares the checksums with recomputed ones.
func TestReplace(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		ip := tcp(carrying(text(random.IntN(60))))
		readdress(ip, ip[ipLen:], 12+4*random.IntN(2), random.Uint32(), 2*random.IntN(2), uint16(random.Uint32()))
		checkSums(t, ip)
		if t.Failed() {
			t.Fatalf("in the packet %x", ip)
		}
	}
}

// TestSegment: settle computes checksums that were left for later ("sum left"), splits aggregated packets, and refuses
// virtio headers that do not fit the packet (want is nil).
func TestSegment(t *testing.T) {
	const size = 1000
	data := text(3*size + 200)
	part := func(n int) []byte { return data[n*size : min(len(data), (n+1)*size)] }
	var segments, datagrams [][]byte
	for n := range 4 {
		last := n == 3
		segments = append(segments, tcp(timestamps, id(7+uint16(n)), seq(1000+uint32(n*size)), carrying(part(n)), flags(false,
			true, last, last),
			func(p *packet) { p.l4.(*layers.TCP).CWR = n == 0 }))
		datagrams = append(datagrams, udp(id(7+uint16(n)), carrying(part(n))))
	}
	whole := tcp(timestamps, carrying(data), flags(false, true, true, true),
		func(p *packet) { p.l4.(*layers.TCP).CWR = true })
	for name, c := range map[string]struct {
		ip   []byte
		v    virtio
		want [][]byte
	}{
		"TCP": {
			whole, virtio{gso: unix.VIRTIO_NET_HDR_GSO_TCPV4 | unix.VIRTIO_NET_HDR_GSO_ECN, size: size}, segments},
		"UDP":           {udp(carrying(data)), virtio{gso: unix.VIRTIO_NET_HDR_GSO_UDP_L4, size: size}, datagrams},
		"sum left":      {unsummed(tcp(carrying(part(0)))), partialSum(tcpChecksum), [][]byte{tcp(carrying(part(0)))}},
		"UDP, sum left": {unsummed(udp(carrying(part(0)))), partialSum(udpChecksum), [][]byte{udp(carrying(part(0)))}},
		"nothing to do": {tcp(), virtio{}, [][]byte{tcp()}},
		"one segment": {
			tcp(carrying(part(0))), virtio{gso: unix.VIRTIO_NET_HDR_GSO_TCPV4, size: size}, [][]byte{tcp(carrying(part(0)))}},
		"sum beyond it": {tcp(), virtio{flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, sumStart: ipLen, sumOffset: 1000}, nil},
		"sum in header": {tcp(), virtio{flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, sumStart: 2}, nil},
		"size 0":        {whole, virtio{gso: unix.VIRTIO_NET_HDR_GSO_TCPV4}, nil},
		"UDP as TCP":    {udp(carrying(data)), virtio{gso: unix.VIRTIO_NET_HDR_GSO_TCPV4, size: size}, nil},
		"unknown":       {whole, virtio{gso: unix.VIRTIO_NET_HDR_GSO_TCPV6, size: size}, nil},
		"headers beyond": {append(bytes.Clone(tcp())[:32], 0xf0, 0, 0, 0, 0, 0, 0, 0), virtio{
			gso: unix.VIRTIO_NET_HDR_GSO_TCPV4, size: size}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got [][]byte
			ok := settle(bytes.Clone(c.ip), c.v, make([]byte, bufferLen), func(ip []byte) { got = append(got, bytes.Clone(ip)) })
			if ok != (c.want != nil) || len(got) != len(c.want) {
				t.Fatalf("%v, %d packets, want %d", ok, len(got), len(c.want))
			}
			for i := range got {
				if !bytes.Equal(got[i], c.want[i]) {
					t.Errorf("packet %d is\n%x\nwant\n%x", i, got[i], c.want[i])
				}
			}
		})
	}
}

// unsummed leaves a packet's transport checksum for later: its field holds the pseudo-header's sum only.
func unsummed(ip []byte) []byte {
	index := ipLen + udpChecksum
	if ip[9] == protocolTCP {
		index = ipLen + tcpChecksum
	}
	binary.BigEndian.PutUint16(ip[index:], fold(pseudo(ip, len(ip)-ipLen)))
	return ip
}

// partialSum returns the virtio header of a packet whose checksum, at an offset in the transport header, is left for
// later.
func partialSum(offset uint16) virtio {
	return virtio{flags: unix.VIRTIO_NET_HDR_F_NEEDS_CSUM, sumStart: ipLen, sumOffset: offset}
}

func FuzzSettle(f *testing.F) {
	f.Add(tcp(carrying(text(3000))), []byte{1, 1, 0, 0, 0xe8, 3, 20, 0, 16, 0})
	f.Add(udp(carrying(text(3000))), []byte{1, 5, 0, 0, 0xe8, 3, 20, 0, 6, 0})
	f.Add(unsummed(tcp()), []byte{1, 0, 0, 0, 0, 0, 20, 0, 16, 0})
	scratch := make([]byte, bufferLen)
	f.Fuzz(func(t *testing.T, b, header []byte) {
		ip, ok := ipv4(b)
		if !ok || len(header) < virtioLen {
			return
		}
		settle(ip, readVirtio(header), scratch, func(out []byte) {
			if len(out) < ipLen {
				t.Errorf("a packet of %d bytes", len(out))
			}
		})
	})
}

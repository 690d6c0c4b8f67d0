// Tests of capture, which sends HTTP of clients before login to the portal. segment makes a TCP packet to a server.

package nfqueue

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath/compared/nfqueue/queue"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var portalAddr = netip.MustParseAddrPort("10.1.0.1:8080")

// segment returns a TCP packet to a server, with a wrong checksum.
func segment(t testing.TB, payload []byte, options ...layers.IPv4Option) []byte {
	t.Helper()
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 1, 0, 5}, DstIP: []byte{192,
		0, 2, 2}, Options: options}
	tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, Seq: 1, SYN: true, Window: 1000, Options: []layers.TCPOption{{
		OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}}}}
	out := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(
		out, gopacket.SerializeOptions{FixLengths: true}, ip, tcp, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestRedirect: redirecting a segment to the portal changes its destination and its checksum, which is right, and
// nothing else.
func TestRedirect(t *testing.T) {
	option := layers.IPv4Option{OptionType: 7, OptionLength: 4, OptionData: []byte{4, 0}}
	for name, b := range map[string][]byte{
		"SYN": segment(t, nil), "even": segment(t, []byte("GET / HTTP/1.0\r\n")),
		"odd":            segment(t, []byte("GET /x HTTP/1.0\r\n")),
		"with an option": segment(t, []byte("GET"), option), "sums with carries": segment(t, bytes.Repeat([]byte{255}, 1401)),
	} {
		t.Run(name, func(t *testing.T) {
			got := bytes.Clone(b)
			if !redirect(got, len(got), portalAddr) {
				t.Fatal("it was not redirected")
			}
			p := gopacket.NewPacket(got, layers.LayerTypeIPv4, gopacket.Default)
			ip, tcp := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4), p.Layer(layers.LayerTypeTCP).(*layers.TCP)
			if !ip.DstIP.Equal(portalAddr.Addr().AsSlice()) || tcp.DstPort != 8080 {
				t.Errorf("it goes to %s:%d", ip.DstIP, tcp.DstPort)
			}
			sum := tcp.Checksum
			must(t, tcp.SetNetworkLayerForChecksum(ip))
			out := gopacket.NewSerializeBuffer()
			must(t, gopacket.SerializeLayers(
				out, gopacket.SerializeOptions{ComputeChecksums: true}, tcp, gopacket.Payload(tcp.Payload)))
			if tcp.Checksum != sum {
				t.Errorf("sum %#x, want %#x", sum, tcp.Checksum)
			}
			header := int(b[0]&15) * 4
			for _, part := range [][2]int{{16, 20}, {header + 2, header + 4}, {header + 16, header + 18}} {
				copy(got[part[0]:part[1]], b[part[0]:])
			}
			if !bytes.Equal(got, b) {
				t.Errorf("something else has changed:\n%x\n%x", got, b)
			}
		})
	}
}

// TestRedirectNot: packets that are not complete segments stay unchanged.
func TestRedirectNot(t *testing.T) {
	whole := segment(t, []byte("GET"))
	with := func(index int, b byte) []byte { c := bytes.Clone(whole); c[index] = b; return c }
	for name, c := range map[string]struct {
		b      []byte
		length int
	}{
		"cut off":            {whole, len(whole) + 1},
		"a first fragment":   {with(6, 0x20), len(whole)},
		"a later fragment":   {with(7, 5), len(whole)},
		"UDP":                {with(9, 17), len(whole)},
		"a header too short": {with(0, 0x44), len(whole)},
		"a header too long":  {with(0, 0x4f), len(whole)},
		"nothing":            {nil, 0},
	} {
		b := bytes.Clone(c.b)
		if redirect(b, c.length, portalAddr) || !bytes.Equal(b, c.b) {
			t.Errorf("%s was redirected", name)
		}
	}
}

// FuzzRedirect: no packet's bytes stop the daemon.
func FuzzRedirect(f *testing.F) {
	f.Add(segment(f, []byte("GET")))
	f.Add([]byte{0x45})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := len(b)
		if redirect(b, n, portalAddr) && len(b) != n {
			t.Error("another length")
		}
		segments(&queue.Packet{Data: b, Length: 1 << 16}, 1500)
	})
}

// TestSegments: segments estimates how many packets an aggregated one stands for, at an MTU of 1500.
func TestSegments(t *testing.T) {
	for name, c := range map[string]struct {
		data   []byte
		length int
		want   int
	}{
		"one of full size":            {segment(t, make([]byte, 1456)), 1500, 1}, // headers take 44 bytes
		"two":                         {segment(t, make([]byte, 1457)), 1501, 2},
		"many, only the start copied": {segment(t, nil), 44 + 45*1456, 45},
		"nothing copied":              {nil, 1500, 1},
		"headers only":                {segment(t, nil), 44, 1},
	} {
		if got := segments(&queue.Packet{Data: c.data, Length: c.length}, 1500); got != c.want {
			t.Errorf("%s: %d segments, want %d", name, got, c.want)
		}
	}
}

var must = netnstest.Must

// TestPortalRoomPerClient: a client that opens connections without end keeps no other from the portal, and may open new
// ones when the old ones are silent.
func TestPortalRoomPerClient(t *testing.T) {
	c, err := newCapture(portalAddr)
	must(t, err)
	defer c.close()
	of := func(host byte, port int) []byte {
		b := segment(t, nil)
		b[15], b[20], b[21] = host, byte(port>>8), byte(port)
		return b
	}
	got := 0
	for port := range 60000 {
		if c.hasRoom(of(5, port), 1) {
			got++
		}
	}
	if got != soughtEach {
		t.Errorf("one client has %d connections, want %d", got, soughtEach)
	}
	if !c.hasRoom(of(5, 0), 2) || !c.hasRoom(of(6, 60000), 2) {
		t.Error("no room for a known connection, or for another client")
	}
	later := soughtLife.Nanoseconds() + 2
	if !c.hasRoom(of(5, 60000), later) {
		t.Error("no room when all others were silent")
	}
	if n := len(c.portSeen[[4]byte{10, 1, 0, 5}]); n != 1 {
		t.Errorf("%d connections are remembered, want 1", n)
	}
	if !c.hasRoom(of(7, 1), 2*later) || len(c.portSeen) != 1 {
		t.Errorf("%d strangers are remembered, want 1", len(c.portSeen))
	}
}

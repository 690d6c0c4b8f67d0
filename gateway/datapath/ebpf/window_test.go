// A test of the TCP windows that the programs lower while packets wait (window.h). newNetwork makes a LAN with alice
// and bob and a WAN with a server, and open starts a data path between them (main_test.go). tcp and udp make a frame
// from alice to the server, changed by edits; try runs one program over a frame, and packets and change tell which
// counts grew (programs_test.go).

package ebpf

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// header changes a TCP segment's header.
func header(change func(*layers.TCP)) func(*datapathtest.Frame) {
	return func(f *datapathtest.Frame) { change(f.L4.(*layers.TCP)) }
}

// opening returns a connection's first two packets, which offer window scales; a scale below 0 is not offered.
func opening(port uint16, client, server int) (request, answer []byte) {
	offers := func(scale int) func(*datapathtest.Frame) {
		return header(func(l *layers.TCP) {
			l.Options = []layers.TCPOption{
				{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}},
				{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
				{OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)},
				{OptionType: layers.TCPOptionKindNop},
			}
			if scale >= 0 {
				l.Options = append(l.Options, layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3,
					OptionData: []byte{byte(scale)}})
			}
		})
	}
	return datapathtest.SYN(port, offers(client), window(65535)),
		datapathtest.SYN(40000, down, datapathtest.SourcePort(port), offers(server), window(65535), header(func(
			l *layers.TCP) {
			l.ACK = true
		}))
}

func window(w uint16) func(*datapathtest.Frame) { return header(func(l *layers.TCP) { l.Window = w }) }

// readWindow reads a packet's window, and whether its checksum is right.
func readWindow(t *testing.T, frame []byte) (w uint16, summed bool) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	l := p.TransportLayer().(*layers.TCP)
	before := l.Checksum
	must(t, l.SetNetworkLayerForChecksum(p.NetworkLayer()))
	must(t, gopacket.SerializeLayers(
		gopacket.NewSerializeBuffer(), gopacket.SerializeOptions{ComputeChecksums: true}, l, gopacket.Payload(l.Payload)))
	return l.Window, l.Checksum == before
}

// TestWindows: while packets of a connection wait in the queue, the programs lower the window that its acknowledgements
// offer to what the queue allows, in the connection's own scale, and change nothing else in them. Long: the steps of
// one run, each of which needs the state that the one before left.
func TestWindows(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	run(t, "ip route add default via 192.0.2.2 dev $wan", n.env()...)
	d := n.open(t, shaped)
	d.stop() // the daemon would renew what the test sets
	must(t, d.set(func(s *gatewaySettings) { s.RedirectUntil = now() + 3600e9 }))
	must(t, d.Set(rated(1, 1)))
	place, err := d.placeOf(alice)
	must(t, err)
	const given = 9000 // bytes
	until := now() + 3600e9
	queues := gatewayQueues{Class: 5}
	queues.Up.Window, queues.Up.SettledNs, queues.Down.Window, queues.Down.SettledNs = given, until, given, until
	must(t, d.objs.ClientQueues.Put(place, queues))
	held := gatewayShaping{Until: until, Up: uint32(gatewayHolderHOLDER_CLASS), Down: uint32(gatewayHolderHOLDER_CLASS)}
	reset := header(func(l *layers.TCP) { l.RST = true })
	for i, c := range []struct {
		label           string
		client, server  int // scales; below 0: not offered
		unknown         bool
		up              bool
		edits           func(*datapathtest.Frame)
		offers, current uint16
		idle, policed   bool
	}{
		{label: "of a download", client: 7, server: 9, up: true, offers: 500, current: given >> 7},
		{label: "of an upload", client: 7, server: 9, offers: 500, current: given >> 9},
		{label: "of a connection without scales", client: -1, server: -1, up: true, offers: 65535, current: given},
		{label: "where the client asks for no scale", client: -1, server: 9, offers: 65535, current: given},
		{label: "where the server answers none", client: 7, server: -1, up: true, offers: 65535, current: given},
		{label: "with the largest scale", client: 14, server: 14, up: true, offers: 20, current: 1},
		{label: "with a scale that is too large", client: 200, server: 3, up: true, offers: 20, current: 1},
		{label: "that offers less", client: 7, server: 7, up: true, offers: 69, current: 69},
		{label: "that offers nothing", client: 7, server: 7, up: true},
		{label: "of an unknown connection", unknown: true, up: true, offers: 500, current: 500},
		{label: "that resets", client: 7, server: 7, up: true, edits: reset, offers: 500, current: 500},
		{label: "of a queue in which nothing waits", client: 7, server: 7, up: true, idle: true, offers: 500, current: 500},
		{label: "of a client who is policed", client: 7, server: 7, up: true, policed: true, offers: 500, current: 500},
	} {
		port := uint16(5000 + i)
		both := func(m gatewayMeters) { must(t, d.objs.ClientMeters.Put(place, m)) }
		both(gatewayMeters{})
		must(t, d.objs.RateShaping.Put(uint32(0), held))
		if !c.unknown {
			request, answer := opening(port, c.client, c.server)
			for _, packet := range [][]byte{request, answer} {
				program, from := d.objs.LanIn, n.lan
				if &packet[0] == &answer[0] {
					program, from = d.objs.WanIn, n.wan
				}
				_, out, _ := d.try(t, program, index(t, from), packet)
				if w, summed := readWindow(t, out); w != 65535 || !summed {
					t.Errorf("%s: the connection's first packets offer %d, checksum right: %v", c.label, w, summed)
				}
			}
		}
		if c.policed {
			must(t, d.objs.RateShaping.Put(uint32(0), gatewayShaping{Until: until}))
		}
		edits := []func(*datapathtest.Frame){window(c.offers)}
		if c.edits != nil {
			edits = append(edits, c.edits)
		}
		program, from, dest := d.objs.LanIn, n.lan, port
		var meters gatewayMeters
		meters.Down.Ns = until
		if !c.up {
			program, from, dest = d.objs.WanIn, n.wan, 40000
			meters.Down.Ns, meters.Up.Ns = 0, until
			edits = append(edits, down, datapathtest.SourcePort(port))
		}
		if c.idle {
			meters = gatewayMeters{}
		}
		in := tcp(dest, edits...)
		verdict, out := d.tryRedirected(t, program, index(t, from), in, func() { both(meters) })
		if verdict != redirect {
			t.Errorf("%s: verdict %d", c.label, verdict)
		}
		if w, summed := readWindow(t, out); w != c.current || !summed {
			t.Errorf("%s: offers %d, not %d; checksum right: %v", c.label, w, c.current, summed)
		}
		if !bytes.Equal(in[54:], out[54:len(in)]) {
			t.Errorf("%s: what it carries is changed", c.label)
		}
	}
}

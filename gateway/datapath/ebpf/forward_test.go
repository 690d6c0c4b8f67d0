// Tests of the programs that forward packets to clients and to the WAN, one packet at a time. newNetwork makes a LAN
// with alice and bob and a WAN with a server, and open starts a data path between them (main_test.go). tcp and udp make
// a frame from alice to the server, changed by edits; try runs one program over a frame, and packets and change tell
// which counts grew (programs_test.go).

package ebpf

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// decode reads a frame and fails the test if a checksum is wrong.
func decode(t *testing.T, b []byte) (eth *layers.Ethernet, ip *layers.IPv4, l4 *layers.TCP) {
	t.Helper()
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatal(e.Error())
	}
	eth, ip = p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet), p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	l4, _ = p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if l4 != nil {
		l4.SetNetworkLayerForChecksum(ip)
	}
	if err, wrong := p.VerifyChecksums(); err != nil || len(wrong) > 0 {
		t.Errorf("checksums: %v %v", err, wrong)
	}
	return eth, ip, l4
}

// TestForwarded: a packet that is redirected is changed as by a router, and not otherwise.
func TestForwarded(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	lan, wan := index(t, n.lan), index(t, n.wan)
	if verdict, _, _ := d.try(t, d.objs.LanIn, lan, tcp(443)); verdict != ok {
		t.Fatalf("the first packet of a hop has verdict %d: the stack is to see it", verdict)
	}
	for _, ttl := range []uint8{2, 64, 128, 255} {
		live := func(f *datapathtest.Frame) { f.IP.TTL = ttl }
		for name, c := range map[string]struct {
			in       []byte
			up       bool
			from, to datapath.MAC
		}{
			"up":   {tcp(443, live), true, wanMAC, serverMAC},
			"down": {tcp(40000, source(443), down, live), false, lanMAC, aliceMAC},
		} {
			prog, ifindex := d.objs.LanIn, lan
			if !c.up {
				prog, ifindex = d.objs.WanIn, wan
			}
			verdict, out := d.tryRedirected(t, prog, ifindex, c.in, func() {})
			if verdict != redirect {
				t.Fatalf("%s: verdict %d, want a redirect", name, verdict)
			}
			eth, ip, _ := decode(t, out)
			if !bytes.Equal(eth.SrcMAC, c.from[:]) || !bytes.Equal(eth.DstMAC, c.to[:]) {
				t.Errorf("%s: from %s to %s, want %s to %s", name, eth.SrcMAC, eth.DstMAC, hw(c.from), hw(c.to))
			}
			if ip.TTL != ttl-1 {
				t.Errorf("%s: TTL %d became %d", name, ttl, ip.TTL)
			}
			if !bytes.Equal(out[34:], c.in[34:]) {
				t.Errorf("%s: the payload changed", name)
			}
		}
	}
}

// TestWANIn: the table is the policy for packets to the clients, as in TestLANIn. Long: most lines are the table of
// cases.
func TestWANIn(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	must(t, d.Open(netip.MustParsePrefix("198.51.100.0/24"), time.Time{}))
	garden := func(f *datapathtest.Frame) { f.IP.SrcIP = netip.MustParseAddr("198.51.100.9").AsSlice() }
	packet := func(edits ...func(*datapathtest.Frame)) []byte {
		return tcp(40000, append([]func(*datapathtest.Frame){source(443), down}, edits...)...)
	}
	for name, c := range map[string]struct {
		packet  []byte
		verdict uint32
		reason  string
		counted bool
	}{
		"to an admitted client": {packet(), redirect, "forwarded", true},
		"a fragment": {
			packet(func(f *datapathtest.Frame) { f.IP.Flags = layers.IPv4MoreFragments }), ok, "stack", true},
		"longer than the LAN's": {
			packet(func(f *datapathtest.Frame) { f.Payload = make([]byte, 1500) }), ok, "stack", true},
		"to an unknown address":    {packet(to(nobody)), shot, "not-leased", false},
		"to a client before login": {packet(to(bob)), shot, "blocked", false},
		"from the garden":          {packet(to(bob), garden), ok, "garden", false},
		"to the gateway":           {packet(to(routerWAN)), ok, "", false},
		"to the gateway's LAN":     {packet(to(gateway)), ok, "", false},
		"claims to be of the LAN": {
			packet(func(f *datapathtest.Frame) { f.IP.SrcIP = bob.AsSlice() }), shot, "foreign-source", false},
		"for another host": {packet(func(f *datapathtest.Frame) { f.Eth.DstMAC = hw(serverMAC) }), ok, "", false},
		"from a martian": {
			packet(func(f *datapathtest.Frame) { f.IP.SrcIP = netip.MustParseAddr("127.0.0.1").AsSlice() }), ok, "", false},
		"from no address": {
			packet(func(f *datapathtest.Frame) { f.IP.SrcIP = netip.MustParseAddr("0.0.0.9").AsSlice() }), ok, "", false},
		"from a group": {
			packet(func(f *datapathtest.Frame) { f.IP.SrcIP = netip.MustParseAddr("224.0.0.9").AsSlice() }), ok, "", false},
		"IPv6": {datapathtest.EtherType(layers.EthernetTypeIPv6, packet()), ok, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var packets map[string]uint64
			var earlier datapath.Counters
			verdict, _ := d.tryWanting(t, c.reason, d.objs.WanIn, index(t, n.wan), c.packet, func() {
				packets, earlier = d.packets(t), counters(t, d, alice)
			})
			want := map[string]uint64{}
			if c.reason != "" {
				want[c.reason] = 1
			}
			if got := change(packets, d.packets(t)); verdict != c.verdict || !maps.Equal(got, want) {
				t.Errorf("verdict %d and %v, want %d and %v", verdict, got, c.verdict, want)
			}
			var bytes uint64
			if c.counted {
				bytes = uint64(len(c.packet) - 14)
			}
			if got := counters(t, d, alice).DownBytes - earlier.DownBytes; got != bytes {
				t.Errorf("counted %d bytes, want %d", got, bytes)
			}
		})
	}
}

// TestAggregatedPacketsAreCountedAsOnTheWire: an aggregated packet is counted as its segments on the wire, each with
// its headers.
func TestAggregatedPacketsAreCountedAsOnTheWire(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	for name, c := range map[string]struct {
		packet         []byte
		segments, size uint32 // as the kernel says
		packets, bytes uint64 // to be counted
	}{
		"TCP":                 {tcp(443, payload(3000)), 3, 1000, 3, 3 * 1040},
		"TCP, the last short": {tcp(443, payload(2001)), 3, 1000, 3, 3*40 + 2001},
		"UDP":                 {udp(443, payload(3000)), 3, 1000, 3, 3 * 1028},
		"TCP, not counted":    {tcp(443, payload(2001)), 0, 1000, 3, 3*40 + 2001},
		"UDP, not counted":    {udp(443, payload(2000)), 0, 1000, 2, 2 * 1028},
		"one, not counted":    {tcp(443, payload(999)), 0, 1000, 1, 1039},
	} {
		before := counters(t, d, alice)
		d.try(t, d.objs.LanIn, index(t, n.lan), c.packet, c.segments, c.size)
		got := counters(t, d, alice)
		if bytes, packets := got.UpBytes-before.UpBytes, got.UpPackets-before.UpPackets; bytes != c.bytes ||
			packets != c.packets {
			t.Errorf("%s: counted %d bytes and %d packets, want %d and %d", name, bytes, packets, c.bytes, c.packets)
		}
	}
}

// TestLimiterTellsInTime: beyond half of the burst one packet is dropped for each further sixteenth used, and none
// while the use shrinks.
func TestLimiterTellsInTime(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	const bps = 20_000_000
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true,
		Limits: datapath.Limits{UpBps: bps}}))
	place, err := d.placeOf(alice)
	must(t, err)
	lan := index(t, n.lan)
	for i, c := range []struct {
		used  float64 // share of the burst
		drops bool
	}{
		{0.1, false}, {0.49, false}, {0.55, false}, {0.58, true}, {0.59, false}, {0.62, false}, {0.65, true},
		{0.66, false}, {0.9, true}, // two steps at once give one drop
		{0.91, false}, {0.85, false}, {0.7, false}, {0.75, false}, {0.84, true}, // a rise after a fall
		{0.4, false}, {0.58, true}, {0.999, true}, {1.01, true},
	} {
		var m gatewayMeters
		must(t, d.objs.ClientMeters.Lookup(place, &m))
		var verdict uint32
		for took := uint64(burst); took > uint64(burst)/200; { // again if the bucket has filled too much meanwhile
			began := now()
			m.Up.Ns = began - uint64((1-c.used)*float64(burst))
			must(t, d.objs.ClientMeters.Put(place, m))
			verdict, _, _ = d.try(t, d.objs.LanIn, lan, udp(443))
			took = now() - began
		}
		if drops := verdict == shot; drops != c.drops {
			t.Errorf("packet %d, with %.2f of the burst used: dropped %v, want %v", i, c.used, drops, c.drops)
		}
	}
}

// TestReset compares the reset that answers a rejected TCP segment with RFC 9293, 3.10.7.1. Long: the steps of one run,
// each of which needs the state that the one before left.
func TestReset(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	seg := func(edit func(*layers.TCP), bytes int) []byte {
		return tcp(443, from(bob, bobMAC),
			func(f *datapathtest.Frame) { edit(f.L4.(*layers.TCP)); f.Payload = make([]byte, bytes) })
	}
	syn := func(l *layers.TCP) { l.SYN, l.ACK, l.PSH = true, false, false }
	// A neighbour on a virtual link leaves the checksum for later: the field has only the pseudo-header's sum.
	partial := seg(syn, 0)
	sum := uint32(binary.BigEndian.Uint16(partial[26:])) + uint32(binary.BigEndian.Uint16(partial[28:])) +
		uint32(binary.BigEndian.Uint16(partial[30:])) + uint32(binary.BigEndian.Uint16(partial[32:])) + 6 + 20
	binary.BigEndian.PutUint16(partial[50:], uint16(sum+sum>>16))
	for name, c := range map[string]struct {
		in       []byte
		seq, ack uint32
		acks     bool
	}{
		"SYN":              {seg(syn, 0), 0, 1001, true},
		"SYN with data":    {seg(syn, 10), 0, 1011, true},
		"data":             {seg(func(*layers.TCP) {}, 100), 2000, 0, false},
		"FIN, no ACK":      {seg(func(l *layers.TCP) { l.FIN, l.ACK = true, false }, 5), 0, 1006, true},
		"checksum to come": {partial, 0, 1001, true},
	} {
		t.Run(name, func(t *testing.T) {
			verdict, out, _ := d.try(t, d.objs.LanIn, index(t, n.lan), c.in)
			if verdict != redirect {
				t.Fatalf("verdict %d, want it sent back", verdict)
			}
			if name == "checksum to come" {
				if got, want := binary.BigEndian.Uint16(out[50:]), uint16(sum+sum>>16); got != want {
					t.Errorf("the answer's sum is %#x, the pseudo-header's %#x", got, want)
				}
				return
			}
			eth, ip, l := decode(t, out)
			if !bytes.Equal(eth.DstMAC, bobMAC[:]) || !bytes.Equal(eth.SrcMAC, lanMAC[:]) || ip.DstIP.String() != bob.String() ||
				ip.SrcIP.String() != server.String() {
				t.Errorf("from %s %s to %s %s", eth.SrcMAC, ip.SrcIP, eth.DstMAC, ip.DstIP)
			}
			if !l.RST || l.SYN || l.ACK != c.acks || l.Seq != c.seq || l.Ack != c.ack || l.SrcPort != 443 || l.DstPort != 40000 {
				t.Errorf("answer %+v", l)
			}
		})
	}
	rst := seg(func(l *layers.TCP) { l.RST = true }, 0)
	if verdict, _, _ := d.try(t, d.objs.LanIn, index(t, n.lan), rst); verdict != shot {
		t.Errorf("a reset has verdict %d: it must not be answered", verdict)
	}
}

// TestAdmissionEnds: time limits and quotas apply without the daemon.
func TestAdmissionEnds(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	size := uint64(len(udp(443)) - 14)
	send := func() uint32 { v, _, _ := d.try(t, d.objs.LanIn, index(t, n.lan), udp(443)); return v }
	admit := func(c datapath.Client) {
		c.Addrs, c.MAC, c.Admitted = []netip.Addr{alice}, aliceMAC, true
		must(t, d.Set(c))
	}
	admit(datapath.Client{Until: time.Now().Add(time.Hour)})
	if v, _ := d.tryRedirected(t, d.objs.LanIn, index(t, n.lan), udp(443), func() {}); v != redirect {
		t.Fatalf("with an hour left: verdict %d", v)
	}
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true,
		Until: time.Now().Add(-time.Second)}))
	if v, _, _ := d.try(t, d.objs.LanIn, index(t, n.lan), udp(443)); v != redirect || d.packets(t)["rejected"] != 1 {
		t.Errorf("after its time: verdict %d, packets %v; want it rejected", v, d.packets(t))
	}
	for name, limit := range map[string]func(datapath.Counters) datapath.Limits{
		"up": func(c datapath.Counters) datapath.Limits { return datapath.Limits{UpBytes: c.UpBytes + 3*size} },
		"total": func(c datapath.Counters) datapath.Limits {
			return datapath.Limits{TotalBytes: c.UpBytes + c.DownBytes + 3*size}
		},
	} {
		admit(datapath.Client{Limits: limit(counters(t, d, alice))})
		passed := 0
		for range 10 {
			if send() != shot {
				passed++
			}
		}
		if passed != 3 {
			t.Errorf("quota %s of 3 packets: %d passed", name, passed)
		}
	}
	must(t, d.Remove(datapath.IDOf(alice)))
	if v := send(); v != shot {
		t.Errorf("after Remove: verdict %d", v)
	}
}

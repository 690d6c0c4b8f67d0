// Tests of networks behind PPPoE clients, one packet at a time. newNetwork makes a LAN with alice and bob and a WAN
// with a server, and open starts a data path between them (main_test.go). tcp and udp make a frame from alice to the
// server, changed by edits; try runs one program over a frame, and packets and change tell which counts grew
// (programs_test.go). onLine puts a packet into a PPPoE session (pppoe_test.go).

package ebpf

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// TestNetworksBehindLine: the table is the policy for packets of networks behind a PPPoE client: the verdict, the
// counter that counts the packet, and the bytes that are counted for the client.
func TestNetworksBehindLine(t *testing.T) {
	n := newNetwork(t)
	d := n.withLine(t)
	behind := netip.MustParseAddr("203.0.113.9")
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Session: session, Admitted: true,
		Routes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28")}}))
	lan, wan := index(t, n.lan), index(t, n.wan)
	outside := netip.MustParseAddr("203.0.113.16")
	toBehind := func(f *datapathtest.Frame) { down(f); f.IP.DstIP = behind.AsSlice() }
	ofBehind := func(f *datapathtest.Frame) { down(f); f.IP.SrcIP = behind.AsSlice() }
	for name, c := range map[string]struct {
		prog     *ebpf.Program
		link     uint32
		packet   []byte
		verdict  uint32
		reason   string
		up, down uint64 // bytes counted
	}{
		"from it, on the line": {
			d.objs.LanIn, lan, onLine(udp(443, from(behind, aliceMAC))), redirect, "forwarded", uint64(len(udp(443)) - 14), 0},
		"from it, without a line": {d.objs.LanIn, lan, udp(443, from(behind, aliceMAC)), shot, "foreign-source", 0, 0},
		"from it, by another MAC": {d.objs.LanIn, lan, onLine(udp(443, from(behind, bobMAC))), shot, "wrong-mac", 0, 0},
		"from beside it": {
			d.objs.LanIn, lan, onLine(udp(443, from(outside, aliceMAC))), shot, "foreign-source", 0, 0},
		"to it": {
			d.objs.WanIn, wan, udp(40000, toBehind), redirect, "forwarded", 0, uint64(len(udp(40000)) - 14)},
		"from it, but from the WAN": {d.objs.WanIn, wan, udp(40000, ofBehind), shot, "foreign-source", 0, 0},
	} {
		var packets map[string]uint64
		var before datapath.Counters
		verdict, _ := d.tryWanting(t, c.reason, c.prog, c.link, c.packet, func() {
			packets, before = d.packets(t), counters(t, d, alice)
		})
		got, want := change(packets, d.packets(t)), map[string]uint64{c.reason: 1}
		if verdict != c.verdict || !maps.Equal(got, want) {
			t.Errorf("%s: verdict %d and %v, want %d and %v", name, verdict, got, c.verdict, want)
		}
		if now := counters(t, d, alice); now.UpBytes-before.UpBytes != c.up || now.DownBytes-before.DownBytes != c.down {
			t.Errorf("%s: counted %+v after %+v", name, now, before)
		}
	}
}

// TestCutterTooLongPacket: the cutter (cutter.go) is the link that splits aggregated packets to PPPoE clients. A packet
// there that is too long and must not be fragmented causes an ICMP error to its sender, with the client's address.
func TestCutterTooLongPacket(t *testing.T) {
	n := newNetwork(t)
	d := n.withLine(t)
	sent := udp(40000, down, payload(1472), func(f *datapathtest.Frame) {
		f.IP.Flags, f.Eth.SrcMAC, f.Eth.DstMAC = layers.IPv4DontFragment, hw(lanMAC), hw(aliceMAC)
	})
	verdict, out, _ := d.try(t, d.objs.CutIn, index(t, n.lan), sent)
	if verdict != redirect || len(out) != 14+20+8+28 {
		t.Fatalf("verdict %d, and %d bytes", verdict, len(out))
	}
	if !bytes.Equal(out[:6], lanMAC[:]) || !bytes.Equal(out[26:30], alice.AsSlice()) ||
		!bytes.Equal(out[30:34], server.AsSlice()) {
		t.Errorf("it is from %x to %x", out[26:30], out[30:34])
	}
	if icmp := out[34:]; icmp[0] != 3 || icmp[1] != 4 || binary.BigEndian.Uint16(icmp[6:]) != datapath.PPPoEMTU ||
		!bytes.Equal(icmp[8:], sent[14:42]) {
		t.Errorf("it says %x", icmp)
	}
}

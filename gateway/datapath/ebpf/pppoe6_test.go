package ebpf

import (
	"bytes"
	"encoding/binary"
	"io"
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

var (
	link6    = netip.MustParsePrefix("2001:db8:100:7::/64") // of alice's session
	onLink6  = netip.MustParseAddr("2001:db8:100:7::5")
	offLink6 = netip.MustParseAddr("2001:db8:100:8::5") // of nobody's session
)

// withLine6 opens a data path with alice in a PPPoE session that has link6 and behind6, and bob in another.
func withLine6(t *testing.T) (n network, d *Datapath) {
	t.Helper()
	n = newNetwork6(t)
	run(t, "ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent", n.env()...)
	d = n.open6(t, func(c *Config) { c.PPPoE = true })
	d.redirecting6(t)
	clients := netip.MustParsePrefix("2001:db8:100::/48")
	must(t, d.SetPrefixes6([]netip.Prefix{netip.PrefixFrom(gateway6, 64).Masked(), clients}, nil))
	must(t, d.SetPools6([]netip.Prefix{pool6, clients}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Session: session, Admitted: true,
		Routes: []netip.Prefix{link6, behind6}}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC, Session: session + 1, Admitted: true}))
	return n, d
}

// onLine6 puts a frame's IPv6 packet into a PPPoE session.
func onLine6(b []byte, number uint16) []byte {
	h := binary.BigEndian.AppendUint16([]byte{0x88, 0x64, 0x11, 0}, number)
	h = append(binary.BigEndian.AppendUint16(h, uint16(2+len(b)-14)), 0, 0x57)
	return bytes.Join([][]byte{b[:12], h, b[14:]}, nil)
}

// segment6 is a TCP segment of bytes by IPv6; with options it is a SYN.
func segment6(t *testing.T, src, dst datapath.MAC, from, to netip.Addr, bytes int, options ...layers.TCPOption) []byte {
	t.Helper()
	ip := &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	tcp := &layers.TCP{SrcPort: 443, DstPort: 40000, Seq: 1, ACK: len(options) == 0, SYN: len(options) > 0, Window: 1000,
		Options: options}
	must(t, tcp.SetNetworkLayerForChecksum(ip))
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: hw(src), DstMAC: hw(dst), EthernetType: layers.EthernetTypeIPv6}, ip, tcp,
		gopacket.Payload(make([]byte, bytes))))
	return b.Bytes()
}

// TestSessionPrefixIPv6 is the policy for addresses of a session's /64 and of the network that is delegated to it: the
// first packet from each passes, to each too, in the session alone. Of the /64 the daemon hears who sends. Long: a
// table of packets.
func TestSessionPrefixIPv6(t *testing.T) {
	n, d := withLine6(t)
	heard, err := d.Heard6()
	must(t, err)
	defer heard.Close()
	lan, wan := index(t, n.lan), index(t, n.wan)
	up := func(mac datapath.MAC, number uint16, from netip.Addr) []byte {
		return onLine6(tcp6(t, mac, lanMAC, from, server6), number)
	}
	down := func(to netip.Addr) []byte { return tcp6(t, serverMAC, wanMAC, server6, to) }
	const size = 40 + 20 + 100
	for i, step := range []struct {
		name     string
		prog     *ebpf.Program
		link     uint32
		packet   []byte
		verdict  uint32
		reason   string
		up, down uint64 // bytes counted
	}{
		{"of its link", d.objs.LanIn, lan, up(aliceMAC, session, onLink6), redirect, "forwarded", size, 0},
		{"another of its link", d.objs.LanIn, lan, up(aliceMAC, session, onLink6.Next()), redirect, "forwarded", size, 0},
		{"delegated", d.objs.LanIn, lan, up(aliceMAC, session, behindIt), redirect, "forwarded", size, 0},
		{"another session", d.objs.LanIn, lan, up(bobMAC, session+1, onLink6), shot, "wrong-mac", 0, 0},
		{"another session's number", d.objs.LanIn, lan, up(aliceMAC, session+1, onLink6), shot, "wrong-mac", 0, 0},
		{"another MAC", d.objs.LanIn, lan, up(bobMAC, session, behindIt), shot, "wrong-mac", 0, 0},
		{"on Ethernet", d.objs.LanIn, lan, tcp6(t, aliceMAC, lanMAC, onLink6, server6), shot, "wrong-mac", 0, 0},
		{"of nobody's link", d.objs.LanIn, lan, up(aliceMAC, session, offLink6), shot, "not-leased", 0, 0},
		{"of the LAN", d.objs.LanIn, lan, up(aliceMAC, session, alice6), shot, "not-leased", 0, 0},
		{"of elsewhere", d.objs.LanIn, lan, up(aliceMAC, session, server6), shot, "foreign-source", 0, 0},
		{"to its link", d.objs.WanIn, wan, down(onLink6), redirect, "forwarded", 0, size},
		{"to what is delegated", d.objs.WanIn, wan, down(behindIt), redirect, "forwarded", 0, size},
		{"to nobody's link", d.objs.WanIn, wan, down(offLink6), shot, "not-leased", 0, 0},
	} {
		var packets map[string]uint64
		var before datapath.Counters
		verdict, _ := d.tryWanting(t, step.reason, step.prog, step.link, step.packet, func() {
			packets, before = d.packets(t), counters(t, d, alice)
		})
		got, want := change(packets, d.packets(t)), map[string]uint64{step.reason: 1}
		if verdict != step.verdict || !maps.Equal(got, want) {
			t.Errorf("%s: verdict %d and %v, want %d and %v", step.name, verdict, got, step.verdict, want)
		}
		now := counters(t, d, alice)
		if now.UpBytes-before.UpBytes != step.up || now.DownBytes-before.DownBytes != step.down {
			t.Errorf("%s: counted %+v after %+v", step.name, now, before)
		}
		if i < 2 {
			hears(t, heard, step.packet)
		}
	}
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Session: session, Admitted: true,
		Routes: []netip.Prefix{link6}}))
	if verdict, _, _ := d.try(t, d.objs.LanIn, lan, up(aliceMAC, session, behindIt)); verdict != shot {
		t.Errorf("what is delegated no longer has the verdict %d", verdict)
	}
	must(t, d.Remove(datapath.IDOf(alice)))
	if verdict, _, _ := d.try(t, d.objs.LanIn, lan, up(aliceMAC, session, onLink6)); verdict != shot {
		t.Errorf("a session that has ended has the verdict %d", verdict)
	}
}

// hears waits until a source tells of a frame, with its addresses and its session.
func hears(t *testing.T, source io.Reader, sent []byte) {
	t.Helper()
	frame := make([]byte, 2048)
	// It tells again of a packet that was sent again, and of what the LAN's own hosts send.
	for range 50 {
		length, err := source.Read(frame)
		must(t, err)
		if !bytes.Equal(frame[:18], sent[:18]) {
			continue
		}
		if length != 14+8+40 {
			t.Fatalf("%x is heard", frame[:length])
		}
		if bytes.Equal(frame[22:length], sent[22:length]) {
			return
		}
	}
	t.Errorf("%x is not heard", sent)
}

// asks6 has alice begin the connection of segment6, until the hop is known.
func asks6(t *testing.T, n network, d *Datapath) {
	t.Helper()
	packet := onLine6(tcp6(t, aliceMAC, lanMAC, onLink6, server6), session)
	if verdict, _ := d.tryRedirected(t, d.objs.LanIn, index(t, n.lan), packet, func() {}); verdict != redirect {
		t.Fatalf("verdict %d", verdict)
	}
}

// TestNewSessionsKeepFlows: sessions that come, with networks that nobody had, leave what the programs know of others'
// flows; one that changes does not.
func TestNewSessionsKeepFlows(t *testing.T) {
	_, d := withLine6(t)
	changes := func() uint32 {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.settings6.Changes
	}
	before := changes()
	c := datapath.Client{Addrs: []netip.Addr{nobody}, MAC: bobMAC, Session: session + 2, Admitted: true,
		Routes: []netip.Prefix{netip.PrefixFrom(offLink6, 64).Masked()}}
	must(t, d.Set(c))
	must(t, d.Set(c))
	if now := changes(); now != before {
		t.Errorf("%d changes of a session that has come", now-before)
	}
	c.Admitted = false
	must(t, d.Set(c))
	if now := changes(); now != before+1 {
		t.Errorf("%d changes of a session that is admitted no longer", now-before)
	}
}

// TestSessionMSSIPv6: the MSS that a SYN offers, from a session and to one, is lowered to the session's MTU.
func TestSessionMSSIPv6(t *testing.T) {
	n, d := withLine6(t)
	lan := index(t, n.lan)
	offer := func(mss uint16) layers.TCPOption {
		return layers.TCPOption{OptionType: 2, OptionLength: 4, OptionData: binary.BigEndian.AppendUint16(nil, mss)}
	}
	nop := layers.TCPOption{OptionType: 1, OptionLength: 1}
	up := func(options ...layers.TCPOption) []byte {
		return segment6(t, aliceMAC, lanMAC, onLink6, server6, 0, options...)
	}
	down := func(options ...layers.TCPOption) []byte {
		return segment6(t, lanMAC, aliceMAC, gateway6, onLink6, 0, options...)
	}
	d.try(t, d.objs.LanIn, lan, onLine6(up(offer(1000)), session)) // asks for the hop
	for name, c := range map[string]struct{ sent, want []byte }{
		"lower":       {up(offer(1400)), up(offer(1400))},
		"as large":    {up(offer(1432)), up(offer(1432))},
		"larger":      {up(offer(1440)), up(offer(1432))},
		"at odd byte": {up(nop, offer(1440)), up(nop, offer(1432))},
	} {
		verdict, out, _ := d.try(t, d.objs.LanIn, lan, onLine6(c.sent, session))
		if verdict != redirect && verdict != ok || !bytes.Equal(out[14+40:len(c.want)], c.want[14+40:]) {
			t.Errorf("up, %s: verdict %d and\n%x, want\n%x", name, verdict, out[14+40:], c.want[14+40:])
		}
	}
	for name, c := range map[string]struct{ sent, want []byte }{
		"lower":       {down(offer(1400)), down(offer(1400))},
		"larger":      {down(offer(1440)), down(offer(1432))},
		"at odd byte": {down(nop, offer(1440)), down(nop, offer(1432))},
	} {
		verdict, out, _ := d.try(t, d.objs.LanOut, lan, c.sent)
		if want := onLine6(c.want, session); verdict != ok || !bytes.Equal(out, want) {
			t.Errorf("down, %s: verdict %d and\n%x, want\n%x", name, verdict, out, want)
		}
	}
}

// TestTooLongForPPPoEIPv6: the sender of a packet that is longer than the session's MTU learns that (RFC 4443, 3.2):
// from the gateway's address where packets are redirected, and from the client's where the stack forwards. An error is
// never answered by one.
func TestTooLongForPPPoEIPv6(t *testing.T) {
	n, d := withLine6(t)
	lan, wan := index(t, n.lan), index(t, n.wan)
	asks6(t, n, d)
	const most = datapath.PPPoEMTU - 40 - 20
	fits := segment6(t, serverMAC, wanMAC, server6, onLink6, most)
	long := segment6(t, serverMAC, wanMAC, server6, onLink6, most+1)
	if verdict, out, _ := d.try(t, d.objs.WanIn, wan, fits); verdict == shot || len(out) != len(fits) {
		t.Errorf("a packet that fits has the verdict %d, and %d of %d bytes", verdict, len(out), len(fits))
	}
	tooBig := func(frame []byte, from netip.Addr) {
		t.Helper()
		if len(frame) < 14+40+8+40 {
			t.Fatalf("an error of %d bytes", len(frame))
		}
		ip, icmp := frame[14:], frame[14+40:]
		if frame[12] != 0x86 || frame[13] != 0xdd || ip[6] != 58 || !bytes.Equal(ip[8:24], from.AsSlice()) ||
			!bytes.Equal(ip[24:40], server6.AsSlice()) {
			t.Errorf("the error has the headers %x", frame[:14+40])
		}
		if icmp[0] != 2 || icmp[1] != 0 || binary.BigEndian.Uint32(icmp[4:]) != datapath.PPPoEMTU ||
			!bytes.Equal(icmp[8:8+7], long[14:14+7]) || !bytes.Equal(icmp[8+8:8+40], long[14+8:14+40]) {
			t.Errorf("it says %x", icmp)
		}
	}
	before := counters(t, d, alice)
	verdict, out, _ := d.try(t, d.objs.WanIn, wan, long)
	if verdict != redirect || !bytes.Equal(out[:6], serverMAC[:]) {
		t.Fatalf("verdict %d, to %x", verdict, out[:6])
	}
	tooBig(out, gateway6)
	if now := counters(t, d, alice); now.DownPackets != before.DownPackets {
		t.Errorf("counted %+v after %+v", now, before)
	}
	forwarded := bytes.Clone(long) // by the stack
	copy(forwarded, append(aliceMAC[:], lanMAC[:]...))
	if verdict, out, _ = d.try(t, d.objs.LanOut, lan, forwarded); verdict != redirect {
		t.Fatalf("verdict %d", verdict)
	}
	tooBig(out, onLink6)
	failure := bytes.Clone(forwarded)
	failure[14+6], failure[14+40] = 58, 1 // destination unreachable
	if verdict, _, _ := d.try(t, d.objs.LanOut, lan, failure); verdict != shot {
		t.Errorf("an error that is too long has the verdict %d", verdict)
	}
}

// TestAggregatedForPPPoEIPv6: aggregated packets to a session, which its header cannot count, go to the interface that
// cuts them, whole; what it has cut gets the session's header.
func TestAggregatedForPPPoEIPv6(t *testing.T) {
	n, d := withLine6(t)
	lan, wan := index(t, n.lan), index(t, n.wan)
	asks6(t, n, d)
	all := segment6(t, lanMAC, aliceMAC, server6, onLink6, 3000)
	if verdict, out, _ := d.try(t, d.objs.LanOut, lan, all, 3, 1000); verdict != redirect || !bytes.Equal(out, all) {
		t.Errorf("verdict %d, and %d of %d bytes", verdict, len(out), len(all))
	}
	copy(all, append(wanMAC[:], serverMAC[:]...))
	before := counters(t, d, alice)
	if verdict, _, _ := d.try(t, d.objs.WanIn, wan, all, 3, 1000); verdict == shot {
		t.Error("dropped where it comes in")
	}
	now := counters(t, d, alice)
	if packets, bytes := now.DownPackets-before.DownPackets, now.DownBytes-before.DownBytes; packets != 3 ||
		bytes != 3*(60+1000) {
		t.Errorf("counted %d packets and %d bytes, want the 3 that it is cut into", packets, bytes)
	}
	one := segment6(t, lanMAC, aliceMAC, server6, onLink6, 1000)
	verdict, out, _ := d.try(t, d.objs.CutIn, index(t, n.lan), one)
	if want := onLine6(one, session); verdict != redirect || !bytes.Equal(out, want) {
		t.Errorf("what was cut has the verdict %d and\n%x, want\n%x", verdict, out, want)
	}
	if verdict, _, _ := d.try(t, d.objs.CutIn, index(t, n.lan), all, 3, 1000); verdict != shot {
		t.Errorf("what was not cut has the verdict %d", verdict)
	}
}

// Tests of the programs for frames of PPPoE sessions, one frame at a time. newNetwork makes a LAN with alice and bob
// and a WAN with a server, and open starts a data path between them (main_test.go). tcp and udp make a frame from alice
// to the server, changed by edits; try runs one program over a frame, and packets and change tell which counts grew
// (programs_test.go).

package ebpf

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

const session = 0x1234

// onLine puts a frame's packet into a PPPoE session.
func onLine(b []byte) []byte {
	h := binary.BigEndian.AppendUint16([]byte{0x88, 0x64, 0x11, 0}, session)
	h = append(binary.BigEndian.AppendUint16(h, uint16(2+len(b)-14)), 0, 0x21)
	return bytes.Join([][]byte{b[:12], h, b[14:]}, nil)
}

// put returns a frame of the PPPoE session with other bytes at a position after the Ethernet header.
func put(position int, to ...byte) []byte {
	b := onLine(udp(443))
	copy(b[position:], to)
	return b
}

// withLine opens a data path with alice on PPPoE, and bob without.
func (n network) withLine(t *testing.T) *Datapath {
	t.Helper()
	n.neighbour(t)
	run(t, "ip route add default via 192.0.2.2 dev $wan", n.env()...)
	d := n.open(t, func(c *Config) { c.PPPoE = true })
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Session: session, Admitted: true}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC, Admitted: true}))
	return d
}

// TestLanInPPPoE: the table is the policy for frames of PPPoE sessions: the verdict, the counter that counts the frame,
// and the packet that leaves. Long: most lines are the table of cases.
func TestLanInPPPoE(t *testing.T) {
	n := newNetwork(t)
	d := n.withLine(t)
	lan := index(t, n.lan)
	syn := func(mss uint16, more ...layers.TCPOption) []byte {
		return datapathtest.SYN(443, func(f *datapathtest.Frame) {
			f.L4.(*layers.TCP).Options = append(
				more, layers.TCPOption{OptionType: 2, OptionLength: 4, OptionData: binary.BigEndian.AppendUint16(nil, mss)})
		})
	}
	nop := layers.TCPOption{OptionType: 1, OptionLength: 1}
	cases := map[string]struct {
		packet  []byte
		verdict uint32
		reason  string
		out     []byte // without the PPPoE session: counted
	}{
		"admitted": {onLine(tcp(443)), redirect, "forwarded", tcp(443)},
		"UDP":      {onLine(udp(443)), redirect, "forwarded", udp(443)},
		"a short one, padded": {
			append(onLine(udp(443, payload(2))), make([]byte, 8)...), redirect, "forwarded", udp(443, payload(2))},
		"trailing bytes": {append(onLine(udp(443)), 'y'), ok, "stack", udp(443)},
		"a fragment": {
			onLine(udp(443, datapathtest.Fragment(0))), ok, "stack", udp(443, datapathtest.Fragment(0))},
		"a SYN, lower":            {onLine(syn(1400)), redirect, "forwarded", syn(1400)},
		"a SYN, clamped":          {onLine(syn(1460)), redirect, "forwarded", syn(1452)},
		"a SYN, clamped, odd":     {onLine(syn(1460, nop)), redirect, "forwarded", syn(1452, nop)},
		"to the gateway":          {onLine(tcp(22, to(gateway))), ok, "local", nil},
		"without a line":          {tcp(443), shot, "wrong-mac", nil},
		"another session":         {put(16, 0x12, 0x35), shot, "wrong-mac", nil},
		"no session":              {put(16, 0, 0), shot, "malformed", nil},
		"another MAC":             {onLine(udp(443, from(alice, bobMAC))), shot, "wrong-mac", nil},
		"of one without a line":   {onLine(udp(443, from(bob, bobMAC))), shot, "wrong-mac", nil},
		"never leased":            {onLine(udp(443, from(nobody, aliceMAC))), shot, "not-leased", nil},
		"outside the LAN":         {onLine(udp(443, from(server, aliceMAC))), shot, "foreign-source", nil},
		"longer than its frame":   {put(18, 0xff), shot, "malformed", nil},
		"shorter than its packet": {put(18, 0, 100), shot, "malformed", nil},
		"a length of 0":           {put(18, 0, 0), shot, "malformed", nil},
		"cut in IP's header":      {onLine(udp(443))[:30], shot, "malformed", nil},
		"IPv6":                    {put(20, 0, 0x57), shot, "ipv6", nil},
		"LCP":                     {put(20, 0xc0, 0x21), ok, "", nil},
		"a code":                  {put(15, 0xa7), ok, "", nil},
		"version 2":               {put(14, 0x21), ok, "", nil},
		"IP of version 6":         {put(22, 0x65), shot, "malformed", nil},
		"a wrong sum":             {put(32, 1, 2), shot, "malformed", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d.tryRedirected(t, d.objs.LanIn, lan, onLine(tcp(443)), func() {}) // the next hop is now cached, for a second
			var packets map[string]uint64
			var earlier datapath.Counters
			verdict, out := d.tryWanting(t, c.reason, d.objs.LanIn, lan, c.packet, func() {
				packets, earlier = d.packets(t), counters(t, d, alice)
			})
			want := map[string]uint64{}
			if c.reason != "" {
				want[c.reason] = 1
			}
			if got := change(packets, d.packets(t)); verdict != c.verdict || !maps.Equal(got, want) {
				t.Errorf("verdict %d and %v, want %d and %v", verdict, got, c.verdict, want)
			}
			if got, want := counters(t, d, alice).UpBytes-earlier.UpBytes, uint64(max(0, len(c.out)-14)); got != want {
				t.Errorf("counted %d bytes, want %d", got, want)
			}
			if c.out != nil && !bytes.Equal(out[26:len(c.out)], c.out[26:]) {
				t.Errorf("the packet is\n%x, want\n%x", out[26:], c.out[26:])
			}
			if (c.out != nil || c.reason == "local") && (out[12] != 8 || out[13] != 0) {
				t.Errorf("its type is %x", out[12:14])
			}
		})
	}
}

// TestLanOutPPPoE: packets that the stack sends to a PPPoE session get the PPPoE header, and no other packets do.
func TestLanOutPPPoE(t *testing.T) {
	n := newNetwork(t)
	d := n.withLine(t)
	lan := index(t, n.lan)
	fromOwn := func(f *datapathtest.Frame) { // from the gateway itself
		f.IP.SrcIP, f.IP.DstIP, f.Eth.SrcMAC, f.Eth.DstMAC = gateway.AsSlice(), alice.AsSlice(), hw(lanMAC), hw(aliceMAC)
	}
	toBob := func(f *datapathtest.Frame) { fromOwn(f); f.IP.DstIP = bob.AsSlice() }
	long := func(flags layers.IPv4Flag) []byte {
		return udp(443, fromOwn, payload(1472), func(f *datapathtest.Frame) { f.IP.Flags = flags })
	}
	lcp := onLine(udp(443, fromOwn))
	lcp[20] = 0xc0
	for name, c := range map[string]struct {
		packet     []byte
		verdict    uint32
		out        []byte
		aggregated []uint32
	}{
		"UDP": {udp(443, fromOwn), ok, onLine(udp(443, fromOwn)), nil},
		"padded": {append(udp(443, fromOwn, payload(2)), make([]byte, 16)...), ok, append(onLine(udp(443, fromOwn,
			payload(2))), make([]byte, 16)...), nil},
		"as long as can be":      {udp(443, fromOwn, payload(1464)), ok, onLine(udp(443, fromOwn, payload(1464))), nil},
		"to be fragmented":       {long(0), redirect, long(0), nil},
		"must not be fragmented": {long(layers.IPv4DontFragment), redirect, long(layers.IPv4DontFragment), nil},
		"aggregated": {
			tcp(443, fromOwn, payload(3000)), redirect, tcp(443, fromOwn, payload(3000)), []uint32{3, 1000}},
		"to one without a line":   {udp(443, toBob), ok, udp(443, toBob), nil},
		"control, from a socket":  {lcp, ok, lcp, nil},
		"ARP":                     {arpFrame(gateway, lanMAC), ok, arpFrame(gateway, lanMAC), nil},
		"for nobody's address":    {udp(443, fromOwn, to(nobody)), ok, udp(443, fromOwn, to(nobody)), nil},
		"from a line, as it came": {onLine(udp(443, fromOwn)), ok, onLine(udp(443, fromOwn)), nil},
	} {
		verdict, out, _ := d.try(t, d.objs.LanOut, lan, c.packet, c.aggregated...)
		if verdict != c.verdict || c.out != nil && !bytes.Equal(out, c.out) {
			t.Errorf("%s: verdict %d, want %d, and\n%x, want\n%x", name, verdict, c.verdict, out, c.out)
		}
	}
}

// TestTooLongForPPPoE: the sender of a packet that must not be fragmented learns the PPPoE session's MTU
// (RFC 1191, 4).
func TestTooLongForPPPoE(t *testing.T) {
	n := newNetwork(t)
	d := n.withLine(t)
	sent := udp(40000, down, payload(1472), func(f *datapathtest.Frame) { f.IP.Flags = layers.IPv4DontFragment })
	before := counters(t, d, alice)
	verdict, out, _ := d.try(t, d.objs.WanIn, index(t, n.wan), sent)
	if verdict != redirect || len(out) != 14+20+8+28 {
		t.Fatalf("verdict %d, and %d bytes", verdict, len(out))
	}
	if !bytes.Equal(out[:6], serverMAC[:]) || !bytes.Equal(out[6:12], wanMAC[:]) ||
		!bytes.Equal(out[30:34], server.AsSlice()) {
		t.Errorf("it goes to %x and %x", out[:14], out[30:34])
	}
	if icmp := out[34:]; icmp[0] != 3 || icmp[1] != 4 || binary.BigEndian.Uint16(icmp[6:]) != datapath.PPPoEMTU ||
		!bytes.Equal(icmp[8:], sent[14:42]) {
		t.Errorf("it says %x", icmp)
	}
	if now := counters(t, d, alice); now.DownPackets != before.DownPackets {
		t.Errorf("counted %+v after %+v", now, before)
	}
}

// TestPPPoEFramesAreMarked: frames of a PPPoE session have PPPoE's type for everything after lan_out, such as queues
// and the interface.
func TestPPPoEFramesAreMarked(t *testing.T) {
	netnstest.NeedTCX(t)
	n := newNetwork(t)
	n.withLine(t)
	types, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1 << 16})
	must(t, err)
	defer types.Close()
	const protocol = 16 // of struct __sk_buff, network order
	see, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R1, asm.R1, protocol, asm.Word),
		asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word),
		asm.StoreImm(asm.RFP, -8, 1, asm.Word),
		asm.LoadMapPtr(asm.R1, types.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnMapUpdateElem.Call(),
		asm.Mov.Imm(asm.R0, -1), asm.Return(),
	}})
	must(t, err)
	defer see.Close()
	l, err := link.AttachTCX(
		link.TCXOptions{Program: see, Interface: int(index(t, n.lan)), Attach: ebpf.AttachTCXEgress, Anchor: link.Tail()})
	must(t, err)
	defer l.Close()
	try("ping -c 1 -W 1 10.1.0.10") // nobody answers
	for kind, want := range map[uint16]uint32{0x8864: 1, 0x0800: 0} {
		var seen uint32
		must(t, types.Lookup(uint32(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, kind))), &seen))
		if seen != want {
			t.Errorf("type %#x was seen: %d, want %d", kind, seen, want)
		}
	}
}

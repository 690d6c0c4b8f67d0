package persona

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Verdicts of tc.
const (
	pass     = 0
	shot     = 2
	redirect = 7
)

var (
	lan     = netip.MustParsePrefix("10.77.0.0/16")
	own     = netip.MustParseAddr("10.77.0.2") // the host's
	alice   = netip.MustParseAddr("10.77.1.1")
	bob     = netip.MustParseAddr("10.77.1.2")
	nobody  = netip.MustParseAddr("10.77.9.9")
	outside = netip.MustParseAddr("192.0.2.1")

	aliceMAC = MAC{2, 0x67, 0x77, 'a', 0, 1}
	bobMAC   = MAC{2, 0x67, 0x77, 'a', 0, 2}
	hostMAC  = MAC{2, 0, 0, 0, 0, 1}
	wireMAC  = MAC{2, 0, 0, 0, 0, 2} // the router's
)

// loadedPrograms is a link without an interface: its programs are run by hand.
func loadedPrograms(t *testing.T) *Link {
	t.Helper()
	l := &Link{cfg: Config{LAN: lan, Clients: 2}, ifi: &net.Interface{Index: 1}}
	spec, err := loadPrograms()
	if err != nil {
		t.Fatal(err)
	}
	spec.Maps["personas"].MaxEntries = 2
	base := lan.Addr().As4()
	for name, value := range map[string]uint32{
		"lan_base": binary.NativeEndian.Uint32(base[:]), "lan_mask": binary.NativeEndian.Uint32(net.CIDRMask(lan.Bits(), 32)),
		"host_addr": mapKey(own),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	if err := spec.LoadAndAssign(&l.objs, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.objs.Close() })
	for ip, mac := range map[netip.Addr]MAC{alice: aliceMAC, bob: bobMAC} {
		if err := l.Put(ip, mac); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func udpFrame(t *testing.T, from, to MAC, src, dst netip.Addr, port uint16) []byte {
	t.Helper()
	b, err := datagram(from, to, netip.AddrPortFrom(src, 4000), netip.AddrPortFrom(dst, port), make([]byte, 72))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func arpFrame(t *testing.T, to MAC, op uint16, from MAC, sender, target netip.Addr) []byte {
	t.Helper()
	b, err := arpRequest(from, sender, target)
	if err != nil {
		t.Fatal(err)
	}
	copy(b, to[:])
	binary.BigEndian.PutUint16(b[ethernetBytes+6:], op)
	return append(b, make([]byte, 18)...)
}

// try runs a program over a packet.
func try(t *testing.T, p *ebpf.Program, packet []byte) (verdict uint32, out []byte) {
	t.Helper()
	opts := &ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+64)}
	verdict, err := p.Run(opts)
	if err != nil {
		t.Fatal(err)
	}
	return verdict, opts.DataOut
}

func (l *Link) refusals(t *testing.T) Refusals {
	t.Helper()
	r, err := l.Refusals()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (l *Link) counters(t *testing.T, ip netip.Addr) Counters {
	t.Helper()
	c, err := l.Counters(ip)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestToLAN(t *testing.T) {
	for _, tt := range []struct {
		name    string
		packet  []byte
		verdict uint32
		want    []byte // nil: as it was
		sent    uint64 // packets of alice
		refused Refusals
	}{
		{"a client's own address goes in", udpFrame(t, hostMAC, wireMAC, alice, outside, 80), pass,
			udpFrame(t, aliceMAC, wireMAC, alice, outside, 80), 1, Refusals{}},
		{"an address nobody has", udpFrame(t, hostMAC, wireMAC, nobody, outside, 80), shot, nil, 0, Refusals{Source: 1}},
		{"the host's own", udpFrame(t, hostMAC, wireMAC, own, outside, 80), pass, nil, 0, Refusals{}},
		{"of another network", udpFrame(t, hostMAC, wireMAC, outside, outside, 80), pass, nil, 0, Refusals{}},
		{"a client without an address asks for one",
			udpFrame(t, bobMAC, broadcast, netip.IPv4Unspecified(), broadcastAddr, 67),
			pass, nil, 0, Refusals{}},
		{"the kernel asks for the router as a client", arpFrame(t, broadcast, 1, hostMAC, alice, nobody), pass,
			arpFrame(t, broadcast, 1, aliceMAC, alice, nobody), 0, Refusals{}},
		{"it asks as nobody", arpFrame(t, broadcast, 1, hostMAC, nobody, own), shot, nil, 0, Refusals{Source: 1}},
		{"it asks as itself", arpFrame(t, broadcast, 1, hostMAC, own, nobody), pass, nil, 0, Refusals{}},
		{"cut short", arpFrame(t, broadcast, 1, hostMAC, alice, nobody)[:30], shot, nil, 0, Refusals{Malformed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := loadedPrograms(t)
			verdict, out := try(t, l.objs.ToLan, tt.packet)
			check(t, verdict, tt.verdict, out, tt.packet, tt.want)
			if got := l.refusals(t); got != tt.refused {
				t.Errorf("refusals %+v, want %+v", got, tt.refused)
			}
			want := Counters{TxPackets: tt.sent, TxBytes: tt.sent * uint64(len(tt.packet)-14)}
			if got := l.counters(t, alice); got != want {
				t.Errorf("counters of alice %+v, want %+v", got, want)
			}
			if got := l.counters(t, bob); got != (Counters{}) {
				t.Errorf("counters of bob %+v, want none", got)
			}
		})
	}
}

// arrival is a packet that comes to the clients' host, and what becomes of it.
type arrival struct {
	name    string
	packet  []byte
	verdict uint32
	want    []byte // nil: as it was
	alice   Counters
	refused Refusals
}

func (a arrival) run(t *testing.T, l *Link) {
	t.Helper()
	verdict, out := try(t, l.objs.FromLan, a.packet)
	check(t, verdict, a.verdict, out, a.packet, a.want)
	if got := l.refusals(t); got != a.refused {
		t.Errorf("refusals %+v, want %+v", got, a.refused)
	}
	if got := l.counters(t, alice); got != a.alice {
		t.Errorf("counters of alice %+v, want %+v", got, a.alice)
	}
}

func TestFromLAN(t *testing.T) {
	answer := arpFrame(t, wireMAC, 2, aliceMAC, alice, outside)
	copy(answer[14+18:], wireMAC[:])
	probe := arpFrame(t, broadcast, 1, wireMAC, netip.IPv4Unspecified(), alice)
	defence := arpFrame(t, wireMAC, 2, aliceMAC, alice, netip.IPv4Unspecified())
	copy(defence[14+18:], wireMAC[:])
	for _, tt := range []arrival{
		{"both addresses are a client's", udpFrame(t, wireMAC, aliceMAC, outside, alice, 80), pass, nil,
			Counters{RxPackets: 1, RxBytes: 100}, Refusals{}},
		{"its IP address, another's hardware address", udpFrame(t, wireMAC, bobMAC, outside, alice, 80), shot, nil,
			Counters{Misdirected: 1}, Refusals{}},
		{"its IP address, the host's hardware address", udpFrame(t, wireMAC, hostMAC, outside, alice, 80), shot, nil,
			Counters{Misdirected: 1}, Refusals{}},
		{"its IP address, to all", udpFrame(t, wireMAC, broadcast, outside, alice, 80), shot, nil, Counters{Misdirected: 1},
			Refusals{}},
		{"an address nobody has", udpFrame(t, wireMAC, aliceMAC, outside, nobody, 80), shot, nil, Counters{},
			Refusals{Destination: 1}},
		{"the host's own", udpFrame(t, wireMAC, hostMAC, outside, own, 80), pass, nil, Counters{}, Refusals{}},
		{"a lease, which another socket has seen", udpFrame(t, wireMAC, aliceMAC, outside, alice, 68), shot, nil, Counters{},
			Refusals{}},
		{"a question for its address", arpFrame(t, broadcast, 1, wireMAC, outside, alice), redirect, answer,
			Counters{ARPAnswered: 1}, Refusals{}},
		{"the same, to it alone", arpFrame(t, aliceMAC, 1, wireMAC, outside, alice), redirect, answer,
			Counters{ARPAnswered: 1}, Refusals{}},
		{"the same, to another alone", arpFrame(t, bobMAC, 1, wireMAC, outside, alice), shot, nil, Counters{Misdirected: 1},
			Refusals{}},
		{"whether its address is free", probe, redirect, defence, Counters{ARPAnswered: 1}, Refusals{}},
		{"a question for an address nobody has", arpFrame(t, broadcast, 1, wireMAC, outside, nobody), shot, nil, Counters{},
			Refusals{Question: 1}},
		{"a question for the host's own", arpFrame(t, broadcast, 1, wireMAC, outside, own), pass, nil, Counters{},
			Refusals{}},
		{"an answer to a client's question", arpFrame(t, aliceMAC, 2, wireMAC, outside, alice), pass, nil, Counters{},
			Refusals{}},
		{"cut short", arpFrame(t, broadcast, 1, wireMAC, outside, alice)[:30], shot, nil, Counters{}, Refusals{Malformed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, loadedPrograms(t)) })
	}
}

// check compares a verdict and, when the packet goes on, what it has become.
// Checksums of UDP cover no hardware address, so whole frames are compared.
func check(t *testing.T, verdict, want uint32, out, packet, changed []byte) {
	t.Helper()
	if verdict != want {
		t.Fatalf("verdict %d, want %d", verdict, want)
	}
	if changed == nil {
		changed = packet
	}
	if verdict != shot && !bytes.Equal(out, changed) {
		t.Errorf("packet is\n%v\nwant\n%v", gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default),
			gopacket.NewPacket(changed, layers.LayerTypeEthernet, gopacket.Default))
	}
}

func TestRemovedClientGetsNothing(t *testing.T) {
	l := loadedPrograms(t)
	for range 2 {
		if err := l.Remove(alice); err != nil {
			t.Fatal(err)
		}
	}
	if verdict, _ := try(t, l.objs.FromLan, arpFrame(t, broadcast, 1, wireMAC, outside, alice)); verdict != shot {
		t.Errorf("a question for an address that was given back has verdict %d", verdict)
	}
	if err := l.Put(outside, aliceMAC); err == nil {
		t.Error("an address outside the network was taken")
	}
}

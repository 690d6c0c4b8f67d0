package tun

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// TestReset holds resets against RFC 9293, 3.10.7.1.
func TestReset(t *testing.T) {
	for name, c := range map[string]struct {
		in       []byte
		seq, ack uint32
		acks     bool
	}{
		"SYN":                 {tcp(syn, seq(1000)), 0, 1001, true},
		"SYN with data":       {tcp(syn, seq(1000), carrying(text(10))), 0, 1011, true},
		"SYN with options":    {tcp(syn, timestamps, seq(1000)), 0, 1001, true},
		"in the middle":       {tcp(seq(1000), carrying(text(10))), 2000, 0, false},
		"FIN without ACK":     {tcp(seq(1000), flags(false, false, true, false)), 0, 1001, true},
		"nothing without ACK": {tcp(seq(1000), flags(false, false, false, false), carrying(text(5))), 0, 1005, true},
		"round the corner":    {tcp(syn, seq(0xffffffff)), 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			out := reset(bytes.Repeat([]byte{0xee}, 100), c.in)
			summed(t, out)
			p := gopacket.NewPacket(out, layers.LayerTypeIPv4, gopacket.Default)
			ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			got, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
			if ip == nil || got == nil || p.ErrorLayer() != nil {
				t.Fatalf("no segment: %x", out)
			}
			if !ip.SrcIP.Equal(site.AsSlice()) || !ip.DstIP.Equal(client.AsSlice()) || int(ip.Length) != len(out) || got.SrcPort != 80 || got.DstPort != 40000 {
				t.Errorf("%v %v", ip, got)
			}
			if !got.RST || got.ACK != c.acks || got.SYN || got.FIN || got.PSH || got.Seq != c.seq || got.Ack != c.ack || len(got.Payload)+len(got.Options) > 0 {
				t.Errorf("RST %v, seq %d, ack %d %v; want seq %d, ack %d %v", got.RST, got.Seq, got.Ack, got.ACK, c.seq, c.ack, c.acks)
			}
		})
	}
}

func TestProhibited(t *testing.T) {
	for _, size := range []int{0, 5, 520, 1472} {
		in := udp(carrying(text(size)))
		out := prohibited(bytes.Repeat([]byte{0xee}, 2000), in, number(portal))
		summed(t, out)
		p := gopacket.NewPacket(out, layers.LayerTypeIPv4, gopacket.Default)
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		got, _ := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if ip == nil || got == nil {
			t.Fatalf("no ICMP: %x", out)
		}
		if !ip.SrcIP.Equal(portal.AsSlice()) || !ip.DstIP.Equal(client.AsSlice()) || len(out) > 576 {
			t.Errorf("%d bytes: %v", len(out), ip)
		}
		if got.TypeCode != layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeCommAdminProhibited) {
			t.Errorf("it says %v", got.TypeCode)
		}
		if !bytes.HasPrefix(in, got.Payload) || len(got.Payload) != min(len(in), 576-28) {
			t.Errorf("it cites %d of %d bytes", len(got.Payload), len(in))
		}
	}
}

// TestPace: errors are as many as the kernel's own would be.
func TestPace(t *testing.T) {
	var p pace
	allowed := 0
	for now := int64(time.Hour); now < int64(time.Hour+2*time.Second); now += int64(100 * time.Microsecond) {
		if p.allows(now) {
			allowed++
		}
	}
	if allowed < 2*errorsPerSecond || allowed > 2*errorsPerSecond+errorsAtOnce {
		t.Errorf("%d errors in 2 s, want %d and up to %d at once", allowed, 2*errorsPerSecond, errorsAtOnce)
	}
}

func TestARPAnswer(t *testing.T) {
	mac := [6]byte{2, 0, 0, 0, 1, 1}
	request := func(op uint16, target []byte) []byte {
		b := []byte{0, 1, 8, 0, 6, 4, byte(op >> 8), byte(op), 2, 0, 0, 0, 0, 10}
		b = append(append(b, client.AsSlice()...), 0, 0, 0, 0, 0, 0)
		return append(append(b, target...), make([]byte, 18)...)
	}
	got := arpAnswer(make([]byte, 100), request(1, portal.AsSlice()), mac, number(portal))
	p := gopacket.NewPacket(got, layers.LayerTypeEthernet, gopacket.Default)
	eth, _ := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	arp, _ := p.Layer(layers.LayerTypeARP).(*layers.ARP)
	if eth == nil || arp == nil || len(got) != ethernetLen+arpLen {
		t.Fatalf("no answer: %x", got)
	}
	alice := []byte{2, 0, 0, 0, 0, 10}
	if !bytes.Equal(eth.DstMAC, alice) || !bytes.Equal(eth.SrcMAC, mac[:]) || arp.Operation != 2 || !bytes.Equal(arp.SourceHwAddress, mac[:]) ||
		!bytes.Equal(arp.SourceProtAddress, portal.AsSlice()) || !bytes.Equal(arp.DstHwAddress, alice) || !bytes.Equal(arp.DstProtAddress, client.AsSlice()) {
		t.Errorf("%+v %+v", eth, arp)
	}
	for name, b := range map[string][]byte{
		"of another":  request(1, another.AsSlice()),
		"an answer":   request(2, portal.AsSlice()),
		"cut":         request(1, portal.AsSlice())[:27],
		"not at all":  {},
		"another way": binary.BigEndian.AppendUint64(nil, 1),
	} {
		if got := arpAnswer(make([]byte, 100), b, mac, number(portal)); got != nil {
			t.Errorf("%s: %x", name, got)
		}
	}
}

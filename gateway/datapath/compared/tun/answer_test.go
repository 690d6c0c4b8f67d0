// Tests of answers that the data path itself sends to clients that are not admitted: TCP resets and ICMP errors. tcp
// and udp make a packet from the client to the site, changed by edits such as ports, seq, flags and carrying (a
// payload); text returns n bytes (packets_test.go).

package tun

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// TestReset compares the resets that answer rejected segments with RFC 9293, 3.10.7.1: their sequence number, and with
// acks their acknowledgement number.
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
		"the highest number":  {tcp(syn, seq(0xffffffff)), 0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			out := reset(bytes.Repeat([]byte{0xee}, 100), c.in)
			checkSums(t, out)
			p := gopacket.NewPacket(out, layers.LayerTypeIPv4, gopacket.Default)
			ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
			got, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
			if ip == nil || got == nil || p.ErrorLayer() != nil {
				t.Fatalf("no segment: %x", out)
			}
			if !ip.SrcIP.Equal(site.AsSlice()) || !ip.DstIP.Equal(client.AsSlice()) || int(ip.Length) != len(out) ||
				got.SrcPort != 80 || got.DstPort != 40000 {
				t.Errorf("%v %v", ip, got)
			}
			if !got.RST || got.ACK != c.acks || got.SYN || got.FIN || got.PSH || got.Seq != c.seq || got.Ack != c.ack ||
				len(got.Payload)+len(got.Options) > 0 {
				t.Errorf("RST %v, seq %d, ack %d %v; want seq %d, ack %d %v", got.RST, got.Seq, got.Ack, got.ACK, c.seq, c.ack,
					c.acks)
			}
		})
	}
}

// TestProhibited: the ICMP error that answers a rejected packet cites as much of it as fits into 576 bytes.
func TestProhibited(t *testing.T) {
	for _, size := range []int{0, 5, 520, 1472} {
		in := udp(carrying(text(size)))
		out := prohibited(bytes.Repeat([]byte{0xee}, 2000), in, addrNumber(portal))
		checkSums(t, out)
		p := gopacket.NewPacket(out, layers.LayerTypeIPv4, gopacket.Default)
		ip, _ := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
		got, _ := p.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		if ip == nil || got == nil {
			t.Fatalf("no ICMP: %x", out)
		}
		if !ip.SrcIP.Equal(portal.AsSlice()) || !ip.DstIP.Equal(client.AsSlice()) || len(out) > 576 {
			t.Errorf("%d bytes: %v", len(out), ip)
		}
		if got.TypeCode != layers.CreateICMPv4TypeCode(
			layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeCommAdminProhibited) {
			t.Errorf("it says %v", got.TypeCode)
		}
		if !bytes.HasPrefix(in, got.Payload) || len(got.Payload) != min(len(in), 576-28) {
			t.Errorf("it cites %d of %d bytes", len(got.Payload), len(in))
		}
	}
}

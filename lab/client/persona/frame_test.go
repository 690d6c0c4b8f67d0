// Tests of DHCP replies in frames. alice and bob are clients with addresses and MACs of their own, nobody is none; own
// is the host and wireMAC the router; try runs a program over a packet, and check compares verdict (pass, shot,
// redirect) and packet (programs_test.go).

package persona

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// offer is a server's reply in a frame, changed by how.
func offer(t testing.TB, how ...dhcpv4.Modifier) []byte {
	t.Helper()
	how = append([]dhcpv4.Modifier{
		dhcpv4.WithHwAddr(aliceMAC[:]), dhcpv4.WithMessageType(dhcpv4.MessageTypeAck), dhcpv4.WithYourIP(alice.AsSlice()),
		func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply },
		dhcpv4.WithNetmask([]byte{255, 255, 0, 0}), dhcpv4.WithRouter(outside.AsSlice()), dhcpv4.WithLeaseTime(600),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(own.AsSlice())),
	}, how...)
	m, err := dhcpv4.New(how...)
	if err != nil {
		t.Fatal(err)
	}
	b, err := datagram(wireMAC, aliceMAC, netip.AddrPortFrom(own, dhcpv4.ServerPort), netip.AddrPortFrom(alice,
		dhcpv4.ClientPort), m.ToBytes())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReplyIsReadAsSent(t *testing.T) {
	r, err := parseReply(offer(t))
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.lease()
	if err != nil {
		t.Fatal(err)
	}
	want := Lease{Addr: netip.PrefixFrom(alice, 16), Router: outside, Server: own, From: wireMAC}
	if got != want {
		t.Errorf("lease %+v, want %+v", got, want)
	}
}

func TestLeaseLacksSomething(t *testing.T) {
	for name, how := range map[string]dhcpv4.Modifier{
		"address": dhcpv4.WithYourIP(netip.IPv4Unspecified().AsSlice()),
		"mask":    func(m *dhcpv4.DHCPv4) { m.DeleteOption(dhcpv4.OptionSubnetMask) },
	} {
		r, err := parseReply(offer(t, how))
		if err != nil {
			t.Fatal(err)
		}
		if l, err := r.lease(); err == nil {
			t.Errorf("without its %s it is %+v", name, l)
		}
	}
}

// FuzzReply holds that whatever comes in, what is taken for a reply can be read on.
func FuzzReply(f *testing.F) {
	whole := offer(f)
	f.Add(whole)
	f.Add(whole[:60])
	f.Add(bytes.Repeat([]byte{0x45}, 300))
	f.Fuzz(func(t *testing.T, frame []byte) {
		r, err := parseReply(frame)
		if err != nil {
			return
		}
		if len(r.ClientHWAddr) != len(MAC{}) {
			t.Errorf("a reply for the hardware address %s", r.ClientHWAddr)
		}
		if l, err := r.lease(); err == nil && !l.Addr.IsValid() {
			t.Errorf("a lease without an address: %+v", l)
		}
	})
}

// TestFramesAreThoseOfOthers holds frames against another implementation's, and what a frame may be that
// has a reply in it.
func TestFramesAreThoseOfOthers(t *testing.T) {
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	eth := &layers.Ethernet{SrcMAC: aliceMAC[:], DstMAC: wireMAC[:], EthernetType: layers.EthernetTypeIPv4}
	for n := range 70 { // odd and even, padded and not
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: alice.AsSlice(), DstIP: own.AsSlice()}
		udp := &layers.UDP{SrcPort: dhcpv4.ClientPort, DstPort: dhcpv4.ServerPort}
		udp.SetNetworkLayerForChecksum(ip)
		payload := bytes.Repeat([]byte{0xa5, byte(n)}, n)[n/2:]
		want := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(want, options, eth, ip, udp, gopacket.Payload(payload)); err != nil {
			t.Fatal(err)
		}
		got, err := datagram(
			aliceMAC, wireMAC, netip.AddrPortFrom(alice, dhcpv4.ClientPort), netip.AddrPortFrom(own, dhcpv4.ServerPort), payload)
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%d bytes of payload: %x, %v, want %x", len(payload), got, err, want.Bytes())
		}
	}
	want := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(want, options, &layers.Ethernet{SrcMAC: aliceMAC[:], DstMAC: broadcast[:],
		EthernetType: layers.EthernetTypeARP}, &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
		Operation:       layers.ARPRequest,
		SourceHwAddress: aliceMAC[:], SourceProtAddress: alice.AsSlice(), DstHwAddress: make([]byte, 6),
		DstProtAddress: own.AsSlice(),
	})
	got, bad := arpRequest(aliceMAC, alice, own)
	if err != nil || bad != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("question %x, %v, want %x, %v", got, bad, want.Bytes(), err)
	}
	if _, err := datagram(
		aliceMAC, wireMAC, netip.MustParseAddrPort("[::1]:68"), netip.MustParseAddrPort("[::1]:67"), nil); err == nil {
		t.Error("a datagram between IPv6 addresses is no error")
	}
}

func TestRepliesInFramesOfAllKinds(t *testing.T) {
	whole := offer(t)
	options := bytes.Clone(whole[:ethernetBytes+ipBytes])
	options[ethernetBytes] = 0x46
	options[ethernetBytes+3] += 4 // the length, whose low byte has room
	options = append(append(options, 1, 1, 1, 0), whole[ethernetBytes+ipBytes:]...)
	for name, frame := range map[string][]byte{
		"padded": append(bytes.Clone(whole), make([]byte, 20)...), "with IP options": options} {
		if r, err := parseReply(frame); err != nil || r.from != wireMAC {
			t.Errorf("%s: %v, from %s", name, err, r.from)
		}
	}
	for name, change := range map[string]func(b []byte){
		"another type":    func(b []byte) { b[13] = 6 },
		"IPv6":            func(b []byte) { b[14] = 0x65 },
		"a fragment":      func(b []byte) { b[20] = 0x20 },
		"a later part":    func(b []byte) { b[21] = 1 },
		"TCP":             func(b []byte) { b[23] = 6 },
		"another port":    func(b []byte) { b[37] = 67 },
		"too long":        func(b []byte) { b[16] = 0xff },
		"UDP too long":    func(b []byte) { b[38] = 0xff },
		"UDP too short":   func(b []byte) { b[38], b[39] = 0, 7 },
		"short header":    func(b []byte) { b[14] = 0x44 },
		"shorter than it": func(b []byte) { b[16], b[17] = 0, 21 },
	} {
		b := bytes.Clone(whole)
		change(b)
		if r, err := parseReply(b); err == nil {
			t.Errorf("%s: taken for a reply: %v", name, r)
		}
	}
}

package persona

import (
	"bytes"
	"net/netip"
	"testing"

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
	b, err := datagram(wireMAC, aliceMAC, netip.AddrPortFrom(own, dhcpv4.ServerPort), netip.AddrPortFrom(alice, dhcpv4.ClientPort), m.ToBytes())
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

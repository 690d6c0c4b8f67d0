// Tests of the eBPF programs for IPv6. alice and bob are clients with addresses and MACs of their own, nobody is none;
// own is the host and wireMAC the router; try runs a program over a packet, and check compares verdict (pass, shot,
// redirect) and packet (programs_test.go).

package persona

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/mdlayher/ndp"
)

var (
	lan6     = netip.MustParsePrefix("2001:db8:77::/64")
	own6     = netip.MustParseAddr("2001:db8:77::2") // the host's
	alice6   = AutoAddress(lan6, aliceMAC)
	local6   = AutoAddress(linkLocalNet, aliceMAC)
	nobody6  = netip.MustParseAddr("2001:db8:77::9")
	outside6 = netip.MustParseAddr("2001:db8:1::1")
	router6  = netip.MustParseAddr("fe80::1")
)

// loadedPrograms6 is loadedPrograms with a client of IPv6.
func loadedPrograms6(t *testing.T) *Link {
	t.Helper()
	l := &Link{cfg: Config{LAN: lan, LAN6: lan6, Clients: 2}, ifi: &net.Interface{Index: 1}}
	spec, err := loadPrograms()
	if err == nil {
		err = l.load6(spec)
	}
	if err == nil {
		own := own6.As16()
		err = spec.Variables["host6_last"].Set(binary.NativeEndian.Uint64(own[8:]))
	}
	if err == nil {
		err = spec.LoadAndAssign(&l.objs, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.objs.Close() })
	for _, ip := range []netip.Addr{alice6, local6} {
		if err := l.Put6(ip, aliceMAC); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// packet6 is a UDP datagram, or a neighbour discovery message.
func packet6(t *testing.T, from, to MAC, src, dst netip.Addr, m ndp.Message) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: from[:], DstMAC: to[:], EthernetType: layers.EthernetTypeIPv6}
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolUDP,
		SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	body := []byte("\x00\x09\x00\x09\x00\x08\x12\x34")
	if m != nil {
		var err error
		if body, err = ndp.MarshalMessageChecksum(m, src, dst); err != nil {
			t.Fatal(err)
		}
		ip.NextHeader = layers.IPProtocolICMPv6
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(
		b, gopacket.SerializeOptions{FixLengths: true}, eth, ip, gopacket.Payload(body)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// question6 is a solicitation for target: of a router that tells its hardware address, or of one who checks whether the
// address is free.
func question6(t *testing.T, to MAC, src, target netip.Addr) []byte {
	t.Helper()
	group, err := ndp.SolicitedNodeMulticast(target)
	if err != nil {
		t.Fatal(err)
	}
	m := &ndp.NeighborSolicitation{TargetAddress: target}
	if !src.IsUnspecified() {
		m.Options = []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Source, Addr: wireMAC[:]}}
	}
	return packet6(t, wireMAC, to, src, group, m)
}

// answer6 is alice's answer.
func answer6(t *testing.T, to MAC, dst, target netip.Addr, solicited bool) []byte {
	t.Helper()
	return packet6(t, aliceMAC, to, target, dst, &ndp.NeighborAdvertisement{
		Solicited: solicited, Override: true, TargetAddress: target,
		Options: []ndp.Option{&ndp.LinkLayerAddress{Direction: ndp.Target, Addr: aliceMAC[:]}}})
}

// TestIPv6FromLAN: a client's host takes what names a client by both its addresses, and answers for each of its
// addresses, whoever asks.
func TestIPv6FromLAN(t *testing.T) {
	toAll, group, unspecified := MAC{0x33, 0x33, 0, 0, 0, 1}, MAC{0x33, 0x33, 0xff, 0x61, 0, 1}, netip.IPv6Unspecified()
	udp := func(to MAC, dst netip.Addr) []byte { return packet6(t, wireMAC, to, outside6, dst, nil) }
	for _, tt := range []struct {
		name    string
		packet  []byte
		verdict uint32
		want    []byte // nil: as it was
		refused Refusals
	}{
		{"both addresses are a client's", udp(aliceMAC, alice6), pass, nil, Refusals{}},
		{"another's hardware address", udp(bobMAC, alice6), shot, nil, Refusals{}},
		{"an address nobody has", udp(aliceMAC, nobody6), shot, nil, Refusals{Destination: 1}},
		{"the host's own", udp(hostMAC, own6), pass, nil, Refusals{}},
		{"to all hosts", udp(toAll, netip.IPv6LinkLocalAllNodes()), pass, nil, Refusals{}},
		{"a router asks", question6(t, group, router6, alice6), redirect, answer6(t, wireMAC, router6, alice6, true),
			Refusals{}},
		{"it asks the client alone", question6(t, aliceMAC, router6, alice6), redirect,
			answer6(t, wireMAC, router6, alice6, true), Refusals{}},
		{"it asks for the link-local address", question6(t, group, router6, local6), redirect,
			answer6(t, wireMAC, router6, local6, true), Refusals{}},
		{"it asks another alone", question6(t, bobMAC, router6, alice6), shot, nil, Refusals{}},
		{"somebody wants the address", question6(t, group, unspecified, alice6), redirect,
			answer6(t, toAll, netip.IPv6LinkLocalAllNodes(), alice6, false), Refusals{}},
		{"an address nobody has is asked for", question6(t, group, router6, nobody6), shot, nil, Refusals{Question: 1}},
		{"the host's own is asked for", question6(t, group, router6, own6), pass, nil, Refusals{}},
		{"cut short", question6(t, group, router6, alice6)[:60], shot, nil, Refusals{Malformed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := loadedPrograms6(t)
			verdict, out := try(t, l.objs.FromLan, tt.packet)
			check(t, verdict, tt.verdict, out, tt.packet, tt.want)
			if got := l.refusals(t); got != tt.refused {
				t.Errorf("refusals %+v, want %+v", got, tt.refused)
			}
		})
	}
}

// TestIPv6ToLAN: what leaves has its client's hardware address, and nothing leaves from addresses nobody has.
func TestIPv6ToLAN(t *testing.T) {
	for _, tt := range []struct {
		name    string
		from    netip.Addr
		verdict uint32
		mac     MAC
	}{
		{"a client", alice6, pass, aliceMAC},
		{"its link-local address", local6, pass, aliceMAC},
		{"the host", own6, pass, hostMAC},
		{"the host's link-local address", netip.MustParseAddr("fe80::2"), pass, hostMAC},
		{"nobody", nobody6, shot, hostMAC},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := loadedPrograms6(t)
			packet := packet6(t, hostMAC, wireMAC, tt.from, outside6, nil)
			verdict, out := try(t, l.objs.ToLan, packet)
			check(t, verdict, tt.verdict, out, packet, packet6(t, tt.mac, wireMAC, tt.from, outside6, nil))
		})
	}
	l := loadedPrograms6(t)
	for range 2 {
		if err := l.Remove6(alice6); err != nil {
			t.Fatal(err)
		}
	}
	if verdict, _ := try(t, l.objs.ToLan, packet6(t, hostMAC, wireMAC, alice6, outside6, nil)); verdict != shot {
		t.Errorf("what is sent from an address that was given back has verdict %d", verdict)
	}
	if err := l.Put6(outside6, aliceMAC); err == nil {
		t.Error("an address outside the network was taken")
	}
}

// advertisement is a router's, of the prefix lan6.
func advertisement(t testing.TB, lifetime int, autonomous bool) []byte {
	t.Helper()
	b, err := neighbourFrame(wireMAC, router6, netip.IPv6LinkLocalAllNodes(), &ndp.RouterAdvertisement{
		RouterLifetime: time.Duration(lifetime) * time.Second, Options: []ndp.Option{&ndp.PrefixInformation{
			PrefixLength: 64, AutonomousAddressConfiguration: autonomous, ValidLifetime: time.Minute,
			PreferredLifetime: time.Minute, Prefix: lan6.Addr()}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAdvertisements(t *testing.T) {
	good := advertisement(t, 60, true)
	far := advertisement(t, 60, true)
	far[ethernetBytes+7] = 254 // a router forwarded it
	for name, tt := range map[string]struct {
		frame []byte
		lan   netip.Prefix
		ok    bool
	}{
		"of the network":     {good, lan6, true},
		"of another network": {good, netip.MustParsePrefix("2001:db8:78::/64"), false},
		"no router":          {advertisement(t, 0, true), lan6, false},
		"not for SLAAC":      {advertisement(t, 60, false), lan6, false},
		"forwarded":          {far, lan6, false},
		"cut short":          {good[:len(good)-1], lan6, false},
	} {
		router, to, ok := parseAdvertisement(tt.frame, tt.lan)
		if ok != tt.ok {
			t.Errorf("%s: %v", name, ok)
		}
		if ok && (router != Router{router6, wireMAC} || to != MAC{0x33, 0x33, 0, 0, 0, 1}) {
			t.Errorf("%s: of %v, to %s", name, router, to)
		}
	}
}

func FuzzAdvertisement(f *testing.F) {
	f.Add(advertisement(f, 60, true))
	f.Add(advertisement(f, 0, false)[:70])
	f.Fuzz(func(t *testing.T, frame []byte) {
		if router, _, ok := parseAdvertisement(frame, lan6); ok && !router.Addr.IsLinkLocalUnicast() {
			t.Errorf("a router at %s", router.Addr)
		}
	})
}

package dhcp

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

func TestAgentIDs(t *testing.T) {
	long := strings.Repeat("l", MaxAgentID)
	for _, tt := range []struct {
		name, information, circuit, remote string
		bad                                bool
	}{
		{"both", "\x01\x04\x00\x04\x00\x0a\x02\x06remote", "\x00\x04\x00\x0a", "remote", false},
		{"others too", "\x05\x04\x0a\x01\x02\x00\x01\x01c\x97\x00", "c", "", false},
		{"none", "", "", "", false},
		{"empty ones", "\x01\x00\x02\x00", "", "", false},
		{"the longest", "\x01\xf7" + long, long, "", false},
		{"too long", "\x01\xf8" + long + "l", "", "", true},
		{"cut off", "\x01\x01c\x02\x09remote", "", "", true},
		{"half a header", "\x01\x01c\x02", "", "", true},
		{"twice", "\x01\x01a\x01\x01b", "", "", true},
	} {
		circuit, remote, err := agentIDs([]byte(tt.information))
		if circuit != tt.circuit || remote != tt.remote || (err != nil) != tt.bad {
			t.Errorf("%s: %q, %q, %v", tt.name, circuit, remote, err)
		}
	}
}

// FuzzAgentIDs: what is read of relay agent information is what another reader reads.
func FuzzAgentIDs(f *testing.F) {
	f.Add([]byte("\x01\x04\x00\x04\x00\x0a\x02\x06remote"))
	f.Add([]byte("\x01\x01a\x01\x01b"))
	f.Fuzz(func(t *testing.T, information []byte) {
		circuit, remote, err := agentIDs(information)
		if err != nil || slices.Contains(information, 0) || slices.Contains(information, 255) {
			return // to the other reader these are padding and end
		}
		other := dhcpv4.Options{}
		if err := other.FromBytes(information); err != nil {
			t.Fatalf("%q: %v", information, err)
		}
		if a, b := string(other[agentCircuit]), string(other[agentRemote]); a != circuit || b != remote {
			t.Errorf("%q: %q and %q, and to another reader %q and %q", information, circuit, remote, a, b)
		}
	})
}

// Relays of the tests: one with clients behind it, and one with clients on the LAN.
var (
	farRelay, nearRelay = netip.MustParseAddr("10.1.2.1"), netip.MustParseAddr("10.1.0.3")
	farNetwork          = netip.MustParsePrefix("10.1.2.0/24")
)

func withRelays(c *Config) {
	c.Relays = []Relay{{farRelay, farNetwork, netip.MustParseAddr("10.1.0.2")}, {Addr: nearRelay, Subnet: subnet}}
}

// by returns what a relay makes of a client's message: it adds its address, and information.
func by(relay netip.Addr, information string) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{dhcpv4.WithGatewayIP(relay.AsSlice()),
		dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte(information)))}
}

// relayedBy leases an address to a client behind a relay, by way of the relay's MAC address, and returns the ACK.
func (w *wire) relayedBy(relay netip.Addr, sender, mac MAC, information string) (*dhcpv4.DHCPv4, datagram) {
	w.t.Helper()
	st := station{mac: sender, src: netip.MustParseAddr("10.1.0.2"), dst: serverAddr}
	offer, _ := w.ask(st, message(w.t, dhcpv4.MessageTypeDiscover, mac, by(relay, information)...))
	return w.ask(st, message(w.t, dhcpv4.MessageTypeRequest, mac, append(by(relay, information),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)))...))
}

// TestRelay: clients behind a relay get addresses of its network by way of it, renew and leave without it, and the
// server knows where they are attached, also when it starts again. Long: the steps of one run.
func TestRelay(t *testing.T) {
	w := newWire(t, newLAN(t))
	path := leasesFile(t)
	s, j := start(t, path, withRelays)
	router, mac, information := macOf(100), macOf(1), "\x01\x02\x00\x07\x02\x03rid"

	ack, d := w.relayedBy(farRelay, router, mac, information)
	addr, _ := netip.AddrFromSlice(ack.YourIPAddr.To4())
	switch options := d.payload[atOptions:]; {
	case ack.MessageType() != dhcpv4.MessageTypeAck || d.dstMAC != router || d.dst != netip.AddrPortFrom(farRelay, 67):
		t.Errorf("%s to %x, %s", ack.MessageType(), d.dstMAC, d.dst)
	case !farNetwork.Contains(addr) || !ack.GatewayIPAddr.Equal(net.IP(farRelay.AsSlice())):
		t.Errorf("%s by %s", addr, ack.GatewayIPAddr)
	case ack.SubnetMask().String() != "ffffff00" || !ack.Router()[0].Equal(net.IP(farRelay.AsSlice())):
		t.Errorf("mask %s, router %v", ack.SubnetMask(), ack.Router())
	case !bytes.HasSuffix(bytes.TrimRight(options, "\x00"), append([]byte{82, 9}, information+"\xff"...)):
		t.Errorf("the last option is not %q, in %q", information, options)
	}
	attached := func(want Attachment) {
		t.Helper()
		if all := s.Leases(); len(all) == 0 || all[len(all)-1].Attachment != want {
			t.Errorf("the leases are %+v", all)
		}
	}
	attached(Attachment{"\x00\x07", "rid", router})

	renewal := message(t, dhcpv4.MessageTypeRequest, mac, dhcpv4.WithClientIP(addr.AsSlice()))
	if r, d := w.ask(station{mac: router, src: addr, dst: serverAddr}, renewal); r.MessageType() !=
		dhcpv4.MessageTypeAck || d.dstMAC != router || d.dst != netip.AddrPortFrom(addr, clientPort) {
		t.Errorf("a renewal gets %s at %s, %x", r.MessageType(), d.dst, d.dstMAC)
	}
	attached(Attachment{"\x00\x07", "rid", router})
	release := message(t, dhcpv4.MessageTypeRelease, mac, dhcpv4.WithClientIP(addr.AsSlice()))
	w.silent(station{mac: macOf(101), src: addr, dst: serverAddr}, release) // by another way
	w.silent(station{mac: router, src: farRelay, dst: serverAddr}, release) // from another address
	attached(Attachment{"\x00\x07", "rid", router})
	w.relayedBy(farRelay, macOf(102), mac, "") // another router has the relay's address, and says nothing of the port
	attached(Attachment{Via: macOf(102)})
	w.relayedBy(farRelay, router, mac, "\x01\x01c")

	if r, d := w.relayedBy(nearRelay, macOf(103), macOf(2), "\x02\x01r"); farNetwork.Contains(
		netip.AddrFrom4([4]byte(r.YourIPAddr.To4()))) || d.dst.Addr() != nearRelay {
		t.Errorf("%s at %s", r.YourIPAddr, d.dst)
	}
	if l := s.Leases()[0]; l.Attachment != (Attachment{Remote: "r"}) {
		t.Errorf("%+v", l)
	}
	r, _ := w.ask(station{mac: router, src: farRelay, dst: serverAddr}, message(t, dhcpv4.MessageTypeRequest, macOf(3),
		append(by(farRelay, ""), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(serverAddr.AsSlice())))...))
	if r.MessageType() != dhcpv4.MessageTypeNak || !r.IsBroadcast() {
		t.Errorf("%s", r.Summary())
	}

	must(t, s.Close())
	s, _ = start(t, path, withRelays)
	attached(Attachment{"c", "", router})
	w.silent(station{mac: router, src: addr, dst: serverAddr}, release)
	await(t, "the end of the lease", func() bool { return len(s.Leases()) == 1 })
	w.relayedBy(farRelay, router, mac, "")
	must(t, s.Close())
	s, after := start(t, path, nil)
	await(t, "the end of a lease behind a relay that is no more", func() bool { return len(after.all()) > 0 })
	if all := s.Leases(); len(all) != 1 || all[0].Addr == addr {
		t.Errorf("the leases are %+v", all)
	}
	if n := len(j.all()); n != 4 { // leases, and where a client is attached elsewhere
		t.Errorf("the listener was told %q", j.all())
	}
}

// TestRelaysThatAreNone: who is no relay gets no answer as one, and whose information cannot be read gets one without.
// Clients of a relay have budgets of their own.
func TestRelaysThatAreNone(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, _ := start(t, leasesFile(t), withRelays)
	mac := macOf(1)
	w.silent(station{mac: macOf(100)}, message(t, dhcpv4.MessageTypeDiscover, mac, by(serverAddr, "")...))
	client := macOf(7)
	if a, _ := netip.AddrFromSlice(w.lease(client).YourIPAddr.To4()); farNetwork.Contains(a) {
		t.Errorf("a client on the LAN has %s", a)
	}
	w.silent(station{mac: client}, message(t, dhcpv4.MessageTypeDiscover, mac, by(farRelay, "")...))
	r, _ := w.ask(station{mac: client}, message(t, dhcpv4.MessageTypeRequest, client,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(farNetwork.Addr().Next().Next().AsSlice()))))
	if r.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("%s for an address behind a relay", r.MessageType())
	}
	if st := s.Stats(); st.Relayed != 1 || st.Spoofed != 1 {
		t.Errorf("%+v", st)
	}
	r, _ = w.relayedBy(farRelay, macOf(100), mac, "\x01\x09c")
	if got := string(r.Options.Get(dhcpv4.OptionRelayAgentInformation)); got != "\x01\x09c" || s.Stats().BadAgent != 2 {
		t.Errorf("%q, %+v", got, s.Stats())
	}
	for i := range 40 {
		w.relayedBy(farRelay, macOf(100), macOf(1000+i), "\x01\x01c")
	}
}

// TestInformationOfSwitches: the information of switches is believed where the configuration says so, and otherwise
// repeated alone.
func TestInformationOfSwitches(t *testing.T) {
	w := newWire(t, newLAN(t))
	for _, believed := range []bool{false, true} {
		s, _ := start(t, leasesFile(t), func(c *Config) { c.Information = believed })
		option := dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte("\x01\x01c\x02\x01r")))
		ack := w.lease(macOf(1), option)
		if got := string(ack.Options.Get(dhcpv4.OptionRelayAgentInformation)); got != "\x01\x01c\x02\x01r" {
			t.Errorf("%q", got)
		}
		if want := map[bool]Attachment{true: {Circuit: "c", Remote: "r"}}[believed]; s.Leases()[0].Attachment != want {
			t.Errorf("believed %v: %+v", believed, s.Leases())
		}
		must(t, s.Close())
	}
}

// TestSegments: addresses of a relay's network are for its clients alone, and none is the relay's own.
func TestSegments(t *testing.T) {
	cfg := testConfig("-")
	cfg.Pools = []Range{{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.3.255")}}
	cfg.Static = map[MAC]netip.Addr{macOf(1): netip.MustParseAddr("10.1.2.9"), macOf(2): netip.MustParseAddr("10.1.9.9")}
	withRelays(&cfg)
	cfg, err := cfg.withDefaults()
	must(t, err)
	all, byRelay := segments(cfg)
	var got []string
	for _, link := range all {
		for _, r := range link.cfg.Pools {
			got = append(got, r.First.String()+"-"+r.Last.String())
		}
	}
	if want := []string{"10.1.0.4-10.1.1.255", "10.1.3.0-10.1.3.255", "10.1.2.2-10.1.2.254"}; !slices.Equal(got, want) {
		t.Errorf("pools %v", got)
	}
	if len(all) != 2 || byRelay[farRelay] != all[1] || byRelay[nearRelay] != all[0] || len(all[1].cfg.Static) != 1 {
		t.Errorf("%+v", all)
	}
	for _, bad := range [][]Relay{
		{{Addr: farRelay, Subnet: netip.MustParsePrefix("10.2.0.0/24")}},
		{{Addr: farRelay, Subnet: netip.MustParsePrefix("10.1.3.0/24")}},
		{{Addr: farRelay, Subnet: netip.MustParsePrefix("10.1.0.0/22")}},
		{{Addr: farRelay, Subnet: farNetwork}, {Addr: netip.MustParseAddr("10.1.2.130"),
			Subnet: netip.MustParsePrefix("10.1.2.128/25")}},
	} {
		if cfg.Relays = bad; cfg.check() == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

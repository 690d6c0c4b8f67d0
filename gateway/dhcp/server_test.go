// Tests of the DHCP server over real interfaces. main_test.go has the helpers: newLAN makes the server's interface
// (gateway) and returns the name of its other end; newWire sends and receives frames there; start runs a server with a
// file of leases (leasesFile) and returns a journal, which records what its listener was told; macOf(i) is the MAC of
// device i, station the addresses of its frames, and message makes a DHCP message of it.

package dhcp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

func TestLeaseRenewReleaseAndLeaseAgain(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, j := start(t, leasesFile(t), nil)
	mac := macOf(1)
	ack := w.lease(mac, dhcpv4.WithOption(dhcpv4.OptHostName("phone")))
	addr, _ := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if ls := s.Leases(); len(ls) != 1 || ls[0].Addr != addr || ls[0].Hostname != "phone" || MAC(ls[0].MAC) != mac {
		t.Errorf("leases %v, want one of %s", ls, addr)
	}

	// RENEWING: unicast from and to addresses.
	bound := station{mac: mac, src: addr, dst: serverAddr}
	renewed, d := w.ask(bound, message(t, dhcpv4.MessageTypeRequest, mac, dhcpv4.WithClientIP(ack.YourIPAddr)))
	if renewed.MessageType() != dhcpv4.MessageTypeAck || d.dst.Addr() != addr || d.dstMAC != mac {
		t.Errorf("renewal: %s to %s %x", renewed.MessageType(), d.dst, d.dstMAC)
	}
	// REBINDING: the same, broadcast.
	rebound, _ := w.ask(
		station{mac: mac, src: addr}, message(t, dhcpv4.MessageTypeRequest, mac, dhcpv4.WithClientIP(ack.YourIPAddr)))
	if rebound.MessageType() != dhcpv4.MessageTypeAck || !rebound.YourIPAddr.Equal(ack.YourIPAddr) {
		t.Errorf("rebinding: %s of %s", rebound.MessageType(), rebound.YourIPAddr)
	}

	w.silent(bound, message(t, dhcpv4.MessageTypeRelease, mac, dhcpv4.WithClientIP(ack.YourIPAddr),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(serverAddr.AsSlice()))))
	await(t, "the release", func() bool { return len(s.Leases()) == 0 && len(j.all()) == 2 })
	if other := w.lease(macOf(2)); other.YourIPAddr.Equal(ack.YourIPAddr) {
		t.Error("a released address went to another client though others are free")
	}
	if again := w.lease(mac); !again.YourIPAddr.Equal(ack.YourIPAddr) {
		t.Errorf("the client had %s and now gets %s", ack.YourIPAddr, again.YourIPAddr)
	}
	want := []string{"leased 02:00:00:00:00:01 10.1.1.0 phone", "released 02:00:00:00:00:01 10.1.1.0",
		"leased 02:00:00:00:00:02 10.1.1.1", "leased 02:00:00:00:00:01 10.1.1.0"}
	if got := j.all(); !slices.Equal(got, want) {
		t.Errorf("the listener heard\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestReplyAddresses checks the destinations of replies (RFC 2131, 4.1).
func TestReplyAddresses(t *testing.T) {
	w := newWire(t, newLAN(t))
	start(t, leasesFile(t), nil)
	mac := macOf(1)
	offer, d := w.ask(station{mac: mac}, message(t, dhcpv4.MessageTypeDiscover, mac))
	if d.dstMAC != mac || !d.dst.Addr().IsValid() || d.dst.Addr().String() != offer.YourIPAddr.String() {
		t.Errorf("offer without the broadcast flag went to %s %x", d.dst, d.dstMAC)
	}
	_, d = w.ask(station{mac: mac}, message(t, dhcpv4.MessageTypeDiscover, mac, dhcpv4.WithBroadcast(true)))
	if d.dstMAC != broadcastMAC || d.dst.Addr() != limitedBroadcast {
		t.Errorf("offer with the broadcast flag went to %s %x", d.dst, d.dstMAC)
	}
	if d.src != netip.AddrPortFrom(serverAddr, serverPort) {
		t.Errorf("the offer came from %s", d.src)
	}
	inform, d := w.ask(station{mac: mac, src: netip.MustParseAddr("10.1.0.9")},
		message(t, dhcpv4.MessageTypeInform, mac, dhcpv4.WithClientIP(net.IP{10, 1, 0, 9})))
	if d.dst.Addr().String() != "10.1.0.9" || !inform.YourIPAddr.IsUnspecified() ||
		inform.Options.Has(dhcpv4.OptionIPAddressLeaseTime) {
		t.Errorf("inform was answered to %s with %s", d.dst, inform.Summary())
	}
	nak, d := w.ask(station{mac: mac}, message(t, dhcpv4.MessageTypeRequest, mac, dhcpv4.WithOption(
		dhcpv4.OptRequestedIPAddress(net.IP{192, 168, 7, 7}))))
	if nak.MessageType() != dhcpv4.MessageTypeNak || d.dst.Addr() != limitedBroadcast || d.dstMAC != broadcastMAC {
		t.Errorf("INIT-REBOOT in another network: %s to %s", nak.MessageType(), d.dst)
	}
}

func TestRequestsOfEveryState(t *testing.T) {
	w := newWire(t, newLAN(t))
	var logs logtest.Log
	s, _ := start(t, leasesFile(t), func(c *Config) { c.Log = logs.Logger() })
	mine := w.lease(macOf(1)).YourIPAddr
	other := w.lease(macOf(2)).YourIPAddr
	wish := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip)) }
	from := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ip)) }
	server := net.IP(serverAddr.AsSlice())
	for _, tt := range []struct {
		name string
		mac  int
		mods []dhcpv4.Modifier
		want dhcpv4.MessageType // none: no reply
	}{
		{"init-reboot with its own address", 1, []dhcpv4.Modifier{wish(mine)}, dhcpv4.MessageTypeAck},
		{"init-reboot with another's", 1, []dhcpv4.Modifier{wish(other)}, dhcpv4.MessageTypeNak},
		{"init-reboot with a free one, having another", 1, []dhcpv4.Modifier{wish(net.IP{10, 1, 9, 9})},
			dhcpv4.MessageTypeNak},
		{"init-reboot with a free one the server forgot", 3, []dhcpv4.Modifier{wish(net.IP{10, 1, 9, 9})},
			dhcpv4.MessageTypeAck},
		{"init-reboot with the gateway's", 4, []dhcpv4.Modifier{wish(server)}, dhcpv4.MessageTypeNak},
		{"selecting us with another's address", 4, []dhcpv4.Modifier{wish(other), from(server)}, dhcpv4.MessageTypeNak},
		{"selecting us with none", 4, []dhcpv4.Modifier{from(server)}, dhcpv4.MessageTypeNak},
		{"selecting another server", 4, []dhcpv4.Modifier{wish(net.IP{10, 1, 9, 10}), from(net.IP{10, 1, 0, 2})},
			dhcpv4.MessageTypeNone},
		{"renewing another's", 4, []dhcpv4.Modifier{dhcpv4.WithClientIP(other)}, dhcpv4.MessageTypeNak},
		{"no message type", 4, []dhcpv4.Modifier{dhcpv4.WithMessageType(0)}, dhcpv4.MessageTypeNone},
		{"a server's message", 4, []dhcpv4.Modifier{dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer)}, dhcpv4.MessageTypeNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			m := message(t, dhcpv4.MessageTypeRequest, macOf(tt.mac), tt.mods...)
			if tt.want == dhcpv4.MessageTypeNone {
				w.silent(station{mac: macOf(tt.mac)}, m)
				return
			}
			if r, _ := w.ask(station{mac: macOf(tt.mac)}, m); r.MessageType() != tt.want {
				t.Errorf("%s, want %s", r.MessageType(), tt.want)
			}
		})
	}
	if n := len(s.Leases()); n != 3 {
		t.Errorf("%d leases, want 3: %v", n, s.Leases())
	}
	checkNAKs(t, logs.String(), other)
}

// checkNAKs checks what the log says of six NAKs of two devices: each once a minute.
func checkNAKs(t *testing.T, text string, other net.IP) {
	t.Helper()
	for _, reason := range []string{
		"mac=02:00:00:00:00:01 asked_for=" + other.String() + ` reason="the address is not this client's"`,
		`mac=02:00:00:00:00:04 asked_for=10.1.0.1 reason="the address is not this client's"`,
	} {
		if strings.Count(text, reason) != 1 {
			t.Errorf("the log does not say %s:\n%s", reason, text)
		}
	}
	if n := strings.Count(text, "gets a NAK"); n != 2 {
		t.Errorf("the log names %d NAKs:\n%s", n, text)
	}
}

// TestOptionsInParts: several options of one code are joined (RFC 3396), unless the result is too long for an answer.
func TestOptionsInParts(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, _ := start(t, leasesFile(t), nil)
	long := bytes.Repeat([]byte{'x'}, 200)
	part := func(code byte, data ...byte) []byte { return append([]byte{code, byte(len(data))}, data...) }
	for i, c := range []struct {
		parts           []byte
		name, id, agent string
	}{
		{slices.Concat(part(12, 'l', 'a', 'p'), part(61, 0, 'a'), part(82, 1, 1, 'p'),
			part(12, 't', 'o', 'p'), part(61, 'b'), part(82, 2, 1, 'q')), "laptop", "\x00ab", "\x01\x01p\x02\x01q"},
		{slices.Concat(part(61, long...), part(82, 1, 1, 'p'), part(61, long...), part(82, long...), part(82, long...)),
			"", string(long), "\x01\x01p"},
		{slices.Concat(part(61), part(12), part(61, 0, 'c'), part(12, 'd')), "d", "\x00c", ""},
	} {
		mac := macOf(i + 1)
		o := oddMessage{options: slices.Concat(isRequest, wants(fmt.Sprintf("10.1.5.%d", i)), part(57, 5, 220), c.parts, end)}
		w.sendFrame(o.frame(mac, uint32(i)))
		r, _ := w.nextFor(t)
		got := string(r.Options.Get(dhcpv4.OptionRelayAgentInformation))
		if r.MessageType() != dhcpv4.MessageTypeAck || got != c.agent {
			t.Errorf("%d: %s with relay information %q, want %q", i, r.MessageType(), got, c.agent)
		}
		if l := s.Leases()[i]; l.Hostname != c.name || string(l.ClientID) != c.id {
			t.Errorf("%d: the lease is %q's, with the identifier %q", i, l.Hostname, l.ClientID)
		}
	}
}

func TestHostileClients(t *testing.T) {
	w := newWire(t, newLAN(t))
	var logs logtest.Log
	s, _ := start(t, leasesFile(t), func(c *Config) { c.Log = logs.Logger() })
	mac := macOf(1)
	discover := func(mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
		return message(t, dhcpv4.MessageTypeDiscover, mac, mods...)
	}
	id := func(b byte) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{255, b})) }

	w.silent(station{mac: mac}, discover(dhcpv4.WithGatewayIP(net.IP{10, 1, 0, 3})))
	w.silent(station{mac: macOf(2)}, discover())
	w.silent(station{mac: mac, dst: netip.MustParseAddr("10.1.0.200")}, discover())
	cut := station{mac: mac}.datagram(discover())
	cut.payload = cut.payload[:200]
	w.sendFrame(cut.frame())
	for b := range byte(4) {
		w.lease(mac, id(b))
	}
	w.silent(station{mac: mac}, discover(id(4)))
	// A client with another's identifier gets an address of its own.
	victim, thief := macOf(8), macOf(9)
	if a, b := w.lease(victim, id(7)), w.lease(thief, id(7)); a.YourIPAddr.Equal(b.YourIPAddr) {
		t.Errorf("both clients have %s", a.YourIPAddr)
	}
	// It cannot end the other's lease either.
	stolen := s.Leases()[4]
	w.silent(station{mac: thief},
		message(t, dhcpv4.MessageTypeRelease, thief, id(7), dhcpv4.WithClientIP(stolen.Addr.AsSlice())))

	got := s.Stats()
	if got.Relayed != 1 || got.Spoofed != 1 || got.Malformed != 2 || got.TooMany != 1 || got.Leased != 6 ||
		got.Exhausted != 0 {
		t.Errorf("stats %+v", got)
	}
	for _, reason := range []string{
		`mac=02:00:00:00:00:01 reason="it came through an unknown relay at 10.1.0.3`,
		`mac=02:00:00:00:00:02 reason="it names another hardware address than its sender's: 02:00:00:00:00:01"`,
		`mac=02:00:00:00:00:01 reason="it is no message to a server`,
		`mac=02:00:00:00:00:01 reason="its MAC has all the addresses it may have"`,
	} {
		if logs.Count(reason) != 1 { // two are malformed: once a minute
			t.Errorf("the log does not say once %s:\n%s", reason, logs.String())
		}
	}
}

func TestDeclinedAddressIsSetAside(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, j := start(t, leasesFile(t), nil)
	mac := macOf(1)
	first := w.lease(mac).YourIPAddr
	w.silent(station{mac: mac},
		message(t, dhcpv4.MessageTypeDecline, mac, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(first)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(serverAddr.AsSlice()))))
	await(t, "the listener", func() bool { return len(j.all()) == 2 })
	if second := w.lease(mac).YourIPAddr; second.Equal(first) {
		t.Errorf("the declined address %s was given out again", first)
	}
	nak, _ := w.ask(station{mac: macOf(2)}, message(t, dhcpv4.MessageTypeRequest, macOf(2), dhcpv4.WithOption(
		dhcpv4.OptRequestedIPAddress(first))))
	if st := s.Stats(); nak.MessageType() != dhcpv4.MessageTypeNak || st.DeclinedAddresses != 1 || st.Leased != 1 {
		t.Errorf("%s for the declined address, stats %+v", nak.MessageType(), st)
	}
}

// TestDeclinedAddressesDoNotCount: a device that finds address after address in use is offered others, also
// where one is reserved for it, and one that declines all leaves others their chance.
func TestDeclinedAddressesDoNotCount(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, j := start(t, leasesFile(t), func(c *Config) {
		c.Pools = []Range{{netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.1.8")}}
		c.Static = map[MAC]netip.Addr{macOf(2): netip.MustParseAddr("10.1.200.1")}
		c.PerMAC = budget.Rate{AtOnce: 100, EachSecond: 100}
	})
	had := map[string]bool{}
	for _, c := range []struct{ device, times int }{{1, 6}, {2, 1}} {
		mac := macOf(c.device)
		for range c.times {
			ip := w.lease(mac).YourIPAddr
			if had[ip.String()] {
				t.Errorf("%s is leased again", ip)
			}
			had[ip.String()] = true
			w.silent(station{mac: mac},
				message(t, dhcpv4.MessageTypeDecline, mac, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(ip)),
					dhcpv4.WithOption(dhcpv4.OptServerIdentifier(serverAddr.AsSlice()))))
			await(t, "the end of the lease", func() bool { return len(j.all()) == 2*len(had) })
		}
	}
	if !had["10.1.200.1"] || s.Stats().DeclinedAddresses != 7 {
		t.Errorf("declined were %v, set aside are %d", had, s.Stats().DeclinedAddresses)
	}
	for _, device := range []int{1, 2, 3} { // the last one gets what others declined
		if ip := w.lease(macOf(device)).YourIPAddr; device < 3 && had[ip.String()] {
			t.Errorf("device %d is leased %s, which it declined", device, ip)
		}
	}
	if st := s.Stats(); st.TooMany != 0 || st.Exhausted != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestExhaustedPool(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, _ := start(t, leasesFile(t), func(c *Config) {
		c.Pools = []Range{{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")}, {netip.MustParseAddr(
			"10.1.3.3"), netip.MustParseAddr("10.1.3.4")}}
		c.Static = map[MAC]netip.Addr{
			macOf(50): netip.MustParseAddr("10.1.3.3"), macOf(51): netip.MustParseAddr("10.1.200.1")}
	})
	var got []string
	for _, i := range []int{1, 51, 2, 50} {
		got = append(got, w.lease(macOf(i)).YourIPAddr.String())
	}
	if want := []string{"10.1.0.2", "10.1.200.1", "10.1.3.4", "10.1.3.3"}; !slices.Equal(got, want) {
		t.Errorf("leased %v, want %v", got, want)
	}
	w.silent(station{mac: macOf(3)}, message(t, dhcpv4.MessageTypeDiscover, macOf(3)))
	w.silent(station{mac: macOf(1)},
		message(t, dhcpv4.MessageTypeRelease, macOf(1), dhcpv4.WithClientIP(net.IP{10, 1, 0, 2})))
	if ip := w.lease(macOf(3)).YourIPAddr; ip.String() != "10.1.0.2" {
		t.Errorf("leased %s, want the one given back", ip)
	}
	if st := s.Stats(); st.Exhausted != 1 {
		t.Errorf("exhausted %d times, want 1", st.Exhausted)
	}
}

func TestLeaseRunsOut(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, j := start(t, leasesFile(t), func(c *Config) { c.Lease = time.Second })
	addr := w.lease(macOf(1)).YourIPAddr
	await(t, "the end", func() bool { return len(j.all()) == 2 })
	if got, want := j.all()[1], "released 02:00:00:00:00:01 "+addr.String(); got != want || len(s.Leases()) != 0 {
		t.Errorf("%q, want %q; leases %v", got, want, s.Leases())
	}
}

// TestNoAnswerWithoutListener: a client whose lease the listener refuses gets no address, which the data path relies
// on.
func TestNoAnswerWithoutListener(t *testing.T) {
	w := newWire(t, newLAN(t))
	s, j := start(t, leasesFile(t), nil)
	mac := macOf(1)
	offer, _ := w.ask(station{mac: mac}, message(t, dhcpv4.MessageTypeDiscover, mac))
	request := message(
		t, dhcpv4.MessageTypeRequest, mac, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)))
	j.failWith(errors.New("data path is full"))
	w.send(station{mac: mac}, request)
	await(t, "the listener's error", func() bool { return s.Stats().ListenerErrors == 1 })
	await(t, "the lease to be taken back", func() bool { return len(s.Leases()) == 0 })
	if st := s.Stats(); st.Acks != 0 {
		t.Error("acknowledged all the same")
	}
	j.failWith(nil)
	if ack, _ := w.ask(station{mac: mac}, request); ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("%s once the listener works", ack.MessageType())
	}
}

func TestRepeatedRequestIsNotWrittenAgain(t *testing.T) {
	w := newWire(t, newLAN(t))
	_, j := start(t, leasesFile(t), nil)
	ip := w.lease(macOf(1)).YourIPAddr
	for range 5 {
		ack, _ := w.ask(station{mac: macOf(1)}, message(t, dhcpv4.MessageTypeRequest, macOf(1), dhcpv4.WithOption(
			dhcpv4.OptRequestedIPAddress(ip))))
		if left := ack.IPAddressLeaseTime(0); ack.MessageType() != dhcpv4.MessageTypeAck || left > time.Hour ||
			left < 50*time.Minute {
			t.Errorf("%s for %s", ack.MessageType(), left)
		}
	}
	if got := j.all(); len(got) != 1 {
		t.Errorf("the listener heard %v", got)
	}
}

// TestInterfaceDownAndUp: the server goes on after its interface was down, and after it was removed and made again.
func TestInterfaceDownAndUp(t *testing.T) {
	w := newWire(t, newLAN(t))
	start(t, leasesFile(t), nil)
	ip := w.lease(macOf(1)).YourIPAddr
	run(t, "ip", "link", "set", gateway, "down")
	run(t, "ip", "link", "set", gateway, "up")
	again := func() {
		t.Helper()
		await(t, "an answer", func() bool {
			w.send(station{mac: macOf(1)}, message(t, dhcpv4.MessageTypeDiscover, macOf(1)))
			m, _ := w.next(100 * time.Millisecond)
			return m != nil && m.YourIPAddr.Equal(ip)
		})
	}
	again()
	run(t, "ip", "link", "del", gateway)
	w = newWire(t, newLAN(t))
	again()
}

func TestSecondServerIsRefused(t *testing.T) {
	newLAN(t)
	path := leasesFile(t)
	start(t, path, nil)
	if _, err := New(testConfig(path), &journal{}); err == nil ||
		!strings.Contains(err.Error(), "is a gateway running already?") {
		t.Errorf("the same file: %v", err)
	}
	if _, err := New(testConfig(leasesFile(t)), &journal{}); err == nil ||
		!strings.Contains(err.Error(), "another DHCP server has the port") {
		t.Errorf("the same interface: %v", err)
	}
	cfg := testConfig(leasesFile(t))
	cfg.Interface = "none0"
	if _, err := New(cfg, &journal{}); err == nil || !strings.Contains(err.Error(), "none0") {
		t.Errorf("no interface: %v", err)
	}
}

// TestNoICMPErrorForRenewal: the kernel must not answer a renewal with an ICMP error, which tells the client that there
// is no server.
func TestNoICMPErrorForRenewal(t *testing.T) {
	c0 := newLAN(t)
	start(t, leasesFile(t), nil)
	ns := newClient(t, c0)
	ns.run(t, "ip", "addr", "add", "10.1.50.1/16", "dev", c0)
	out, err := ns.command(
		"busybox", "sh", "-c", "echo x | busybox nc -u -w 1 10.1.0.1 67; echo $?; cat /proc/net/snmp").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n := snmp(t, string(out), "IcmpMsg", "InType3"); n > 0 {
		t.Errorf("%d ICMP errors came back", n)
	}
}

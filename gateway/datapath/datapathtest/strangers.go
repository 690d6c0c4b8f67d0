package datapathtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// strangers are the behaviours about packets that must not pass, because only admitted clients' packets may.
var strangers = []behaviour{
	{"NothingOfStrangersLeaves", nothingLeaves, Shape{}},
	{"NothingReachesStrangers", nothingComes, Shape{}},
	{"BrokenFramesGoNowhere", brokenFrames, Shape{Switch: true}},
	{"ARPCannotBeForged", arpGames, Shape{}},
	{"IPv6IsNoWayAround", ipv6, Shape{}},
	{"LANThroughTheGateway", throughTheGateway, Shape{}},
	{"OtherInterfaces", otherInterfaces, Shape{}},
	{"NewcomersAreTold", newcomers, Shape{Learn: true}},
	{"NewcomersNeedNotAskTwice", metAtOnce, Shape{Learn: true, Welcome: true}},
}

// attempt is a frame that the gateway must not forward.
type attempt struct {
	frame []byte
	// reasons are the names of the counters that may count the frame. With "-" among them it may also be counted by none:
	// a kernel may drop it before the data path receives it. A counter with "+" may count several packets, because the
	// sender's kernel replies to the gateway's answers.
	reasons string
}

// expectDropped sends attempts from a wire, waits until each is counted, and checks that the far wire gets only the
// reference flow of an admitted client. It stops early when attempts are not counted, because it waits half a minute
// for each. Alice and Bob must have leases, see drained.
func (w *World) expectDropped(t *testing.T, from, far *Wire, attempts map[string]attempt, referenceFlow *Flow) {
	t.Helper()
	lan, wan := NewWire(t, w.Intruder.Space, clientLink), NewWire(t, w.Server, serverLink)
	first, began, sent := len(far.Frames()), forwarded(w.Packets(t)), referenceFlow.Sent()
	lost := 0 // attempts that were not counted
	for name, a := range attempts {
		if lost == 2 {
			break
		}
		w.sendReference(t, referenceFlow, 1) // neighbours are resolved, and the data path may redirect
		before := w.Packets(t)
		from.Send(t, a.frame)
		reasons := strings.Fields(a.reasons)
		if slices.Contains(reasons, "-") {
			w.drained(t, lan, wan) // before the next attempt, which another thread may judge
			continue
		}
		if !w.counted(t, name, before, reasons) {
			lost++
		}
	}
	w.drained(t, lan, wan)
	w.sendReference(t, referenceFlow, 20)
	for _, f := range far.Frames()[first:] {
		if !isMark(f) && !isARP(f) {
			t.Errorf("this came through:\n%s", anatomy(f))
		}
	}
	netnstest.Await(t, "the count of what was forwarded", func() error {
		if n, sent := forwarded(w.Packets(t))-began, referenceFlow.Sent()-sent; n != sent {
			return fmt.Errorf("%d packets, %d were", n, sent)
		}
		return nil
	})
}

// sendReference sends packets of a reference flow, an admitted client's, which must arrive, and waits for them.
func (w *World) sendReference(t *testing.T, referenceFlow *Flow, n int) {
	t.Helper()
	referenceFlow.Send(n)
	netnstest.Await(t, "the reference flow", func() error {
		if referenceFlow.Came() < referenceFlow.Sent() {
			return errors.New("an admitted client's packets do not pass")
		}
		return nil
	})
}

// counted waits until one of the counters in reasons has counted exactly one packet more than before, or with "+"
// several. It reports whether that happened, and fails the test if not.
func (w *World) counted(t *testing.T, name string, before map[string]uint64, reasons []string) bool {
	t.Helper()
	var after map[string]uint64
	for range 6000 {
		after = w.Packets(t)
		if slices.ContainsFunc(reasons, func(r string) bool {
			r, more := strings.CutSuffix(r, "+")
			n := after[r] - before[r]
			return n == 1 || more && n > 1
		}) {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%s: not counted as %s: before %v, after %v", name, strings.Join(reasons, " or "), before, after)
	return false
}

// isARP reports whether a frame is ARP.
func isARP(f []byte) bool { return len(f) > 14 && binary.BigEndian.Uint16(f[12:]) == 0x0806 }

// isEchoReply recognises the answer of a station's kernel to a ping.
func isEchoReply(f []byte, s Station) bool {
	return len(f) > 34 && f[14] == 0x45 && f[23] == byte(layers.IPProtocolICMPv4) && f[34] == 0 &&
		bytes.Equal(f[26:30], s.Addr.AsSlice())
}

// isMark recognises Flow's packets by their length and the zeros after the number, also when several were aggregated.
func isMark(f []byte) bool {
	const number = 14 + 20 + 8
	if len(f) < number+FlowBytes || (len(f)-number)%FlowBytes != 0 {
		return false
	}
	for p := f[number:]; len(p) > 0; p = p[FlowBytes:] {
		if bytes.Count(p[8:FlowBytes], []byte{0}) != FlowBytes-8 {
			return false
		}
	}
	return true
}

// nothingLeaves: packets of unauthenticated clients stay in the LAN.
func nothingLeaves(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	must(t, w.OpenGarden("198.51.100.9/32", time.Time{}))
	server := NewWire(t, w.Server, serverLink)
	referenceFlow := w.Up(t, w.Alice)
	for _, c := range []struct {
		name     string
		from     Station
		attempts map[string]attempt
	}{
		{"who has no lease", w.Intruder, unleased(w)},
		{"who uses Alice's address", w.Intruder, spoofed(w)},
		{"before login", w.Bob, unadmitted(w)},
		{"admitted, where nobody may go", w.Alice, misled(w)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.expectDropped(t, NewWire(t, c.from.Space, clientLink), server, c.attempts, referenceFlow)
		})
	}
	t.Run("to a client, as from elsewhere", func(t *testing.T) { w.pretend(t, referenceFlow) })
	if w.seesBridged() {
		return // the data path judges packets for other hosts there
	}
	lan := NewWire(t, w.Bob.Space, clientLink)
	lan.Send(t, SYN(443, By(w.Bob), SourcePort(40443), Via(ServerMAC)), SYN(443, By(w.Bob), SourcePort(40444)))
	lan.await(t, 0, "\x01\xbb\x9d\xfc") // ports of the answer to the second: 443, 40444
	if holding(lan.Frames(), "\x01\xbb\x9d\xfb") > 0 {
		t.Error("a packet for another host is answered")
	}
}

// pretend has the intruder send packets to Alice, with her address as destination and remote hosts' addresses as
// source, by way of the gateway, which must not forward them.
func (w *World) pretend(t *testing.T, referenceFlow *Flow) {
	near, alice := NewWire(t, w.Intruder.Space, clientLink), NewWire(t, w.Alice.Space, clientLink)
	before := w.Counters(t, w.Alice.Addr)
	for _, a := range []string{"192.0.2.2", "8.8.8.8"} {
		asSender, to := From(netip.MustParseAddr(a), w.Intruder.MAC), To(w.Alice.Addr)
		near.Send(t, UDP(443, asSender, to), TCP(443, asSender, to))
	}
	w.drained(t, near, NewWire(t, w.Server, serverLink))
	w.sendReference(t, referenceFlow, 20)
	for _, f := range alice.Frames() {
		if bytes.HasPrefix(f, w.Alice.MAC[:]) && !isMark(f) && !isARP(f) {
			t.Errorf("this reached her:\n%s", anatomy(f))
		}
	}
	if after := w.Counters(t, w.Alice.Addr); after.DownPackets != before.DownPackets {
		t.Errorf("%d packets are on her account", after.DownPackets-before.DownPackets)
	}
}

// unleased returns frames of a station without a lease.
func unleased(w *World) map[string]attempt {
	fromOwn := By(w.Intruder)
	from := func(a string) func(*Frame) { return From(netip.MustParseAddr(a), w.Intruder.MAC) }
	return map[string]attempt{
		"TCP": {TCP(443, fromOwn), "not-leased"}, "SYN": {SYN(443, fromOwn), "not-leased"},
		"UDP":  {UDP(443, fromOwn), "not-leased"},
		"ping": {Echo(fromOwn), "not-leased"}, "HTTP": {SYN(80, fromOwn), "not-leased"},
		"garden":        {SYN(443, fromOwn, To(Garden)), "not-leased"},
		"DNS of others": {UDP(53, fromOwn), "not-leased"}, "GRE": {Protocol(layers.IPProtocolGRE, fromOwn), "not-leased"},
		"SCTP":                   {Protocol(layers.IPProtocolSCTP, fromOwn), "not-leased"},
		"IP in IP":               {Protocol(layers.IPProtocolIPv4, fromOwn), "not-leased"},
		"ESP":                    {Protocol(layers.IPProtocolESP, fromOwn), "not-leased"},
		"a first fragment":       {UDP(443, fromOwn, Fragment(0)), "not-leased -"},
		"a later fragment":       {UDP(443, fromOwn, Fragment(800)), "not-leased -"},
		"IP options":             {UDP(443, fromOwn, Options), "not-leased"},
		"the last hop":           {UDP(443, fromOwn, TTL(1)), "not-leased -"},
		"no hop left":            {UDP(443, fromOwn, TTL(0)), "not-leased -"},
		"multicast":              {UDP(5353, fromOwn, To(netip.MustParseAddr("224.0.0.251"))), "not-leased blocked -"},
		"from the gateway":       {UDP(443, from("10.1.0.1")), "not-leased foreign-source -"},
		"from the LAN's first":   {UDP(443, from("10.1.0.0")), "not-leased foreign-source -"},
		"from the LAN's last":    {UDP(443, from("10.1.0.255")), "not-leased foreign-source -"},
		"from the server":        {UDP(443, from("192.0.2.2"), To(Second)), "foreign-source -"},
		"from the router":        {UDP(443, from("192.0.2.1")), "foreign-source -"},
		"from anywhere":          {TCP(443, from("8.8.8.8")), "foreign-source"},
		"from nowhere":           {TCP(443, from("0.0.0.0")), "foreign-source not-leased -"},
		"from everybody":         {UDP(443, from("255.255.255.255")), "foreign-source -"},
		"from multicast":         {UDP(443, from("224.0.0.1")), "foreign-source -"},
		"from localhost":         {UDP(443, from("127.0.0.1")), "foreign-source -"},
		"IPv6":                   {IPv6(w.Intruder.MAC), "ipv6 -"},
		"a VLAN":                 {Tagged(UDP(443, fromOwn), 0x8100, 5), "-"},
		"a priority tag":         {Tagged(UDP(443, fromOwn), 0x8100, 0xe000), "-"},
		"two VLANs":              {Tagged(UDP(443, fromOwn), 0x88a8, 5, 0x8100, 6), "-"},
		"a tag in a priority":    {Tagged(UDP(443, fromOwn), 0x8100, 0, 0x8100, 0), "-"},
		"to everybody's MAC":     {UDP(443, fromOwn, Via(everybody)), "not-leased -"},
		"to another's MAC":       {UDP(443, fromOwn, Via(w.Bob.MAC)), "-"},
		"to the server's MAC":    {UDP(443, fromOwn, Via(ServerMAC)), "-"},
		"a DHCP server's answer": {UDP(68, SourcePort(67), fromOwn, To(w.Bob.Addr)), "rogue-dhcp"},
	}
}

// spoofed returns frames of a station that uses Alice's address.
func spoofed(w *World) map[string]attempt {
	alice := From(w.Alice.Addr, w.Intruder.MAC)
	near := From(w.Alice.Addr, datapath.MAC{2, 1, 0, 0, 0, 10})
	return map[string]attempt{
		"TCP": {TCP(443, alice), "wrong-mac"}, "SYN": {SYN(443, alice), "wrong-mac"}, "UDP": {UDP(443, alice), "wrong-mac"},
		"ping": {Echo(alice), "wrong-mac"}, "GRE": {Protocol(layers.IPProtocolGRE, alice), "wrong-mac"},
		"a MAC that differs in a bit": {UDP(443, near), "wrong-mac"},
		"a later fragment":            {UDP(443, alice, Fragment(800)), "wrong-mac -"},
		"IP options":                  {UDP(443, alice, Options), "wrong-mac"},
		"the last hop":                {UDP(443, alice, TTL(1)), "wrong-mac -"},
		"to the garden":               {SYN(443, alice, To(Garden)), "wrong-mac"},
		"to the gateway":              {UDP(53, alice, To(Gateway)), "wrong-mac"},
		"a priority tag":              {Tagged(UDP(443, alice), 0x8100, 0xe000), "-"},
	}
}

// unadmitted returns frames of a client before login.
func unadmitted(w *World) map[string]attempt {
	bob := By(w.Bob)
	to := func(a string) func(*Frame) { return To(netip.MustParseAddr(a)) }
	rogue := "rogue-dhcp"
	if w.seesBridged() {
		rogue += "+" // on its way to other ports, too
	}
	return map[string]attempt{
		"HTTPS": {SYN(443, bob), "rejected"}, "TCP in the middle": {TCP(443, bob), "rejected"},
		"UDP":  {UDP(443, bob), "rejected"},
		"ping": {Echo(bob), "rejected"}, "DNS of others": {UDP(53, bob), "rejected"},
		"DNS of others, TCP":     {SYN(53, bob), "rejected"},
		"GRE":                    {Protocol(layers.IPProtocolGRE, bob), "rejected"},
		"ESP":                    {Protocol(layers.IPProtocolESP, bob), "rejected"},
		"a first fragment":       {UDP(443, bob, Fragment(0)), "blocked -"},
		"a later fragment":       {TCP(443, bob, Fragment(800)), "blocked -"},
		"IP options":             {UDP(443, bob, Options), "rejected blocked"},
		"HTTP, the last hop":     {UDP(80, bob, TTL(1)), "rejected blocked -"},
		"beside the garden":      {SYN(443, bob, To(Beside)), "rejected"},
		"multicast":              {UDP(5353, bob, to("224.0.0.251")), "blocked -"},
		"broadcast":              {UDP(7777, bob, to("255.255.255.255"), Via(everybody)), "blocked -"},
		"the LAN's broadcast":    {UDP(7777, bob, to("10.1.0.255")), "rejected blocked -"},
		"the WAN's broadcast":    {UDP(7777, bob, to("192.0.2.255")), "rejected blocked -"},
		"DHCP of others":         {UDP(67, SourcePort(68), bob), "blocked"},
		"a DHCP server's answer": {UDP(68, SourcePort(67), bob, to("255.255.255.255"), Via(everybody)), rogue},
		"a reset":                {TCP(443, bob, func(f *Frame) { f.L4.(*layers.TCP).RST = true }), "blocked rejected"},
		"Alice":                  {UDP(443, bob, To(w.Alice.Addr)), "rejected blocked"},
		"a VLAN":                 {Tagged(UDP(443, bob), 0x8100, 5), "-"},
		"a priority tag":         {Tagged(UDP(443, bob), 0x8100, 0), "-"},
		"IPv6":                   {IPv6(w.Bob.MAC), "ipv6 -"},
	}
}

// misled returns frames of an admitted client that must not be forwarded (RFC 1812, 5.3.4; and frames of another
// network).
func misled(w *World) map[string]attempt {
	alice := By(w.Alice)
	all := map[string]attempt{
		"a VLAN":    {Tagged(UDP(443, alice, Carrying([]byte("leak"))), 0x8100, 5), "-"},
		"two VLANs": {Tagged(UDP(443, alice, Carrying([]byte("leak"))), 0x88a8, 5, 0x8100, 6), "-"},
		"IPv6":      {IPv6(w.Alice.MAC), "ipv6 -"},
	}
	if !w.seesBridged() {
		all["to everybody's MAC"] = attempt{UDP(443, alice, Carrying([]byte("leak")), Via(everybody)), "-"}
		all["to a group's MAC"] = attempt{
			UDP(443, alice, Carrying([]byte("leak")), Via(datapath.MAC{1, 0, 0x5e, 0, 0, 1})), "-"}
		all["to another's MAC"] = attempt{UDP(443, alice, Carrying([]byte("leak")), Via(w.Bob.MAC)), "-"}
	}
	return all
}

// nothingComes: packets from the WAN do not reach unauthenticated clients.
func nothingComes(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	must(t, w.OpenGarden("198.51.100.9/32", time.Time{}))
	lan := NewWire(t, w.Intruder.Space, clientLink)
	from := func(a netip.Addr) func(*Frame) { return func(f *Frame) { f.IP.SrcIP = a.AsSlice() } }
	to := func(a netip.Addr, edits ...func(*Frame)) []func(*Frame) {
		return append([]func(*Frame){Down, To(a)}, edits...)
	}
	bob := w.Bob.Addr
	w.expectDropped(t, NewWire(t, w.Server, serverLink), lan, map[string]attempt{
		"UDP": {UDP(443, to(bob)...), "blocked"}, "TCP": {TCP(443, to(bob)...), "blocked"},
		"SYN":  {SYN(443, to(bob)...), "blocked"},
		"ping": {Echo(to(bob)...), "blocked"}, "GRE": {Protocol(layers.IPProtocolGRE, to(bob)...), "blocked"},
		"a first fragment":             {UDP(443, to(bob, Fragment(0))...), "blocked -"},
		"a later fragment":             {UDP(443, to(bob, Fragment(800))...), "blocked -"},
		"IP options":                   {UDP(443, to(bob, Options)...), "blocked"},
		"beside the garden":            {UDP(443, to(bob, from(Beside))...), "blocked"},
		"to no lease":                  {UDP(443, to(w.Intruder.Addr)...), "not-leased -"},
		"to no lease, from the garden": {UDP(443, to(w.Intruder.Addr, from(Garden))...), "not-leased -"},
		"to the LAN's first":           {UDP(443, to(netip.MustParseAddr("10.1.0.0"))...), "not-leased -"},
		"to the LAN's last":            {UDP(443, to(netip.MustParseAddr("10.1.0.255"))...), "not-leased -"},
		"from Alice":                   {UDP(443, to(bob, from(w.Alice.Addr))...), "foreign-source -"},
		"from the gateway":             {UDP(443, to(bob, from(Gateway))...), "foreign-source -"},
		"from the LAN to Alice":        {UDP(443, to(w.Alice.Addr, from(bob), Carrying([]byte("leak")))...), "foreign-source -"},
	}, w.Down(t, w.Alice))
}

// Tests of a Judge: a table of packets with their verdicts, and the helpers that make packets. newTable has alice, who
// is admitted, bob, who is not, and a walled garden.

package admission

import (
	"bytes"
	"encoding/binary"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The tests of the verdicts on packets. alice is admitted, bob is a known client and not admitted, and nobody has the
// address nobody. tcp, udp and icmp make a packet from alice to the server, changed by edits such as from, to and down.

var (
	lan     = netip.MustParsePrefix("10.1.0.0/24")
	gateway = netip.MustParseAddr("10.1.0.1")
	alice   = netip.MustParseAddr("10.1.0.10")
	bob     = netip.MustParseAddr("10.1.0.11")
	nobody  = netip.MustParseAddr("10.1.0.12")
	server  = netip.MustParseAddr("192.0.2.2")

	aliceMAC = datapath.MAC{2, 0, 0, 0, 0, 10}
	bobMAC   = datapath.MAC{2, 0, 0, 0, 0, 11}
)

// packet is a packet under construction, sent by mac. segments, length and toMany are Packet's.
type packet struct {
	mac      datapath.MAC
	ip       layers.IPv4
	l4       gopacket.SerializableLayer
	pay      []byte
	segments int
	length   int
	toMany   bool
	change   func([]byte) []byte // changes the packet's bytes
}

func build(protocol layers.IPProtocol, l4 gopacket.SerializableLayer, edits []func(*packet)) packet {
	p := packet{
		mac: aliceMAC, l4: l4, pay: bytes.Repeat([]byte{'x'}, 100), change: func(b []byte) []byte { return b },
		ip: layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: alice.AsSlice(), DstIP: server.AsSlice()},
	}
	for _, edit := range edits {
		edit(&p)
	}
	switch l := p.l4.(type) {
	case *layers.TCP:
		l.SetNetworkLayerForChecksum(&p.ip)
	case *layers.UDP:
		l.SetNetworkLayerForChecksum(&p.ip)
	}
	return p
}

// tcp returns a segment with 100 bytes from alice to a port of the server, changed by edits.
func tcp(port uint16, edits ...func(*packet)) packet {
	return build(layers.IPProtocolTCP, &layers.TCP{SrcPort: 40000, DstPort: layers.TCPPort(port), ACK: true}, edits)
}

func udp(port uint16, edits ...func(*packet)) packet {
	return build(layers.IPProtocolUDP, &layers.UDP{SrcPort: 40000, DstPort: layers.UDPPort(port)}, edits)
}

func icmp(kind uint8, edits ...func(*packet)) packet {
	return build(layers.IPProtocolICMPv4, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(kind, 0)}, edits)
}

func (p packet) bytes() []byte {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, &p.ip, p.l4,
		gopacket.Payload(p.pay)); err != nil {
		panic(err)
	}
	return p.change(b.Bytes())
}

func (p packet) packet() Packet {
	return Packet{Bytes: p.bytes(), Length: p.length, Segments: p.segments, ToMany: p.toMany}
}

func from(a netip.Addr, m datapath.MAC) func(*packet) {
	return func(p *packet) { p.ip.SrcIP, p.mac = a.AsSlice(), m }
}

func to(a netip.Addr) func(*packet) { return func(p *packet) { p.ip.DstIP = a.AsSlice() } }

// down reverses a packet: from the server to alice.
func down(p *packet) { p.ip.SrcIP, p.ip.DstIP = server.AsSlice(), alice.AsSlice() }

func source(port uint16) func(*packet) {
	return func(p *packet) {
		if l, ok := p.l4.(*layers.UDP); ok {
			l.SrcPort = layers.UDPPort(port)
		}
	}
}

func segments(n int) func(*packet) { return func(p *packet) { p.segments = n } }

func fragment(p *packet) { p.ip.Flags = layers.IPv4MoreFragments }

func later(p *packet) { p.ip.FragOffset = 100 }

func options(p *packet) {
	p.ip.Options = []layers.IPv4Option{
		{OptionType: 7, OptionLength: 7, OptionData: []byte{4, 0, 0, 0, 0}}, {OptionType: 1}}
}

// toMany makes a packet one of a frame to broadcast or multicast.
func toMany(p *packet) { p.toMany = true }

// received sets the number of bytes that were received, padding included.
func received(n int) func(*packet) { return func(p *packet) { p.length = n } }

// summed recomputes the header's checksum, which set has made wrong.
func summed(p *packet) {
	before := p.change
	p.change = func(b []byte) []byte {
		b = before(b)
		b[10], b[11] = 0, 0
		var sum uint32
		for index := 0; index < 20; index += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[index:]))
		}
		binary.BigEndian.PutUint16(b[10:], ^uint16(sum+sum>>16))
		return b
	}
}

// cut leaves the first bytes of a packet.
func cut(to int) func(*packet) {
	return func(p *packet) {
		before := p.change
		p.change = func(b []byte) []byte { return before(b)[:to] }
	}
}

// set changes a byte of a packet.
func set(index int, value byte) func(*packet) {
	return func(p *packet) {
		before := p.change
		p.change = func(b []byte) []byte { b = before(b); b[index] = value; return b }
	}
}

var must = netnstest.Must

// newTable returns a table with alice, who is admitted, bob, who is not, and the garden 198.51.100.0/24 and, for an
// hour, 203.0.113.7.
func newTable(t testing.TB, edits ...func(*Config)) (*Table, *Judge) {
	t.Helper()
	cfg := Config{Network: datapath.Network{Interface: "lan0", Address: netip.PrefixFrom(gateway, lan.Bits())},
		PortalPorts: []uint16{8080, 8443}}
	for _, edit := range edits {
		edit(&cfg)
	}
	table, err := New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, table.Close()) })
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	must(t, table.Open(netip.MustParsePrefix("198.51.100.77/24"), time.Time{}))
	must(t, table.Open(netip.MustParsePrefix("203.0.113.7/32"), time.Now().Add(time.Hour)))
	return table, table.Judge()
}

// counted returns a table's counts by reason, without zeros.
func counted(t *Table) map[string]uint64 {
	n, _ := t.Packets()
	maps.DeleteFunc(n, func(_ string, n uint64) bool { return n == 0 })
	return n
}

func counters(t *testing.T, table *Table, a netip.Addr) datapath.Counters {
	t.Helper()
	c, err := table.Counters(datapath.IDOf(a))
	must(t, err)
	return c
}

// Clients and destinations of TestUp's packets.
var (
	isBob          = from(bob, bobMAC)
	all, multicast = netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("224.0.0.251")
)

// ups is the policy for packets from clients. "pre-auth" is bob before login, "here" is at the gateway.
var ups = map[string]struct {
	packet  packet
	verdict Verdict
	reason  string // the counter that counts the packet
	packets uint64 // as how many
	counted uint64 // bytes that are counted for alice
}{
	"admitted":                   {tcp(443), Forward, "forwarded", 1, 140},
	"admitted, UDP":              {udp(443), Forward, "forwarded", 1, 128},
	"admitted, HTTP":             {tcp(80), Forward, "forwarded", 1, 140},
	"admitted, a fragment":       {udp(443, fragment), Forward, "forwarded", 1, 128},
	"admitted, a later fragment": {udp(443, later), Forward, "forwarded", 1, 128},
	"admitted, IP options":       {tcp(443, options), Forward, "forwarded", 1, 148},
	"admitted, aggregated":       {tcp(443, segments(4)), Forward, "forwarded", 4, 140 + 3*40},
	"admitted, aggregated UDP":   {udp(443, segments(3)), Forward, "forwarded", 3, 128 + 2*28},
	"admitted, padded":           {tcp(443, received(160)), Forward, "forwarded", 1, 140},
	"admitted, its begin only":   {tcp(443, cut(60), received(140)), Forward, "forwarded", 1, 140},
	"admitted, beyond 64 KiB": {
		tcp(443, set(2, 0), set(3, 0), segments(50), received(70_040)), Forward, "forwarded", 50, 70_040 + 49*40},
	"admitted, frame to many":  {udp(443, toMany), Local, "local", 1, 0},
	"admitted, multicast":      {udp(5353, to(multicast)), Local, "local", 1, 0},
	"admitted, to the gateway": {tcp(22, to(gateway)), Local, "local", 1, 0},
	"admitted, other MAC":      {tcp(443, from(alice, bobMAC)), Drop, "wrong-mac", 1, 0},
	"other MAC, other half":    {tcp(443, from(alice, datapath.MAC{2, 1, 0, 0, 0, 10})), Drop, "wrong-mac", 1, 0},
	"never leased":             {tcp(443, from(nobody, bobMAC)), Drop, "not-leased", 1, 0},
	"renews what it never had": {udp(67, source(68), from(nobody, bobMAC), to(gateway)), Local, "local", 1, 0},
	"source outside the LAN":   {tcp(443, from(server, aliceMAC)), Drop, "foreign-source", 1, 0},
	"source behind the LAN": {
		tcp(443, from(netip.MustParseAddr("10.1.1.0"), aliceMAC)), Drop, "foreign-source", 1, 0},
	"source before the LAN": {
		tcp(443, from(netip.MustParseAddr("10.0.255.255"), aliceMAC)), Drop, "foreign-source", 1, 0},
	"no source":                 {tcp(443, from(netip.IPv4Unspecified(), aliceMAC)), Drop, "foreign-source", 1, 0},
	"the gateway's own address": {tcp(443, from(gateway, aliceMAC)), Drop, "not-leased", 1, 0},
	"DHCP, no address yet": {
		udp(67, source(68), from(netip.IPv4Unspecified(), bobMAC), to(all)), Local, "local", 1, 0},
	"no address, not DHCP":        {udp(53, from(netip.IPv4Unspecified(), bobMAC)), Drop, "not-leased", 1, 0},
	"plays DHCP server":           {udp(68, source(67), to(bob)), Drop, "rogue-dhcp", 1, 0},
	"pre-auth, elsewhere":         {udp(443, isBob), Reject, "rejected", 1, 0},
	"pre-auth, DNS here":          {udp(53, isBob, to(gateway)), Local, "local", 1, 0},
	"pre-auth, DNS over TCP":      {tcp(53, isBob, to(gateway)), Local, "local", 1, 0},
	"pre-auth, DNS elsewhere":     {udp(53, isBob), Reject, "rejected", 1, 0},
	"pre-auth, the portal":        {tcp(8080, isBob, to(gateway)), Local, "local", 1, 0},
	"pre-auth, the portal, TLS":   {tcp(8443, isBob, to(gateway)), Local, "local", 1, 0},
	"pre-auth, UDP to its port":   {udp(8080, isBob, to(gateway)), Reject, "rejected", 1, 0},
	"pre-auth, the portal away":   {tcp(8080, isBob), Reject, "rejected", 1, 0},
	"pre-auth, ssh here":          {tcp(22, isBob, to(gateway)), Reject, "rejected", 1, 0},
	"pre-auth, ping here":         {icmp(8, isBob, to(gateway)), Local, "local", 1, 0},
	"pre-auth, ping":              {icmp(8, isBob), Reject, "rejected", 1, 0},
	"pre-auth, an ICMP error":     {icmp(3, isBob), Drop, "blocked", 1, 0},
	"pre-auth, garden":            {tcp(443, isBob, to(netip.MustParseAddr("198.51.100.9"))), Forward, "garden", 1, 0},
	"pre-auth, garden's HTTP":     {tcp(80, isBob, to(netip.MustParseAddr("198.51.100.9"))), Forward, "garden", 1, 0},
	"pre-auth, garden for a time": {tcp(443, isBob, to(netip.MustParseAddr("203.0.113.7"))), Forward, "garden", 1, 0},
	"pre-auth, beside garden":     {tcp(443, isBob, to(netip.MustParseAddr("203.0.113.8"))), Reject, "rejected", 1, 0},
	"pre-auth, HTTP":              {tcp(80, isBob), Portal, "portal", 1, 0},
	"pre-auth, HTTP here":         {tcp(80, isBob, to(gateway)), Reject, "rejected", 1, 0},
	"pre-auth, HTTP to alice":     {tcp(80, isBob, to(alice)), Portal, "portal", 1, 0},
	"pre-auth, HTTP by UDP":       {udp(80, isBob), Reject, "rejected", 1, 0},
	"pre-auth, HTTPS":             {tcp(443, isBob), Reject, "rejected", 1, 0},
	"pre-auth, a reset": {
		tcp(443, isBob, func(p *packet) { p.l4.(*layers.TCP).RST = true }), Drop, "blocked", 1, 0},
	"pre-auth, a fragment":     {udp(443, isBob, fragment), Drop, "blocked", 1, 0},
	"pre-auth, later fragment": {tcp(80, isBob, later), Drop, "blocked", 1, 0},
	"pre-auth, fragment here":  {udp(53, isBob, later, to(gateway)), Drop, "blocked", 1, 0},
	"pre-auth, IP options":     {tcp(443, isBob, options), Drop, "blocked", 1, 0},
	"pre-auth, multicast":      {udp(5353, isBob, to(multicast)), Drop, "blocked", 1, 0},
	"pre-auth, HTTP to many":   {tcp(80, isBob, to(multicast)), Drop, "blocked", 1, 0},
	"pre-auth, renews":         {udp(67, source(68), isBob, to(gateway)), Local, "local", 1, 0},
	"pre-auth, DHCP to all":    {udp(67, source(68), isBob, to(all)), Local, "local", 1, 0},
	"pre-auth, DHCP elsewhere": {udp(67, source(68), isBob), Drop, "blocked", 1, 0},
	"pre-auth, frame to many":  {tcp(443, isBob, toMany), Drop, "blocked", 1, 0},
	"pre-auth, HTTP to many's": {tcp(80, isBob, toMany), Drop, "blocked", 1, 0},
	"pre-auth, garden, to many": {
		tcp(443, isBob, toMany, to(netip.MustParseAddr("198.51.100.9"))), Drop, "blocked", 1, 0},
	"pre-auth, ping to many": {icmp(8, isBob, toMany, to(gateway)), Local, "local", 1, 0},
	"a wrong sum":            {tcp(443, set(10, 0x12)), Drop, "malformed", 1, 0},
	"a wrong sum of options": {tcp(443, options, set(21, 9)), Drop, "malformed", 1, 0},
	"length of 19":           {tcp(443, set(3, 19), summed), Drop, "malformed", 1, 0},
	"length beyond all":      {tcp(443, set(3, 141), summed), Drop, "malformed", 1, 0},
	"length of 0":            {tcp(443, set(3, 0), summed), Drop, "malformed", 1, 0},
	"header length 4":        {tcp(443, set(0, 0x44), summed), Drop, "malformed", 1, 0},
	"IPv5":                   {tcp(443, set(0, 0x55), summed), Drop, "malformed", 1, 0},
	"cut in the header":      {tcp(443, cut(19)), Drop, "malformed", 1, 0},
	"options longer than it": {tcp(443, set(0, 0x4f), cut(40)), Drop, "malformed", 1, 0},
	"pre-auth, no ports":     {tcp(80, isBob, cut(22), received(140)), Drop, "blocked", 1, 0},
}

// TestUp compares the judge's verdicts with the policy in ups.
func TestUp(t *testing.T) {
	for name, c := range ups {
		t.Run(name, func(t *testing.T) {
			table, judge := newTable(t)
			if got := judge.JudgeUp(c.packet.mac, c.packet.packet(), Now()); got != c.verdict {
				t.Errorf("verdict %d, want %d", got, c.verdict)
			}
			if got, want := counted(table), map[string]uint64{c.reason: c.packets}; !maps.Equal(got, want) {
				t.Errorf("counted %v, want %v", got, want)
			}
			got := counters(t, table, alice)
			if got.UpBytes != c.counted || got.UpPackets != 0 && got.UpPackets != c.packets || got.DownBytes != 0 {
				t.Errorf("counted %+v, want %d bytes in %d packets", got, c.counted, c.packets)
			}
			if got.Seen.IsZero() != (c.counted == 0) {
				t.Errorf("seen %v", got.Seen)
			}
		})
	}
}

// TestDown: the table of cases is the policy for packets to clients.
func TestDown(t *testing.T) {
	garden := netip.MustParseAddr("198.51.100.9")
	cases := map[string]struct {
		packet  packet
		verdict Verdict
		reason  string
		counted uint64 // bytes that are counted for alice
	}{
		"admitted":                  {tcp(443, down), Forward, "forwarded", 140},
		"admitted, aggregated":      {tcp(443, down, segments(3)), Forward, "forwarded", 220},
		"never leased":              {tcp(443, down, to(nobody)), Drop, "not-leased", 0},
		"pre-auth":                  {tcp(443, down, to(bob)), Drop, "blocked", 0},
		"pre-auth, from the garden": {tcp(443, down, from(garden, bobMAC), to(bob)), Forward, "garden", 0},
		"claims to be of the LAN":   {tcp(443, from(bob, bobMAC), to(alice)), Drop, "foreign-source", 0},
		"not for the LAN":           {tcp(443, down, to(server)), Drop, "foreign-source", 0},
		"to the gateway":            {tcp(443, down, to(gateway)), Drop, "not-leased", 0},
		"of the gateway":            {tcp(443, from(gateway, bobMAC), to(bob)), Local, "local", 0},
		"of the gateway, to nobody": {tcp(443, from(gateway, bobMAC), to(nobody)), Drop, "not-leased", 0},
		"no IPv4":                   {tcp(443, down, set(0, 0x65)), Drop, "malformed", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			table, judge := newTable(t)
			got, mac := judge.JudgeDown(c.packet.packet(), Now())
			if got != c.verdict {
				t.Errorf("verdict %d, want %d", got, c.verdict)
			}
			want := map[netip.Addr]datapath.MAC{alice: aliceMAC, bob: bobMAC}[netip.AddrFrom4([4]byte(c.packet.ip.DstIP))]
			if got != Drop && mac != want {
				t.Errorf("goes to %x, want %x", mac, want)
			}
			if counted(table)[c.reason] == 0 {
				t.Errorf("counted %v, want %s", counted(table), c.reason)
			}
			if got := counters(t, table, alice).DownBytes; got != c.counted {
				t.Errorf("counted %d bytes, want %d", got, c.counted)
			}
		})
	}
}

// TestAcross: packets between clients through the gateway are counted for both.
func TestAcross(t *testing.T) {
	table, judge := newTable(t)
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{nobody}, MAC: bobMAC, Admitted: true}))
	p := tcp(443, to(nobody)).packet()
	if v := judge.JudgeUp(aliceMAC, p, Now()); v != Forward {
		t.Fatalf("up: verdict %d", v)
	}
	if v, mac := judge.JudgeAcross(p, Now()); v != Forward || mac != bobMAC {
		t.Errorf("across: verdict %d to %x", v, mac)
	}
	if n := counted(table); n["forwarded"] != 2 {
		t.Errorf("one packet across is counted as %v", n)
	}
	if up, down := counters(t, table, alice), counters(t, table, nobody); up.UpBytes != 140 || down.DownBytes != 140 {
		t.Errorf("counted %+v and %+v", up, down)
	}
	if v, _ := judge.JudgeAcross(tcp(443, to(bob)).packet(), Now()); v != Drop {
		t.Errorf("to one that is not admitted: verdict %d", v)
	}
	if v, _ := judge.JudgeAcross(tcp(443).packet(), Now()); v != Drop {
		t.Errorf("to nowhere in the LAN: verdict %d", v)
	}
}

// arp returns a request for the gateway by which a MAC address claims an address.
func arp(a netip.Addr, m datapath.MAC) []byte {
	b := []byte{0, 1, 8, 0, 6, 4, 0, 1}
	b = append(append(b, m[:]...), a.AsSlice()...)
	return append(append(b, 0, 0, 0, 0, 0, 0), gateway.AsSlice()...)
}

// TestARP: ARP passes whose sender, by frame and by packet, is the client that has the address, and probes for free
// addresses.
func TestARP(t *testing.T) {
	for name, c := range map[string]struct {
		from    datapath.MAC
		packet  []byte
		verdict Verdict
		reason  string
	}{
		"of alice":                {aliceMAC, arp(alice, aliceMAC), Local, ""},
		"of bob":                  {bobMAC, arp(bob, bobMAC), Local, ""},
		"a probe":                 {bobMAC, arp(netip.IPv4Unspecified(), bobMAC), Local, ""},
		"alice's, by bob":         {bobMAC, arp(alice, bobMAC), Drop, "arp-spoof"},
		"the gateway's":           {bobMAC, arp(gateway, bobMAC), Drop, "arp-spoof"},
		"never leased":            {bobMAC, arp(nobody, bobMAC), Drop, "arp-spoof"},
		"outside the LAN":         {bobMAC, arp(server, bobMAC), Drop, "arp-spoof"},
		"alice's, in bob's frame": {bobMAC, arp(alice, aliceMAC), Drop, "arp-spoof"},
		"bob's, in alice's frame": {aliceMAC, arp(bob, bobMAC), Drop, "arp-spoof"},
		"cut":                     {aliceMAC, arp(alice, aliceMAC)[:27], Drop, "malformed"},
		"of another kind":         {aliceMAC, binary.BigEndian.AppendUint64([]byte{0, 6}, 0), Drop, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			table, judge := newTable(t)
			if got := judge.ARP(c.from, c.packet, Now()); got != c.verdict {
				t.Errorf("verdict %d, want %d", got, c.verdict)
			}
			want := map[string]uint64{}
			if c.reason != "" {
				want[c.reason] = 1
			}
			if got := counted(table); !maps.Equal(got, want) {
				t.Errorf("counted %v, want %v", got, want)
			}
		})
	}
}

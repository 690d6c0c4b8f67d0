package ebpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Addresses of the attacks by IPv6.
var (
	bob6      = netip.MustParseAddr("2001:db8:1::b0b")
	bobLocal  = netip.MustParseAddr("fe80::ff:fe00:b")
	nobody6   = netip.MustParseAddr("2001:db8:1::bad")
	foreign6  = netip.MustParseAddr("2001:db8:77::1")
	garden6   = netip.MustParseAddr("2001:db8:9::9a")
	allHosts6 = netip.MustParseAddr("ff02::1")
)

// Extension headers (RFC 8200, section 4).
const (
	hopByHop, routing, fragmented, dstOptions, in6 = 0, 43, 44, 60, 41
)

// packet6 returns a frame with an IPv6 packet of a protocol. Its checksums are wrong, because the programs check only
// its lengths.
func packet6(mac datapath.MAC, from, to netip.Addr, protocol byte, payload ...byte) []byte {
	head := []byte{0x60, 0, 0, 0, byte(len(payload) >> 8), byte(len(payload)), protocol, 255}
	dst := lanMAC
	if mac == serverMAC {
		dst = wanMAC
	}
	return bytes.Join([][]byte{dst[:], mac[:], {0x86, 0xdd}, head, from.AsSlice(), to.AsSlice(), payload}, nil)
}

// datagram returns a transport header with ports, of TCP's length and fit for UDP too.
func datagram(source, dest uint16) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, source), dest)
	return append(b, 0, 28, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

// extension returns an extension header and what follows it, whose protocol is next. The header has options with
// padding alone, or is a routing header of type 0 with one address left, or that of the first fragment of several.
func extension(kind, next byte, follows []byte) []byte {
	h := []byte{next, 0, 1, 4, 0, 0, 0, 0}
	switch kind {
	case routing:
		h = append([]byte{next, 2, 0, 1, 0, 0, 0, 0}, foreign6.AsSlice()...)
	case fragmented:
		h = []byte{next, 0, 0, 1, 0, 0, 0, 7}
	}
	return append(h, follows...)
}

// wholeFragment returns a fragment header, and what follows it, of a packet in a single fragment (RFC 6946).
func wholeFragment(next byte, follows []byte) []byte {
	return append([]byte{next, 0, 0, 0, 0, 0, 0, 7}, follows...)
}

// nd returns a message of neighbour discovery about an address.
func nd(kind byte, target netip.Addr) []byte {
	return append([]byte{kind, 0, 0, 0, 0x20, 0, 0, 0}, target.AsSlice()...)
}

// unreachable6 returns an ICMPv6 error about a packet of TCP.
func unreachable6(from, to netip.Addr, source, dest uint16) []byte {
	quoted := packet6(aliceMAC, from, to, unix.IPPROTO_TCP, datagram(source, dest)...)[14:]
	return append([]byte{1, 3, 0, 0, 0, 0, 0, 0}, quoted...)
}

// attack6 is a frame, and what becomes of it: the verdict, and the counter that counts it.
type attack6 struct {
	frame []byte
	want  string
}

const tcpP, udpP, icmpP = unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMPV6

// forgeries6 returns packets with a false sender.
func forgeries6(netip.Addr) map[string]attack6 {
	web := datagram(40000, 443)
	from := func(mac datapath.MAC, a netip.Addr) []byte { return packet6(mac, a, server6, tcpP, web...) }
	return map[string]attack6{
		"the client's own":            {from(aliceMAC, alice6), "redirect forwarded"},
		"within the prefix, nobody's": {from(aliceMAC, nobody6), "shot not-leased"},
		"within, of another client":   {from(bobMAC, alice6), "shot wrong-mac"},
		"outside of the prefix":       {from(aliceMAC, foreign6), "shot foreign-source"},
		"the gateway's":               {from(aliceMAC, gateway6), "shot not-leased"},
		"no source":                   {from(aliceMAC, netip.IPv6Unspecified()), "shot foreign-source"},
		"loopback":                    {from(aliceMAC, netip.IPv6Loopback()), "shot foreign-source"},
		"an IPv4 address":             {from(aliceMAC, netip.AddrFrom16(alice.As16())), "shot foreign-source"},
		"a group":                     {from(aliceMAC, allHosts6), "shot foreign-source"},
		"link-local, of another":      {from(bobMAC, aliceLocal), "shot wrong-mac"},
		"link-local, to the Internet": {from(aliceMAC, aliceLocal), "shot foreign-source"},
		"link-local, to a client":     {packet6(aliceMAC, aliceLocal, bobLocal, tcpP, web...), "shot foreign-source"},
		"global, to link-local":       {packet6(aliceMAC, alice6, bobLocal, tcpP, web...), "shot foreign-source"},
		"to nobody's address":         {packet6(aliceMAC, alice6, nobody6, tcpP, web...), "shot not-leased"},
		"to one who isn't admitted":   {packet6(aliceMAC, alice6, bob6, tcpP, web...), "shot stack blocked"},
		"to a group of all sites":     {packet6(aliceMAC, alice6, netip.MustParseAddr("ff0e::1"), udpP, web...), "ok local"},
		"to a group, before login":    {packet6(bobMAC, bob6, allHosts6, udpP, web...), "shot blocked"},
		"plays DHCPv6 server": {
			packet6(aliceMAC, aliceLocal, bobLocal, udpP, datagram(547, 546)...), "shot rogue-dhcp"},
		"plays router":                 {packet6(aliceMAC, aliceLocal, allHosts6, icmpP, nd(134, alice6)...), "shot local"},
		"redirects":                    {packet6(aliceMAC, aliceLocal, bobLocal, icmpP, nd(137, alice6)...), "shot local"},
		"advertises another's":         {packet6(bobMAC, bobLocal, allHosts6, icmpP, nd(136, alice6)...), "shot local"},
		"solicits with another's":      {packet6(bobMAC, alice6, allHosts6, icmpP, nd(135, gateway6)...), "shot not-leased"},
		"its own reversed, from a WAN": {packet6(serverMAC, alice6, bob6, tcpP, web...), "shot foreign-source"},
	}
}

// layers6 returns packets that try to hide by extension headers what they are. local is the gateway's link-local
// address. Long: a table.
func layers6(local netip.Addr) map[string]attack6 {
	dns, web := datagram(40000, 53), datagram(40000, 443)
	up := func(mac datapath.MAC, from, to netip.Addr) func(byte, ...byte) []byte {
		return func(protocol byte, b ...byte) []byte { return packet6(mac, from, to, protocol, b...) }
	}
	a, b, here := up(aliceMAC, alice6, server6), up(bobMAC, bob6, server6), up(aliceMAC, aliceLocal, allHosts6)
	bobs := up(bobMAC, bob6, gateway6)
	solicits := nd(135, bob6)
	all := map[string]attack6{
		"fragment, whole":           {a(fragmented, wholeFragment(udpP, web)...), "redirect forwarded"},
		"fragment, first, no ports": {a(fragmented, extension(fragmented, udpP, nil)...), "redirect forwarded"},
		"fragment, overlaps it":     {a(fragmented, extension(fragmented, udpP, web)...), "redirect forwarded"},
		"routing":                   {a(routing, extension(routing, udpP, web)...), "redirect forwarded"},
		"hop-by-hop":                {a(hopByHop, extension(hopByHop, udpP, web)...), "ok stack"},
		"6in4":                      {a(in6, b(tcpP, web...)[14:]...), "redirect forwarded"},
		"Teredo":                    {a(udpP, datagram(40000, 3544)...), "redirect forwarded"},
		"6in4, before login":        {b(in6, a(tcpP, web...)[14:]...), "shot blocked"},
		"Teredo, before login":      {b(udpP, datagram(40000, 3544)...), "redirect rejected"},
		"DNS, before login":         {bobs(udpP, dns...), "ok local"},
		"portal, before login":      {bobs(tcpP, datagram(40000, 8080)...), "ok local"},
		"portal, by link-local":     {packet6(bobMAC, bobLocal, local, tcpP, datagram(40000, 8080)...), "ok local"},
		"DNS, by link-local":        {packet6(bobMAC, bobLocal, gateway6, udpP, dns...), "ok local"},
		"DNS of a client, the same": {packet6(bobMAC, bobLocal, alice6, udpP, dns...), "shot blocked"},
		"ssh, before login":         {bobs(tcpP, datagram(40000, 22)...), "redirect rejected"},
		"HTTPS, before login":       {b(tcpP, web...), "redirect rejected"},
		"QUIC, before login":        {b(udpP, web...), "redirect rejected"},
		"garden":                    {packet6(bobMAC, bob6, garden6, tcpP, web...), "ok garden"},
		"beside the garden":         {packet6(bobMAC, bob6, garden6.Next(), tcpP, web...), "redirect rejected"},
		"MLD":                       {here(hopByHop, extension(hopByHop, icmpP, nd(143, allHosts6))...), "ok local"},
		"ND in a fragment": {
			here(fragmented, wholeFragment(icmpP, solicits)...), "ok local"}, // which the stack drops (RFC 6980)
		"ND with few hops": {func() []byte {
			b := here(icmpP, solicits...)
			b[21] = 64
			return b
		}(), "shot malformed"},
	}
	for _, first := range []byte{hopByHop, routing, fragmented, dstOptions} {
		for _, second := range []byte{hopByHop, routing, fragmented, dstOptions} {
			both := func(last byte, b []byte) []byte { return extension(first, second, extension(second, last, b)) }
			name := fmt.Sprintf("headers %d, %d ", first, second)
			all[name+"before login"] = attack6{b(first, both(udpP, web)...), "shot blocked"}
			all[name+"before login, DNS here"] = attack6{bobs(first, both(udpP, dns)...), "shot blocked"}
			all[name+"garden"] = attack6{packet6(bobMAC, bob6, garden6, first, both(tcpP, web)...), "shot blocked"}
			if first != fragmented {
				all[name+"router"] = attack6{here(first, both(icmpP, nd(134, alice6))...), "shot malformed"}
				all[name+"solicitation here"] = attack6{packet6(aliceMAC, alice6, gateway6, first, both(icmpP, solicits)...),
					"shot malformed"}
			}
		}
	}
	return all
}

// unasked6 returns packets from the WAN to a client that has sent one packet, alice6, from port 40000 to server6's port
// 443.
func unasked6(netip.Addr) map[string]attack6 {
	other := server6.Next()
	back := func(from netip.Addr, protocol byte, b ...byte) []byte {
		return packet6(serverMAC, from, alice6, protocol, b...)
	}
	about := func(from, to netip.Addr, source, dest uint16) []byte {
		return back(other, icmpP, unreachable6(from, to, source, dest)...)
	}
	return map[string]attack6{
		"the answer":          {back(server6, tcpP, datagram(443, 40000)...), "redirect forwarded"},
		"from another port":   {back(server6, tcpP, datagram(444, 40000)...), "shot unasked"},
		"to another port":     {back(server6, tcpP, datagram(443, 40001)...), "shot unasked"},
		"from another host":   {back(other, tcpP, datagram(443, 40000)...), "shot unasked"},
		"by another protocol": {back(server6, udpP, datagram(443, 40000)...), "shot unasked"},
		"echo":                {back(server6, icmpP, 128, 0, 0, 0, 0, 7, 0, 1), "shot unasked"},
		"6in4":                {back(server6, in6, packet6(aliceMAC, foreign6, alice6, tcpP)[14:]...), "shot unasked"},
		"Teredo":              {back(other, udpP, datagram(3544, 40000)...), "shot unasked"},
		"a fragment":          {back(other, fragmented, extension(fragmented, udpP, nil)...), "shot unasked"},
		"routing": {
			back(server6, routing, extension(routing, tcpP, datagram(443, 40000))...), "shot unasked"},
		"options": {
			back(server6, dstOptions, extension(dstOptions, tcpP, datagram(443, 40000))...), "shot unasked"},
		"error about it":            {about(alice6, server6, 40000, 443), "redirect forwarded"},
		"error about another port":  {about(alice6, server6, 40000, 444), "shot unasked"},
		"error about another host":  {about(alice6, other, 40000, 443), "shot unasked"},
		"error about another's":     {about(bob6, server6, 40000, 443), "shot unasked"},
		"error about what came":     {about(server6, alice6, 443, 40000), "shot unasked"},
		"error about a piece of it": {about(alice6, server6, 40000, 443)[:14+40+8+40], "ok"}, // the stack drops it
		"for nobody":                {packet6(serverMAC, server6, nobody6, tcpP, datagram(443, 40000)...), "shot not-leased"},
		"for one before login":      {packet6(serverMAC, server6, bob6, tcpP, datagram(443, 40000)...), "shot blocked"},
		"from the garden":           {packet6(serverMAC, garden6, bob6, tcpP, datagram(443, 40000)...), "ok garden"},
		"from a client's address":   {back(bob6, tcpP, datagram(443, 40000)...), "shot foreign-source"},
		"from nobody's address":     {back(nobody6, tcpP, datagram(443, 40000)...), "shot foreign-source"},
		"from a link-local address": {back(bobLocal, tcpP, datagram(443, 40000)...), "ok"}, // the stack does not forward it
	}
}

// TestIPv6Attacks: each table of attacks says what the programs do with its packets, and how they count them.
func TestIPv6Attacks(t *testing.T) {
	n := newNetwork6(t)
	for _, a := range []netip.Addr{server6, garden6, garden6.Next()} {
		run(t, "ip neigh replace $a lladdr 02:00:00:00:02:02 dev $wan nud permanent", append(n.env(), "a="+a.String())...)
	}
	d := n.open6(t)
	d.redirecting6(t)
	run(t, "ip -n $client link set c0 down", n.env()...) // the client's own packets would be counted too
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6}, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob, bobLocal, bob6}, MAC: bobMAC}))
	must(t, d.Open(netip.PrefixFrom(garden6, 128), time.Now().Add(time.Hour)))
	d.try(t, d.objs.LanIn, index(t, n.lan), packet6(aliceMAC, alice6, server6, tcpP, datagram(40000, 443)...))
	verdicts := map[uint32]string{ok: "ok", shot: "shot", redirect: "redirect"}
	// Unasked packets come first, because the others open connections.
	for _, table := range []func(netip.Addr) map[string]attack6{unasked6, forgeries6, layers6} {
		for row, c := range table(linkLocalOf(t, n.lan)) {
			t.Run(row, func(t *testing.T) {
				prog, dev := d.objs.LanIn, n.lan
				if bytes.Equal(c.frame[6:12], serverMAC[:]) {
					prog, dev = d.objs.WanIn, n.wan
				}
				words := strings.Fields(c.want)
				var before map[string]uint64
				verdict, _ := d.tryWanting(t, strings.TrimPrefix(c.want, "redirect "), prog, index(t, dev), c.frame, func() {
					before = d.packets(t)
				})
				want := map[string]uint64{}
				for _, reason := range words[1:] {
					want[reason] = 1
				}
				if got := change(before, d.packets(t)); verdicts[verdict] != words[0] || !maps.Equal(got, want) {
					t.Errorf("%s, counted %v, want %s", verdicts[verdict], got, c.want)
				}
			})
		}
	}
}

// linkLocalOf returns an interface's link-local address.
func linkLocalOf(t *testing.T, name string) netip.Addr {
	t.Helper()
	dev, err := net.InterfaceByName(name)
	must(t, err)
	addrs, err := dev.Addrs()
	must(t, err)
	for _, a := range addrs {
		if p := netip.MustParsePrefix(a.String()); p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			return p.Addr()
		}
	}
	t.Fatalf("%s has no link-local address", name)
	return netip.Addr{}
}

// TestIPv6SharesLimits: a client's quota and rate apply to the sum of IPv4 and IPv6: when one family's packets have
// used them up, none of the other's passes.
func TestIPv6SharesLimits(t *testing.T) {
	n := newNetwork6(t)
	n.neighbour(t)
	run(t, "ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent", n.env()...)
	d := n.open6(t)
	d.redirecting6(t)
	lan := index(t, n.lan)
	long := append(datagram(40000, 443), make([]byte, 60)...) // as long as the IPv4 packet
	families := [][]byte{udp(443), packet6(aliceMAC, alice6, server6, udpP, long...)}
	c := datapath.Client{Addrs: []netip.Addr{alice, alice6}, MAC: aliceMAC, Admitted: true}
	most := func(frame []byte) (passed int) { // how many pass until 50 in a row do not
		for dropped := 0; dropped < 50; dropped++ {
			if verdict, _, _ := d.try(t, d.objs.LanIn, lan, frame); verdict != shot {
				passed, dropped = passed+1, -1
			}
		}
		return passed
	}
	for i, reason := range []string{"quota", "quota", "rate"} {
		c.Limits = datapath.Limits{}
		must(t, d.Set(c))
		for _, frame := range families { // the next hops are now cached
			d.try(t, d.objs.LanIn, lan, frame)
		}
		c.Limits.TotalBytes = counters(t, d, alice).UpBytes + 2000
		if reason == "rate" {
			c.Limits = datapath.Limits{UpBps: 8} // a packet in minutes
		}
		must(t, d.Set(c))
		first := most(families[i%2])
		before := d.packets(t)
		second := most(families[1-i%2])
		if got := change(before, d.packets(t)); first == 0 || second > 0 || got[reason] != 50 {
			t.Errorf("%s: %d packets passed, and then %d of the other family's, counted %v", reason, first, second, got)
		}
	}
}

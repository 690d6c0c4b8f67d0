package ebpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// TestCacheMatchesStack6: for IPv6 too, a gateway that caches flows forwards the same packets as one that does not. It
// is TestCacheMatchesStack with the same flows and packets by IPv6, and with rules about IPv6.
func TestCacheMatchesStack6(t *testing.T) {
	t.Parallel()
	matchStack(t, newTwins6(t), &randomTraffic{Rand: rand.New(rand.NewPCG(*differSeed, 6)), six: true})
}

func newTwins6(t testing.TB) *twins {
	t.Helper()
	tw := makeTwins(t, datapathtest.Shape{Switch: true, IPv6: true})
	tw.each(func(w *twin) {
		w.Router.Run(t, "sysctl -qw net.ipv6.icmp.ratelimit=0; ip -6 addr add 2001:db8:2::192.0.2.78/128 dev wan0 nodad")
	})
	return tw
}

var (
	addresses4 = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+`)
	words6     = strings.NewReplacer("ip saddr", "ip6 saddr", "ip daddr", "ip6 daddr", "ip dscp", "ip6 dscp", "ip ttl",
		"ip6 hoplimit", "ip id", "ip6 flowlabel", "ip ecn", "ip6 ecn", "ip length", "ip6 length",
		"l4proto icmp", "l4proto icmpv6", "table ip ", "table inet ", "nft insert rule ip ", "nft insert rule inet ")
)

// rules6 returns rules about IPv4, changed to rules about IPv6.
func rules6(rules string) string {
	return addresses4.ReplaceAllStringFunc(words6.Replace(rules), func(a string) string {
		return datapathtest.Six(netip.MustParseAddr(a)).String()
	})
}

// rules6 returns a rule set for a round: a firewall, and at the WAN a rule that shows a packet's mark in the packet.
func (d *randomTraffic) rules6(name, policy, early, forward string) string {
	return rules6(fmt.Sprintf(`table ip %[1]s {
chain early { type filter hook prerouting priority -300; meta l4proto 253 accept
%[3]s
}
chain forward { type filter hook forward priority 0; policy %[2]s; meta l4proto 253 accept
%[4]s
}
}
table netdev %[1]s {
chain out { type filter hook egress device wan0 priority 0; meta mark 7 ip dscp set cs5; }
}`, name, policy, early, forward))
}

// frame6 turns an IPv4 frame into an IPv6 frame, with the addresses Six of its addresses and the same traffic class,
// hops, protocol and contents. Options become an extension header, a fragment a fragment. One in 32 has another flow
// label.
func frame6(b []byte) []byte {
	p := gopacket.NewPacket(b, layers.LayerTypeEthernet, gopacket.DecodeOptions{})
	ip := p.Layer(layers.LayerTypeIPv4).(*layers.IPv4)
	six := func(a []byte) []byte { return datapathtest.Six(netip.AddrFrom4([4]byte(a))).AsSlice() }
	out := bytes.Clone(b[:14])
	binary.BigEndian.PutUint16(out[12:], uint16(layers.EthernetTypeIPv6))
	label, next, extension := uint32(0x12345), ip.Protocol, []byte(nil)
	if ip.Id%32 == 1 {
		label = uint32(ip.Id)
	}
	const destinationOptions, fragment = 60, 44
	switch {
	case len(ip.Options) > 0:
		extension, next = []byte{byte(next), 0, 1, 4, 0, 0, 0, 0}, destinationOptions
		if ip.Id%2 == 1 {
			next = 0 // hop by hop
		}
	case ip.Flags&layers.IPv4MoreFragments != 0 || ip.FragOffset > 0:
		extension, next = []byte{byte(next), 0, byte(ip.FragOffset >> 5), byte(ip.FragOffset<<3) | 1, 0, 0, 0, 7}, fragment
	}
	body := bytes.Clone(b[14+int(ip.IHL)*4:])
	out = binary.BigEndian.AppendUint32(out, 6<<28|uint32(ip.TOS)<<20|label)
	out = binary.BigEndian.AppendUint16(out, uint16(len(extension)+len(body)))
	out = append(out, byte(next), ip.TTL)
	out = append(append(out, six(ip.SrcIP)...), six(ip.DstIP)...)
	sum6(out[14+8:], body, ip.Protocol)
	return append(append(out, extension...), body...)
}

// sum6 fills in the checksum of a packet's contents. addresses are the two addresses of the header.
func sum6(addresses, body []byte, protocol layers.IPProtocol) {
	at := map[layers.IPProtocol]int{layers.IPProtocolTCP: 16, layers.IPProtocolUDP: 6}[protocol]
	if at == 0 || len(body) < at+2 {
		return
	}
	clear(body[at : at+2])
	sum := uint32(protocol) + uint32(len(body))
	for _, b := range [][]byte{addresses[:32], body} {
		for i, x := range b {
			sum += uint32(x) << (8 * (1 - i%2))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	if sum = ^sum & 0xffff; sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(body[at:], uint16(sum))
}

func isIPv6(f []byte) bool { return len(f) >= 54 && f[12] == 0x86 && f[13] == 0xdd }

// isForwarded6 reports whether a frame is of IPv6, and neither a marker, which is sent last to know that all before it
// has arrived, nor of neighbour discovery or group
// membership.
func isForwarded6(f []byte) bool {
	const icmp6, hopByHop = 58, 0
	if !isIPv6(f) || f[20] == marking || f[22] == 0xff || f[38] == 0xff {
		return false
	}
	return f[20] != icmp6 || len(f) > 54 && f[54] < 130
}

// withoutOwnChoices6 returns a frame without what each gateway chooses by itself: of an ICMPv6 error, types 1 to 4 (RFC
// 4443), the flow label.
func withoutOwnChoices6(f []byte) []byte {
	const icmp6 = 58
	if f[20] != icmp6 || len(f) < 55 || f[54] > 4 {
		return f
	}
	f = bytes.Clone(f)
	f[15] &= 0xf0
	f[16], f[17] = 0, 0
	return f
}

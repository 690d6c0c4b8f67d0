// A random test of the cache of flows: rules, flows and packets are drawn from a seed. twins are two gateways between
// wires, one with the cache of flows and one without, to which a test sends the same frames (twins_test.go). A flow is
// a connection that makes its packets with fromClient and fromPeer (flow_test.go).

package ebpf

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

var (
	differFor  = flag.Duration("differ.for", 20*time.Second, "how long TestCacheMatchesStack compares")
	differSeed = flag.Uint64("differ.seed", 1, "what TestCacheMatchesStack draws its rules and packets from")
)

// TestCacheMatchesStack draws rules, flows and packets at random, and sends the packets through twins (twins_test.go):
// a gateway that caches flows, and one that does not. Both must forward the same packets, with the same bytes. Long:
// the steps of one run, each of which needs the state that the one before left.
func TestCacheMatchesStack(t *testing.T) {
	t.Parallel()
	matchStack(t, newTwins(t), &randomTraffic{Rand: rand.New(rand.NewPCG(*differSeed, 0))})
}

// matchStack is TestCacheMatchesStack for the traffic of a family. Long: as there.
func matchStack(t *testing.T, tw *twins, d *randomTraffic) {
	t.Helper()
	began, rounds, frames := time.Now(), 0, 0
	for time.Since(began) < *differFor && !t.Failed() {
		rounds++
		name, rules := d.rules(rounds)
		tw.rules(t, name, rules)
		if strings.Contains(rules, "ct bytes") { // the kernel has not counted packets that the cache forwarded
			d.flows = nil
		}
		for range 3 {
			if len(d.flows) < 12 {
				d.open(t, tw)
			}
		}
		for range 60 {
			if len(d.flows) == 0 {
				break
			}
			var batch [][]byte
			hot := d.flows[d.IntN(len(d.flows))]
			for range 1 + d.IntN(12) {
				if hot.gone {
					break
				}
				f := hot
				if d.IntN(4) == 0 && len(d.flows) > 0 {
					f = d.flows[d.IntN(len(d.flows))]
				}
				batch = append(batch, d.packet(f))
			}
			frames += len(batch)
			tw.compare(t, batch...)
			if t.Failed() {
				t.Logf("seed %d, round %d, with\n%s", *differSeed, rounds, rules)
				break
			}
		}
		d.forget()
	}
	n := tw.cached.Packets(t)
	t.Logf("%d rounds, %d frames: %d by the cache, %d by the stack", rounds, frames, n["forwarded"], n["stack"])
	if n["forwarded"] == 0 {
		t.Error("nothing was cached")
	}
	for _, s := range []datapathtest.Station{tw.cached.Alice, tw.cached.Bob} {
		a, b := tw.cached.Counters(t, s.Addr), tw.plain.Counters(t, s.Addr)
		if a.UpBytes != b.UpBytes || a.UpPackets != b.UpPackets || a.DownBytes != b.DownBytes ||
			a.DownPackets != b.DownPackets {
			t.Errorf("%s was counted %+v with the cache, %+v without", s.Addr, a, b)
		}
	}
}

// randomTraffic draws rules, flows and packets at random, from a seed.
type randomTraffic struct {
	*rand.Rand
	flows []*flow
	ports uint16 // drawn so far

	mapped uint16
	six    bool // the traffic is IPv6
}

const mappedPorts = 100

// Parts of rule sets. The rules in constant decide by what is the same for all packets of a flow.
var (
	constant = []string{
		"ct state established,related accept", "ct state invalid drop", "ct state established counter",
		"ct state vmap { established : accept, invalid : drop }",
		"tcp dport 443 drop", "udp dport 5353 drop", "ip saddr 10.1.0.11 drop", "meta mark set 0x7", "ct mark set 5",
		"ct mark 5 meta mark set 7", "ip dscp cs1 drop",
		"iifname wan0 ct state new drop", "ip daddr { 192.0.2.2, 198.51.100.9 } accept", "ct direction reply accept",
		"ct status dnat accept", "ct status assured accept",
		"ct original ip daddr 192.0.2.2 drop", "meta l4proto udp accept", "tcp dport 1000-3000 drop",
		"ct state new limit rate 1/day drop", "meta l4proto icmp drop", "oifname wan0 tcp sport 40001 reject",
		"meta priority set 1:2", "ip saddr . tcp dport { 10.1.0.10 . 80 } accept", "th dport vmap { 53 : drop, 80 : accept }",
	}
	changing = []string{
		"meta length > 600 drop", "ip ttl < 30 drop", "tcp flags & psh == psh drop", "quota over 5000 bytes drop",
		"numgen inc mod 3 == 0 drop", "ip dscp set cs2", "ip ttl set 33", "ip id 1-30000 drop",
		"ip ecn ce drop", "udp length > 300 drop", "tcp window > 30000 drop", "limit rate over 1/day burst 9 packets drop",
		"ip length 100-200 reject", "ct bytes > 4000 drop", "meta mark set numgen inc mod 2",
		"@th,160,8 0x61 drop", "log",
	}
)

// chains draws the rules of a chain ahead of connection tracking (early), the rules of a chain at the hook forward, and
// that chain's policy.
func (d *randomTraffic) chains() (policy, early, forward string) {
	var rules, first []string
	for range d.IntN(5) {
		rules = append(rules, constant[d.IntN(len(constant))])
	}
	if d.IntN(3) == 0 {
		position := d.IntN(len(rules) + 1)
		rules = append(
			rules[:position:position], append([]string{changing[d.IntN(len(changing))]}, rules[position:]...)...)
	}
	if d.IntN(6) == 0 {
		first = append(first, []string{"udp dport 53 notrack", "meta mark set 7", "ip saddr 192.0.2.3 tcp sport 80 drop",
			"ip ttl set 77", "quota over 9000 bytes drop"}[d.IntN(5)])
	}
	// A gateway sends itself an ICMP error when a neighbour has not answered in time. A quota must not count that.
	first = slices.Insert(first, 0, "iif lo accept")
	policy = []string{"accept", "accept", "drop"}[d.IntN(3)]
	return policy, strings.Join(first, "\n"), strings.Join(rules, "\n")
}

// rules draws a rule set for a round: a table with NAT, a firewall, and at the WAN a rule that shows a packet's mark in
// the packet.
func (d *randomTraffic) rules(round int) (name, rules string) {
	name = fmt.Sprintf("round%d", round)
	policy, early, forward := d.chains()
	if d.six {
		return name, d.rules6(name, policy, early, forward)
	}
	const mark = "meta l4proto 253 accept\n"
	var mapped []string
	for i := range mappedPorts {
		mapped = append(mapped, fmt.Sprintf("%d : 192.0.2.77 . %d", 50000+i, 5000+i))
	}
	return name, fmt.Sprintf(`table ip %[1]s {
chain early { type filter hook prerouting priority -300; %[5]s%[4]s
}
chain forward { type filter hook forward priority 0; policy %[2]s; %[5]s%[3]s
}
chain to { type nat hook prerouting priority -100
iifname wan0 tcp dport 8000-8100 dnat to 10.1.0.10
iifname wan0 udp dport 8000-8100 dnat to 10.1.0.10
iifname wan0 tcp dport 9000 dnat to 10.1.0.10:22
iifname wan0 udp dport 9000 dnat to 10.1.0.10:22
iifname lan0 ip daddr 203.0.113.9 dnat to 192.0.2.2
}
chain from { type nat hook postrouting priority 100
meta l4proto 253 accept
oifname wan0 ip daddr 198.51.100.200 ip saddr 10.1.0.10 meta l4proto { tcp, udp } snat to th sport map { %[6]s }
oifname wan0 ip daddr 198.51.100.200 snat to 192.0.2.78
oifname wan0 ip daddr 192.0.2.3 accept
oifname wan0 masquerade
}
}
table netdev %[1]s {
chain out { type filter hook egress device wan0 priority 0; meta mark 7 ip dscp set cs5; }
}`, name, policy, forward, early, mark, strings.Join(mapped, ", "))
}

// open begins a flow of a random kind.
func (d *randomTraffic) open(t *testing.T, tw *twins) {
	t.Helper()
	d.ports++
	f := &flow{udp: d.IntN(3) == 0, up: d.IntN(4) > 0, seq: d.Uint32(), ack: d.Uint32()}
	f.oneWay = f.udp && d.IntN(2) == 0
	peers := []string{"192.0.2.2", "192.0.2.3", "198.51.100.9", "198.51.100.200", "203.0.113.9"}
	ports := []uint16{80, 443, 53, 5353, 2000, 60000}
	if f.up {
		f.client = netip.AddrPortFrom([]netip.Addr{alice, bob}[d.IntN(2)], 40000+d.ports%8000)
		f.wanted = netip.AddrPortFrom(netip.MustParseAddr(peers[d.IntN(len(peers))]), ports[d.IntN(len(ports))])
		if d.IntN(4) == 0 && d.mapped < mappedPorts { // a rule of NAT maps its port to a certain one
			f.client, f.wanted = netip.AddrPortFrom(alice, 50000+d.mapped), netip.MustParseAddrPort("198.51.100.200:80")
			d.mapped++
		}
		f.seen, f.answered = f.client, f.wanted
	} else {
		f.answered = netip.AddrPortFrom(netip.MustParseAddr(peers[d.IntN(3)]), 30000+d.ports%8000)
		f.seen = netip.AddrPortFrom(routerWAN, []uint16{8000 + d.ports%100, 9000}[d.IntN(2)])
		if d.six || d.IntN(3) == 0 {
			f.seen = netip.AddrPortFrom(alice, 7000+d.ports%100) // not translated
		}
		f.client, f.wanted = f.seen, f.answered
	}
	if f.shake(t, tw) {
		d.flows = append(d.flows, f)
	}
}

// packet draws a packet of a flow, ordinary most of the time.
func (d *randomTraffic) packet(f *flow) []byte {
	n := []int{d.IntN(1340), 1300, 30}[d.IntN(3)]
	edits := []func(*datapathtest.Frame){datapathtest.Carrying(make([]byte, n)), func(fr *datapathtest.Frame) {
		fr.IP.Id, fr.IP.Flags = uint16(d.Uint32()), []layers.IPv4Flag{0, layers.IPv4DontFragment}[d.IntN(2)]
		for i := range fr.Payload {
			fr.Payload[i] = byte(d.Uint32())
		}
		if l, found := fr.L4.(*layers.TCP); found {
			l.PSH, l.URG, l.ECE, l.CWR, l.Window = d.IntN(2) == 0, d.IntN(20) == 0, d.IntN(20) == 0, d.IntN(20) == 0,
				uint16(d.Uint32())
		}
	}}
	if d.IntN(8) == 0 {
		edits = append(edits, d.odd(f))
	}
	up := d.IntN(2) == 0
	if f.oneWay {
		up = f.up
		if d.IntN(200) == 0 {
			f.oneWay, up = false, !up
		}
	}
	if up {
		f.seq += uint32(n)
		return f.fromClient(edits...)
	}
	f.ack += uint32(n)
	return f.fromPeer(edits...)
}

// odd draws a change of a packet after which the stack does not simply forward it. Long: a case for each change.
func (d *randomTraffic) odd(of *flow) func(*datapathtest.Frame) {
	kind, n := d.IntN(16), d.IntN(256)
	of.ends = of.ends || kind >= 10 && kind <= 13 && n%4 == 0
	if kind >= 12 && kind <= 13 && n%4 == 0 {
		// Packets after a SYN or RST may belong to a new connection, for which the kernel draws a port.
		of.gone = true
		d.flows = slices.DeleteFunc(d.flows, func(f *flow) bool { return f.gone })
	}
	return func(f *datapathtest.Frame) {
		l, isTCP := f.L4.(*layers.TCP)
		switch kind {
		case 0:
			f.IP.TTL = uint8(n % 3)
		case 1:
			f.IP.TTL = uint8(n)
		case 2, 3:
			f.IP.TOS = uint8(n)
		case 4:
			datapathtest.Options(f)
		case 5:
			f.Payload = nil
		case 6:
			f.Payload = f.Payload[:min(len(f.Payload), n%8)] // shorter than Ethernet's shortest
		case 7:
			f.IP.SrcIP[3] ^= byte(n % 4) // another sender, which mostly may not send
		case 8:
			f.Eth.SrcMAC[5] ^= byte(n % 4)
		case 9:
			if isUp(f.Eth.DstMAC) {
				f.Payload = make([]byte, 1300+n/2) // around the WAN's MTU
			}
		case 10, 11:
			if isTCP && n%4 == 0 {
				l.FIN = true
			}
		case 12:
			if isTCP && n%4 == 0 {
				l.RST = true
			}
		case 13:
			if isTCP && n%4 == 0 {
				l.SYN, l.ACK = true, n%8 == 0
			}
		case 14:
			if isTCP {
				l.ACK = false
			}
		case 15:
			if isTCP {
				l.Seq += uint32(n) << 16
			}
		}
	}
}

// forget stops sending packets of some flows. Most flows of UDP go on for some seconds: earlier they are not cached.
func (d *randomTraffic) forget() {
	d.flows = slices.DeleteFunc(d.flows, func(f *flow) bool { return f.ends })
	for len(d.flows) > 10 || len(d.flows) > 0 && d.IntN(8) == 0 {
		position := d.IntN(len(d.flows))
		if old := slices.IndexFunc(d.flows, func(f *flow) bool { return !f.udp || f.rounds > 60 }); old >= 0 {
			position = old
		}
		d.flows = append(d.flows[:position], d.flows[position+1:]...)
	}
	for _, f := range d.flows {
		f.rounds++
	}
}

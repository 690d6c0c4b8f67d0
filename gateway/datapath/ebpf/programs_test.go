// Helpers to run one program over one frame: tcp and udp make a frame, try runs a program, packets and change tell
// which counts grew. The test is of the program lan_in.

package ebpf

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Verdicts of tc.
const (
	ok       = 0xffffffff // TC_ACT_UNSPEC: on to others' programs and the stack
	shot     = 2          // TC_ACT_SHOT: dropped
	redirect = 7          // TC_ACT_REDIRECT: sent by another interface
)

// Functions that make frames, from alice to the server unless edits change that.
var (
	tcp, udp         = datapathtest.TCP, datapathtest.UDP
	from, to, source = datapathtest.From, datapathtest.To, datapathtest.SourcePort
	down             = datapathtest.Down
)

// payload gives a frame so many bytes of payload.
func payload(bytes int) func(*datapathtest.Frame) {
	return datapathtest.Carrying(make([]byte, bytes))
}

// hw converts a MAC address to the type of package net.
func hw(m datapath.MAC) net.HardwareAddr { return net.HardwareAddr(m[:]) }

// ethertype returns a function that changes the EtherType of a frame.
func ethertype(e layers.EthernetType) func([]byte) []byte {
	return func(b []byte) []byte { return datapathtest.EtherType(e, b) }
}

// arpFrame is an ARP request for the gateway by a client with an address and a MAC address.
func arpFrame(a netip.Addr, m datapath.MAC) []byte { return datapathtest.ARP(1, a, m, gateway) }

// skb is struct __sk_buff as far as tests set it.
type skb struct {
	_    [8]byte // len, pkt_type
	Mark uint32
	_    [20]byte // queue_mapping to vlan_proto

	Priority uint32

	_       uint32 // ingress_ifindex
	Ifindex uint32
	_       [120]byte // tc_index to wire_len
	GSOSegs uint32
	_       [8]byte // sk
	GSOSize uint32
	_       uint32
	_       uint64 // hwtstamp
}

// try runs a program over a packet that came in by the given interface, and returns the verdict and the packet that
// leaves.
func (d *Datapath) try(t *testing.T, p *ebpf.Program, ifindex uint32, packet []byte, aggregated ...uint32) (
	verdict uint32, out []byte, after skb) {
	t.Helper()
	in := skb{Ifindex: ifindex}
	if len(aggregated) == 2 {
		in.GSOSegs, in.GSOSize = aggregated[0], aggregated[1]
	}
	// Next hops are cached by CPU.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, first unix.CPUSet
	first.Set(0)
	must(t, unix.SchedGetaffinity(0, &all))
	must(t, unix.SchedSetaffinity(0, &first))
	defer unix.SchedSetaffinity(0, &all)
	opts := &ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+256), Context: in, ContextOut: &after}
	verdict, err := p.Run(opts)
	if err != nil {
		t.Fatal(err)
	}
	return verdict, opts.DataOut, after
}

// tryRedirected is try of a packet that is to be redirected. It sends the packet until no next hop is lacking for it,
// each time after before. A program knows a hop after one packet to it, for a second at most, and until the watcher
// hears of a change of routes, links or addresses: that may be long after the change, also of one that the test made.
func (d *Datapath) tryRedirected(t *testing.T, p *ebpf.Program, ifindex uint32, packet []byte, before func()) (
	verdict uint32, out []byte) {
	t.Helper()
	netnstest.Await(t, "a packet to be redirected", func() error {
		before()
		packets := d.packets(t)
		if verdict, out, _ = d.try(t, p, ifindex, packet); verdict != ok {
			return nil
		}
		return fmt.Errorf("the stack has it, counted %v", change(packets, d.packets(t)))
	})
	return verdict, out
}

// tryWanting is tryRedirected of a packet that is to be counted as forwarded, and try of others, after before too.
func (d *Datapath) tryWanting(t *testing.T, reason string, p *ebpf.Program, ifindex uint32, packet []byte,
	before func()) (verdict uint32, out []byte) {
	t.Helper()
	if reason == "forwarded" {
		return d.tryRedirected(t, p, ifindex, packet, before)
	}
	before()
	verdict, out, _ = d.try(t, p, ifindex, packet)
	return verdict, out
}

// packets returns how many packets the programs have counted by outcome, without zeros.
func (d *Datapath) packets(t *testing.T) map[string]uint64 {
	t.Helper()
	n, err := d.Packets()
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(n, func(_ string, n uint64) bool { return n == 0 })
	return n
}

// change returns what a run added to the counts by reason.
func change(before, after map[string]uint64) map[string]uint64 {
	out := map[string]uint64{}
	for k, n := range after {
		if n != before[k] {
			out[k] = n - before[k]
		}
	}
	return out
}

var must = netnstest.Must

// TestLANIn: the table is the policy for packets from the clients: the verdict of the program lan_in, the reason under
// which it counts the packet, and the bytes that it counts for the client. Long: most lines are the table of cases.
func TestLANIn(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	run(t, "ip route add default via 192.0.2.2 dev $wan", n.env()...)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	must(t, d.Open(netip.PrefixFrom(routerWAN, 32), time.Time{}))
	must(t, d.Open(netip.MustParsePrefix("198.51.100.0/24"), time.Time{}))
	must(t, d.Open(netip.MustParsePrefix("203.0.113.7/32"), time.Now().Add(time.Hour)))
	lan := index(t, n.lan)
	isBob := from(bob, bobMAC)
	fragment := func(f *datapathtest.Frame) { f.IP.Flags, f.IP.Id = layers.IPv4MoreFragments, 7 }
	options := func(f *datapathtest.Frame) {
		f.IP.Options = []layers.IPv4Option{
			{OptionType: 7, OptionLength: 7, OptionData: []byte{4, 0, 0, 0, 0}}, {OptionType: 1}}
	}
	discover := udp(67, source(68), from(netip.IPv4Unspecified(), bobMAC), to(netip.MustParseAddr("255.255.255.255")),
		func(f *datapathtest.Frame) { f.Eth.DstMAC = hw(datapath.MAC{255, 255, 255, 255, 255, 255}) })
	cases := map[string]struct {
		packet  []byte
		verdict uint32
		reason  string
		counted bool // the packet, without its Ethernet header, is counted for alice
	}{
		"admitted":             {tcp(443), redirect, "forwarded", true},
		"admitted, UDP":        {udp(443), redirect, "forwarded", true},
		"admitted, a fragment": {udp(443, fragment), ok, "stack", true},
		"admitted, IP options": {tcp(443, options), ok, "stack", true},
		"admitted, last hop":   {tcp(443, func(f *datapathtest.Frame) { f.IP.TTL = 1 }), ok, "stack", true},
		"admitted, longer than MTU": {
			udp(443, func(f *datapathtest.Frame) { f.Payload = make([]byte, 1600) }), ok, "stack", true},
		"admitted, multicast":      {udp(5353, to(netip.MustParseAddr("224.0.0.251"))), ok, "local", false},
		"admitted, to the gateway": {tcp(22, to(gateway)), ok, "local", false},
		// as the sender's, and as the receiver's
		"admitted, to one who isn't":  {tcp(443, to(bob)), shot, "stack blocked", true},
		"admitted, to no lease":       {tcp(443, to(nobody)), shot, "stack not-leased", true},
		"admitted, other MAC":         {tcp(443, from(alice, bobMAC)), shot, "wrong-mac", false},
		"other MAC, other half":       {tcp(443, from(alice, datapath.MAC{2, 1, 0, 0, 0, 10})), shot, "wrong-mac", false},
		"never leased":                {tcp(443, from(nobody, bobMAC)), shot, "not-leased", false},
		"renews what it never had":    {udp(67, source(68), from(nobody, bobMAC), to(gateway)), ok, "local", false},
		"source outside the LAN":      {tcp(443, from(server, aliceMAC)), shot, "foreign-source", false},
		"no source":                   {tcp(443, from(netip.IPv4Unspecified(), aliceMAC)), shot, "foreign-source", false},
		"the gateway's own address":   {tcp(443, from(gateway, aliceMAC)), shot, "not-leased", false},
		"DHCP, no address yet":        {discover, ok, "local", false},
		"no address, not DHCP":        {udp(53, from(netip.IPv4Unspecified(), bobMAC)), shot, "not-leased", false},
		"plays DHCP server":           {udp(68, source(67), to(bob)), shot, "rogue-dhcp", false},
		"pre-auth, elsewhere":         {udp(443, isBob), redirect, "rejected", false},
		"pre-auth, DNS here":          {udp(53, isBob, to(gateway)), ok, "local", false},
		"pre-auth, DNS over TCP":      {tcp(53, isBob, to(gateway)), ok, "local", false},
		"pre-auth, DNS elsewhere":     {udp(53, isBob), redirect, "rejected", false},
		"pre-auth, the portal":        {tcp(8080, isBob, to(gateway)), ok, "local", false},
		"pre-auth, ssh here":          {tcp(22, isBob, to(gateway)), redirect, "rejected", false},
		"pre-auth, garden":            {tcp(443, isBob, to(netip.MustParseAddr("198.51.100.9"))), ok, "garden", false},
		"pre-auth, garden for a time": {tcp(443, isBob, to(netip.MustParseAddr("203.0.113.7"))), ok, "garden", false},
		"pre-auth, beside garden":     {tcp(443, isBob, to(netip.MustParseAddr("203.0.113.8"))), redirect, "rejected", false},
		"pre-auth, garden, own":       {tcp(443, isBob, to(routerWAN)), redirect, "rejected", false},
		"pre-auth, HTTPS":             {tcp(443, isBob), redirect, "rejected", false},
		"pre-auth, HTTP, no portal":   {tcp(80, isBob), redirect, "rejected", false},
		"pre-auth, a fragment":        {udp(443, isBob, fragment), shot, "blocked", false},
		"pre-auth, renews":            {udp(67, source(68), isBob, to(gateway)), ok, "local", false},
		"pre-auth, DHCP elsewhere":    {udp(67, source(68), isBob), shot, "blocked", false},
		"IPv6":                        {datapathtest.EtherType(layers.EthernetTypeIPv6, tcp(443)), shot, "ipv6", false},
		"tagged twice":                {datapathtest.EtherType(layers.EthernetTypeDot1Q, tcp(443)), shot, "malformed", false},
		"EAP":                         {datapathtest.EtherType(layers.EthernetTypeEAPOL, tcp(443)), ok, "", false},
		"a wrong sum":                 {func() []byte { b := tcp(443); b[24] ^= 1; return b }(), shot, "malformed", false},
		"header length 4":             {func() []byte { b := tcp(443); b[14] = 0x44; return b }(), shot, "malformed", false},
		"IPv5":                        {func() []byte { b := tcp(443); b[14] = 0x55; return b }(), shot, "malformed", false},
		"for another host": {
			tcp(443, func(f *datapathtest.Frame) { f.Eth.DstMAC = hw(serverMAC) }), shot, "", false},
		"ARP of alice":         {arpFrame(alice, aliceMAC), ok, "", false},
		"ARP, whose is it":     {arpFrame(netip.IPv4Unspecified(), bobMAC), ok, "", false},
		"ARP for alice by bob": {arpFrame(alice, bobMAC), shot, "arp-spoof", false},
		"ARP for the gateway":  {arpFrame(gateway, bobMAC), shot, "arp-spoof", false},
		"ARP, never leased":    {arpFrame(nobody, bobMAC), shot, "arp-spoof", false},
		"ARP, outside the LAN": {arpFrame(server, bobMAC), shot, "arp-spoof", false},
		"ARP, cut":             {arpFrame(alice, aliceMAC)[:30], shot, "malformed", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d.tryRedirected(t, d.objs.LanIn, lan, tcp(443), func() {}) // the next hop is now cached, for a second
			var packets map[string]uint64
			var earlier datapath.Counters
			verdict, _ := d.tryWanting(t, c.reason, d.objs.LanIn, lan, c.packet, func() {
				packets, earlier = d.packets(t), counters(t, d, alice)
			})
			if verdict != c.verdict {
				t.Errorf("verdict %d, want %d", verdict, c.verdict)
			}
			want := map[string]uint64{}
			for _, reason := range strings.Fields(c.reason) {
				want[reason] = 1
			}
			if got := change(packets, d.packets(t)); !maps.Equal(got, want) {
				t.Errorf("counted %v, want %v", got, want)
			}
			var bytes uint64
			if c.counted {
				bytes = uint64(len(c.packet) - 14)
			}
			if got := counters(t, d, alice).UpBytes - earlier.UpBytes; got != bytes {
				t.Errorf("counted %d bytes, want %d", got, bytes)
			}
		})
	}
}

func counters(t testing.TB, d *Datapath, a netip.Addr) datapath.Counters {
	t.Helper()
	c, err := d.Counters(datapath.IDOf(a))
	must(t, err)
	return c
}

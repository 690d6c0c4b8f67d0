// Benchmarks of what one packet costs beside many clients and addresses. newNetwork makes a LAN with alice and bob and
// a WAN with a server, and open starts a data path between them (main_test.go). A crowd is a data path with many
// clients, over whose packets the programs run.

package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// blocks is how often BenchmarkCrowd and BenchmarkAddresses compare; interval needs some 40.
const blocks = 40

// BenchmarkCrowd is what a packet costs at tc, each of another client's than the one before, as a part of what one by
// IPv4 costs beside as many clients that have no IPv6: by IPv4, and by IPv6. The clients have IPv4 alone, and then
// three global IPv6 addresses besides. The programs' time is the kernel's count of it (bpf_stats), with what the
// processor's caches lost to other clients.
func BenchmarkCrowd(b *testing.B) {
	if b.N > 1 {
		b.Fatal("run it with -benchtime 1x")
	}
	const packets = 10_000 // a block
	for _, clients := range []int{100, 10_000, 100_000} {
		var alone [2][]float64
		openCrowd(b, clients, false, func(c crowd) {
			alone = [2][]float64{blocksOf(b, c.up4, packets), blocksOf(b, c.down4, packets)}
		})
		openCrowd(b, clients, true, func(c crowd) {
			for i, ways := range [2][2]pass{{c.up4, c.up6}, {c.down4, c.down6}} {
				for j, pass := range ways {
					name := fmt.Sprintf("%d/%s/%s", clients, [2]string{"up", "down"}[i], [2]string{"ipv4", "ipv6"}[j])
					took := blocksOf(b, pass, packets)
					b.Run(name, func(b *testing.B) { report(b, alone[i], took) })
				}
			}
		})
	}
}

// BenchmarkAddresses is what an IPv6 packet of a client costs that has 4 or 16 addresses and uses all, as a part of
// what one costs of a client with one address and as many connections.
func BenchmarkAddresses(b *testing.B) {
	n := newNetwork6(b)
	run(b, `ip addr flush dev $lan scope global; ip addr add 10.2.0.1/15 dev $lan
ip addr add 2001:db8:1::1/64 dev $lan nodad
ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent`, n.env()...)
	d := n.openFilled(b, 0, true)
	admit := func(first, addresses int) {
		c := datapath.Client{Addrs: []netip.Addr{crowd4(first)}, MAC: wanMAC, Admitted: true}
		for i := range addresses {
			c.Addrs = append(c.Addrs, crowd6(first+i))
		}
		must(b, d.Set(c))
	}
	admit(0, 1)
	for _, addresses := range []int{4, 16} {
		one, many := crowd{d: d, n: n, size: addresses, ofOne: true}, crowd{d: d, n: n, first: addresses, size: addresses}
		admit(many.first, addresses)
		b.Run(fmt.Sprintf("%d/up", addresses), func(b *testing.B) { compare(b, one.up6, many.up6) })
		b.Run(fmt.Sprintf("%d/down", addresses), func(b *testing.B) { compare(b, one.down6, many.down6) })
	}
}

// crowd is a gateway with clients, or addresses, of consecutive numbers; or with connections of one address.
type crowd struct {
	d           *Datapath
	n           network
	first, size int
	ofOne       bool // connections of the first one's address
}

// crowd4 and crowd6 are the addresses of a number.
func crowd4(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(2 + i>>16), byte(i >> 8), byte(i)}).Next().Next()
}
func crowd6(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 5: 1, 13: byte(1 + i>>16), 14: byte(i >> 8), 15: byte(i)})
}

// openCrowd opens a gateway, admits clients, which all have the MAC address that the gateway has on the WAN, and calls
// measure.
func openCrowd(b *testing.B, clients int, both bool, measure func(crowd)) {
	b.Helper()
	name := fmt.Sprint("opening ", clients)
	b.Run(name, func(b *testing.B) {
		n := newNetwork6(b)
		run(b, `ip addr flush dev $lan scope global; ip addr add 10.2.0.1/15 dev $lan
ip addr add 2001:db8:1::1/64 dev $lan nodad
ip neigh replace 192.0.2.2 lladdr 02:00:00:00:02:02 dev $wan nud permanent
ip neigh replace 2001:db8:9::2 lladdr 02:00:00:00:02:02 dev $wan nud permanent`, n.env()...)
		measure(crowd{d: n.openFilled(b, clients, both), n: n, size: clients})
	})
}

// openFilled opens a gateway and admits clients.
func (n network) openFilled(b *testing.B, clients int, both bool) *Datapath {
	b.Helper()
	d := n.open(b, func(c *Config) {
		c.Networks[0].Address = netip.MustParsePrefix("10.2.0.1/15")
		if both {
			c.Networks[0].Address6 = netip.PrefixFrom(gateway6, 64)
		}
	})
	netnstest.Await(b, "redirecting", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stackReason != "" {
			return errors.New(d.stackReason)
		}
		return nil
	})
	if both {
		d.redirecting6(b)
	}
	for i := range clients {
		c := datapath.Client{Addrs: []netip.Addr{crowd4(i)}, MAC: wanMAC, Admitted: true}
		if both {
			for _, number := range []int{i, i + 1<<17, i + 2<<17} {
				c.Addrs = append(c.Addrs, crowd6(number))
			}
		}
		must(b, d.Set(c))
	}
	return d
}

// pass runs a program over the packets of so many clients, and returns the program's time for one, in ns.
type pass func(b *testing.B, packets int) float64

func (c crowd) up4(b *testing.B, packets int) float64 {
	in := tcp(443, func(f *datapathtest.Frame) { f.Eth.SrcMAC = hw(wanMAC) })
	return c.each(b, c.d.objs.LanIn, c.n.lan, packets, func(i int) []byte {
		from := crowd4(i).As4()
		copy(in[26:], from[:])
		return summed(in)
	})
}

func (c crowd) down4(b *testing.B, packets int) float64 {
	in := tcp(40000, source(443), down)
	return c.each(b, c.d.objs.WanIn, c.n.wan, packets, func(i int) []byte {
		to := crowd4(i).As4()
		copy(in[30:], to[:])
		return summed(in)
	})
}

func (c crowd) up6(b *testing.B, packets int) float64 {
	in := tcp6(b, wanMAC, lanMAC, crowd6(c.first), server6)
	return c.each(b, c.d.objs.LanIn, c.n.lan, packets, func(i int) []byte {
		return c.ofClient(in, 22, 54, i)
	})
}

func (c crowd) down6(b *testing.B, packets int) float64 {
	in := tcp6(b, serverMAC, wanMAC, server6, crowd6(c.first))
	return c.each(b, c.d.objs.WanIn, c.n.wan, packets, func(i int) []byte {
		return c.ofClient(in, 38, 56, i)
	})
}

// ofClient makes a packet that of a number: it writes an address, or a port, where the packet has the client's.
func (c crowd) ofClient(in []byte, addr, port, number int) []byte {
	if c.ofOne {
		binary.BigEndian.PutUint16(in[port:], uint16(40000+number))
		return in
	}
	a := crowd6(number).As16()
	copy(in[addr:], a[:])
	return in
}

// each runs a program once for each packet. All but a few are redirected: each second the stack has one of each hop.
func (c crowd) each(b *testing.B, prog *ebpf.Program, dev string, packets int, packet func(int) []byte) float64 {
	b.Helper()
	opts := &ebpf.RunOptions{DataOut: make([]byte, 512), Context: skb{Ifindex: index(b, dev)}}
	before, err := prog.Stats()
	must(b, err)
	other := 0
	for i := range packets {
		opts.Data = packet(c.first + i*7919%c.size) // a prime, so that neighbours in the tables do not follow
		verdict, err := prog.Run(opts)
		must(b, err)
		if verdict != redirect {
			other++
		}
	}
	after, err := prog.Stats()
	must(b, err)
	if other > packets/10 {
		b.Fatalf("%d of %d packets were not redirected", other, packets)
	}
	return float64((after.Runtime - before.Runtime).Nanoseconds()) / float64(after.RunCount-before.RunCount)
}

// compare reports how many times as long one pass takes as another, which take turns.
func compare(b *testing.B, from, with pass) {
	b.Helper()
	if b.N < blocks {
		return // the framework's first try
	}
	var took [2][]float64
	for block := range blocks {
		for i := range 2 {
			second := (block + i) % 2
			took[second] = append(took[second], counted(b, []pass{from, with}[second], b.N/blocks))
		}
	}
	report(b, took[0], took[1])
}

// blocksOf returns what a pass takes, once for each block.
func blocksOf(b *testing.B, p pass, packets int) (took []float64) {
	b.Helper()
	for range blocks {
		took = append(took, counted(b, p, packets))
	}
	return took
}

// counted has the kernel count the time of programs during a pass.
func counted(b *testing.B, p pass, packets int) float64 {
	b.Helper()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	must(b, err)
	defer stats.Close()
	return p(b, packets)
}

// report reports the ratio of blocks with its 95 % interval.
func report(b *testing.B, from, with []float64) {
	var ratios []float64
	for i := range blocks {
		ratios = append(ratios, with[i]/from[i])
	}
	mean, half := interval(ratios)
	b.ReportMetric(quartile(from), "base-ns")
	b.ReportMetric(mean, "ratio")
	b.ReportMetric(half, "±")
	b.ReportMetric(0, "ns/op")
}

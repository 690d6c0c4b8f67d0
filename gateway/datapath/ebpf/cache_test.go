// Tests of the program that forwards a packet by an entry of the cache of flows, which the test writes itself.
// newNetwork makes a LAN with alice and bob and a WAN with a server, and open starts a data path between them
// (main_test.go). tcp and udp make a frame from alice to the server, changed by edits; try runs one program over a
// frame, and packets and change tell which counts grew (programs_test.go).

package ebpf

import (
	"errors"
	"maps"
	"net/netip"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
)

// sum computes the checksum of a cache entry, as sum_of in flow.h.
func sum(k gatewayFlowKey, p gatewayFlowPath) uint64 {
	const odd = 0x9e3779b97f4a7c15
	halves := unsafe.Slice((*uint64)(unsafe.Pointer(&k)), 2)
	out := odd ^ halves[0] ^ halves[1]*odd
	for _, w := range unsafe.Slice((*uint64)(unsafe.Pointer(&p)), unsafe.Offsetof(p.Sum)/8) {
		out ^= w
	}
	return out
}

// port returns a port in network order.
func port(n uint16) uint16 { return n<<8 | n>>8 }

// diff computes a difference of checksums like bpf_csum_diff, of words in network order.
func diff(from, to []uint32) uint32 {
	var s uint64
	for i := range from {
		s += uint64(^from[i]) + uint64(to[i])
	}
	for s>>32 != 0 {
		s = s&0xffffffff + s>>32
	}
	return uint32(s)
}

// TestCached: what becomes of packets that have an entry in the cache of flows. By the entry, alice's packets from port
// 40000 to the server's port 443 leave from port 5000 of the WAN's address. Long: most lines are the table of cases.
func TestCached(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t, func(c *Config) { c.FlowCache = FlowCacheAlways })
	d.stop() // the daemon would end the cache, because there are no rules
	must(t, d.set(func(s *gatewaySettings) { s.RedirectUntil = 0 }))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	const generation = 7
	open := gatewayFlowSettings{Until: now() + 3600e9, Generation: generation}
	place, err := d.placeOf(alice)
	must(t, err)
	client, wan, peer := networkOrder(alice), networkOrder(routerWAN), networkOrder(server)
	upKey := gatewayFlowKey{Saddr: client, Daddr: peer, Sport: port(40000), Dport: port(443), Protocol: 6, Side: 1}
	upPath := gatewayFlowPath{
		Until: now() + 3600e9, Generation: generation, At: place, Saddr: wan, Daddr: peer, Sport: port(5000),
		Dport:       port(443),
		AddressDiff: diff([]uint32{client, peer}, []uint32{wan, peer}),
		PortDiff:    diff([]uint32{uint32(port(40000))}, []uint32{uint32(port(5000))}),
		Most:        140, Dmac: serverMAC, Smac: wanMAC, Mark: 9,
	}
	downKey := gatewayFlowKey{Saddr: peer, Daddr: wan, Sport: port(443), Dport: port(5000), Protocol: 6, Side: 2}
	downPath := gatewayFlowPath{
		Until: upPath.Until, Generation: generation, At: place, Saddr: peer, Daddr: client, Sport: port(443),
		Dport:       port(40000),
		AddressDiff: diff([]uint32{peer, wan}, []uint32{peer, client}),
		PortDiff:    diff([]uint32{uint32(port(5000))}, []uint32{uint32(port(40000))}),
		Most:        140, Smac: lanMAC,
	}
	upPath.Sum, downPath.Sum = sum(upKey, upPath), sum(downKey, downPath)
	flag := func(set func(*layers.TCP)) func(*datapathtest.Frame) {
		return func(f *datapathtest.Frame) { set(f.L4.(*layers.TCP)) }
	}
	settings := func(change func(*gatewayFlowSettings)) gatewayFlowSettings { s := open; change(&s); return s }
	for name, c := range map[string]struct {
		edits    []func(*datapathtest.Frame)
		settings gatewayFlowSettings
		path     func(*gatewayFlowPath) // changed, with a sum that fits
		torn     bool                   // the entry's sum does not fit
		redirect bool
	}{
		"as it is":           {settings: open, redirect: true},
		"another generation": {settings: settings(func(s *gatewayFlowSettings) { s.Generation++ })},
		"not in use":         {settings: settings(func(s *gatewayFlowSettings) { s.Until = 0 })},
		"the entry is old":   {settings: open, path: func(p *gatewayFlowPath) { p.Until = 1 }},
		"a torn entry":       {settings: open, torn: true},
		"FIN": {
			settings: open, edits: []func(*datapathtest.Frame){flag(func(l *layers.TCP) { l.FIN = true })}},
		"RST": {
			settings: open, edits: []func(*datapathtest.Frame){flag(func(l *layers.TCP) { l.RST = true })}},
		"SYN": {
			settings: open, edits: []func(*datapathtest.Frame){flag(func(l *layers.TCP) { l.SYN = true })}},
		"no ACK": {
			settings: open, edits: []func(*datapathtest.Frame){flag(func(l *layers.TCP) { l.ACK = false })}},
		"URG": {
			settings: open, redirect: true, edits: []func(*datapathtest.Frame){flag(func(l *layers.TCP) { l.URG = true })}},
		"shorter": {
			settings: open, redirect: true, edits: []func(*datapathtest.Frame){datapathtest.Carrying(make([]byte, 10))}},
		"longer": {settings: open, edits: []func(*datapathtest.Frame){datapathtest.Carrying(make([]byte, 101))}},
		"ECN": {
			settings: open, redirect: true, edits: []func(*datapathtest.Frame){func(f *datapathtest.Frame) { f.IP.TOS = 3 }}},
		"another DSCP": {
			settings: open, edits: []func(*datapathtest.Frame){func(f *datapathtest.Frame) { f.IP.TOS = 0xb8 }}},
		"last hop":       {settings: open, edits: []func(*datapathtest.Frame){datapathtest.TTL(1)}},
		"options":        {settings: open, edits: []func(*datapathtest.Frame){datapathtest.Options}},
		"a fragment":     {settings: open, edits: []func(*datapathtest.Frame){datapathtest.Fragment(0)}},
		"another port":   {settings: open, edits: []func(*datapathtest.Frame){source(40001)}},
		"without a mark": {settings: open, redirect: true, path: func(p *gatewayFlowPath) { p.Mark = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, d.objs.FlowSettings.Put(uint32(0), c.settings))
			for _, up := range []bool{true, false} {
				key, path, prog, dev := upKey, upPath, d.objs.LanIn, n.lan
				in := tcp(443, c.edits...)
				if !up {
					key, path, prog, dev = downKey, downPath, d.objs.WanIn, n.wan
					in = tcp(5000, append([]func(*datapathtest.Frame){source(443), down, to(routerWAN)}, c.edits...)...)
				}
				if c.path != nil {
					c.path(&path)
					path.Sum = sum(key, path)
				}
				if c.torn {
					path.Saddr++
				}
				must(t, d.objs.FlowPaths.Update(key, path, ebpf.UpdateAny))
				earlier := counters(t, d, alice)
				verdict, out, after := d.try(t, prog, index(t, dev), in)
				if (verdict == redirect) != c.redirect {
					t.Errorf("up %v: verdict %d", up, verdict)
				}
				if !c.redirect || verdict != redirect {
					continue
				}
				eth, ip, l4 := decode(t, out)
				src, dst := netip.AddrPortFrom(routerWAN, 5000), netip.AddrPortFrom(server, 443)
				if !up {
					src, dst = netip.AddrPortFrom(server, 443), netip.AddrPortFrom(alice, 40000)
				}
				if got := addressesOf(ip, l4); got != [2]netip.AddrPort{src, dst} || ip.TTL != 63 {
					t.Errorf("up %v: it leaves as %v, TTL %d", up, got, ip.TTL)
				}
				if want := map[bool][2]datapath.MAC{true: {wanMAC, serverMAC}, false: {lanMAC, aliceMAC}}[up]; datapath.MAC(
					eth.SrcMAC) != want[0] || datapath.MAC(eth.DstMAC) != want[1] {
					t.Errorf("up %v: from %s to %s", up, eth.SrcMAC, eth.DstMAC)
				}
				if after.Mark != path.Mark {
					t.Errorf("up %v: mark %d, want %d", up, after.Mark, path.Mark)
				}
				current, bytes := counters(t, d, alice), uint64(len(in)-14)
				if n := current.UpBytes + current.DownBytes - earlier.UpBytes - earlier.DownBytes; n != bytes ||
					up != (current.UpPackets == earlier.UpPackets+1) {
					t.Errorf("up %v: counted %d of %d bytes", up, n, bytes)
				}
			}
		})
	}
	t.Run("forgotten", func(t *testing.T) {
		must(t, d.objs.FlowSettings.Put(uint32(0), open))
		must(t, errors.Join(
			d.objs.FlowPaths.Update(upKey, upPath, ebpf.UpdateAny), d.objs.FlowPaths.Update(downKey, downPath, ebpf.UpdateAny)))
		peer := netip.AddrPortFrom(server, 443)
		for range 2 {
			must(t, d.Forget([]datapath.Tracked{
				{From: netip.AddrPortFrom(alice, 40000), To: peer, Protocol: 6},
				{From: peer, To: netip.AddrPortFrom(routerWAN, 5000), Protocol: 6},
			}))
		}
		if verdict, _, _ := d.try(t, d.objs.LanIn, index(t, n.lan), tcp(443)); verdict == redirect {
			t.Error("a forgotten flow's packets take its way up")
		}
		if verdict, _, _ := d.try(
			t, d.objs.WanIn, index(t, n.wan), tcp(5000, source(443), down, to(routerWAN))); verdict == redirect {
			t.Error("a forgotten flow's packets take its way down")
		}
	})
	t.Run("not admitted", func(t *testing.T) {
		must(t, d.objs.FlowSettings.Put(uint32(0), open))
		must(t, d.objs.FlowPaths.Update(downKey, downPath, ebpf.UpdateAny))
		must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC}))
		before := d.packets(t)
		verdict, _, _ := d.try(t, d.objs.WanIn, index(t, n.wan), tcp(5000, source(443), down, to(routerWAN)))
		if got := change(before, d.packets(t)); verdict != ok || !maps.Equal(got, map[string]uint64{}) {
			t.Errorf("verdict %d, counted %v", verdict, got)
		}
	})
}

// addressesOf returns a packet's addresses and ports: the source's and the destination's.
func addressesOf(ip *layers.IPv4, l4 *layers.TCP) [2]netip.AddrPort {
	src, _ := netip.AddrFromSlice(ip.SrcIP)
	dst, _ := netip.AddrFromSlice(ip.DstIP)
	return [2]netip.AddrPort{netip.AddrPortFrom(src, uint16(l4.SrcPort)), netip.AddrPortFrom(dst, uint16(l4.DstPort))}
}

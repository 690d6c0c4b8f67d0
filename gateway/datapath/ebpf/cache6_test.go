package ebpf

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// TestCached6: what becomes of IPv6 packets that have an entry in the cache of flows. Each is sent twice: the programs
// find the entry for the first, and for the second the copy of it that the CPU has then. Long: most lines are the table
// of cases.
func TestCached6(t *testing.T) {
	n := newNetwork6(t)
	d := n.open6(t, func(c *Config) { c.FlowCache = FlowCacheAlways })
	d.stop() // the daemon would end the cache, because there are no rules
	must(t, d.set6(func(s *gatewaySettings6) { s.RedirectUntil = 0 }))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice, alice6}, MAC: aliceMAC, Admitted: true}))
	const generation, ipv6, label = 7, 1, 0x12345
	open := gatewayFlowSettings{Until: now() + 3600e9, Generation: generation}
	settings := func(change func(*gatewayFlowSettings)) gatewayFlowSettings { s := open; change(&s); return s }
	upKey := gatewayFlow6Key{
		Saddr: key6(alice6), Daddr: key6(server6), Sport: port(40000), Dport: port(443), Protocol: 6, Side: fromLAN}
	downKey := gatewayFlow6Key{
		Saddr: key6(server6), Daddr: key6(alice6), Sport: port(443), Dport: port(40000), Protocol: 6, Side: fromWAN}
	entry := gatewayFlow6Path{
		Until: now() + 3600e9, Generation: generation, Most: 160, Mark: 9, Priority: 3, Dmac: serverMAC, Smac: wanMAC,
		Head: binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, 6<<28|label))}
	for name, c := range map[string]struct {
		edit     func([]byte) // of the frame: its header begins at 14, TCP's at 54
		settings gatewayFlowSettings
		path     func(*gatewayFlow6Path) // changed, with a sum that fits
		torn     bool                    // the entry's sum does not fit
		redirect bool
	}{
		"as it is":           {settings: open, redirect: true},
		"another generation": {settings: settings(func(s *gatewayFlowSettings) { s.Generation++ })},
		"not in use":         {settings: settings(func(s *gatewayFlowSettings) { s.Until = 0 })},
		"the entry is old":   {settings: open, path: func(p *gatewayFlow6Path) { p.Until = 1 }},
		"a torn entry":       {settings: open, torn: true},
		"shorter ones only":  {settings: open, path: func(p *gatewayFlow6Path) { p.Most = 159 }},
		"FIN":                {settings: open, edit: func(b []byte) { b[67] |= 1 }},
		"SYN":                {settings: open, edit: func(b []byte) { b[67] |= 2 }},
		"RST":                {settings: open, edit: func(b []byte) { b[67] |= 4 }},
		"no ACK":             {settings: open, edit: func(b []byte) { b[67] &^= 16 }},
		"URG":                {settings: open, edit: func(b []byte) { b[67] |= 32 }, redirect: true},
		"ECN":                {settings: open, edit: func(b []byte) { b[15] |= 0x30 }, redirect: true},
		"another DSCP":       {settings: open, edit: func(b []byte) { b[14] |= 1 }},
		"another label":      {settings: open, edit: func(b []byte) { b[17]++ }},
		"last hop":           {settings: open, edit: func(b []byte) { b[21] = 1 }},
		"another port":       {settings: open, edit: func(b []byte) { b[55]++; b[57]++ }},
		"another protocol":   {settings: open, edit: func(b []byte) { b[20] = 136 }},
		"an extension":       {settings: open, edit: func(b []byte) { b[20] = 60 }},
		"headers too long":   {settings: open, edit: func(b []byte) { b[66] = 0xf0; b[19] = 20 }},
	} {
		t.Run(name, func(t *testing.T) {
			for _, up := range []bool{true, false} {
				must(t, d.objs.FlowSettings.Put(uint32(ipv6), open))
				key, path, prog, dev := upKey, entry, d.objs.LanIn, n.lan
				in := tcp6(t, aliceMAC, lanMAC, alice6, server6)
				if !up {
					key, path, prog, dev = downKey, entry, d.objs.WanIn, n.wan
					path.Dmac, path.Smac = bobMAC, lanMAC // the client's own counts
					in = tcp6(t, serverMAC, wanMAC, server6, alice6)
				}
				binary.BigEndian.PutUint32(in[14:], 6<<28|label)
				ordinary := append([]byte(nil), in...)
				put := func(path gatewayFlow6Path, torn bool) {
					path.Sum = sum6Of(key, path)
					if torn {
						path.Mark++
					}
					must(t, d.objs.Flow6Paths.Put(key, path))
				}
				put(path, false)
				if verdict, _, _ := d.try(t, prog, index(t, dev), ordinary); verdict != redirect { // has it copied
					t.Fatalf("up %v: an ordinary packet has verdict %d", up, verdict)
				}
				if c.edit != nil {
					c.edit(in)
				}
				if c.path != nil {
					c.path(&path)
				}
				must(t, d.objs.FlowSettings.Put(uint32(ipv6), c.settings))
				if c.path != nil || c.torn {
					put(path, c.torn)
					must(t, d.objs.Flow6Stamps.Put(stampOf(key), now()))
				}
				for range 2 {
					d.passesAs6(t, prog, index(t, dev), in, up, c.redirect, path)
				}
			}
		})
	}
}

// TestForgotten6: after user space has removed a flow from the cache, its packets are not forwarded by the entry nor by
// a CPU's copy of it.
func TestForgotten6(t *testing.T) {
	n := newNetwork6(t)
	d := n.open6(t, func(c *Config) { c.FlowCache = FlowCacheAlways })
	d.stop()
	must(t, d.set6(func(s *gatewaySettings6) { s.RedirectUntil = 0 }))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice, alice6}, MAC: aliceMAC, Admitted: true}))
	up := func() uint32 {
		v, _, _ := d.try(t, d.objs.LanIn, index(t, n.lan), tcp6(t, aliceMAC, lanMAC, alice6, server6))
		return v
	}
	down := func() uint32 {
		v, _, _ := d.try(t, d.objs.WanIn, index(t, n.wan), tcp6(t, serverMAC, wanMAC, server6, alice6))
		return v
	}
	client, peer := netip.AddrPortFrom(alice6, 40000), netip.AddrPortFrom(server6, 443)
	ways := []datapath.Tracked{{From: client, To: peer, Protocol: 6}, {From: peer, To: client, Protocol: 6}}
	for range 2 {
		d.enterFlows(t)
		for range 2 {
			if up() != redirect || down() != redirect {
				t.Fatal("the flow does not take its way")
			}
		}
		must(t, d.Forget(ways))
		if up() == redirect || down() == redirect {
			t.Error("a forgotten flow's packets take its way")
		}
	}
}

// passesAs6 runs a program over a packet, and checks whether it was redirected as an entry of the cache says, and was
// counted.
func (d *Datapath) passesAs6(t *testing.T, prog *ebpf.Program, dev uint32, in []byte, up, redirected bool, p gatewayFlow6Path) {
	t.Helper()
	before := counters(t, d, alice)
	verdict, out, after := d.try(t, prog, dev, in)
	if (verdict == redirect) != redirected {
		t.Errorf("up %v: verdict %d", up, verdict)
	}
	if verdict != redirect || !redirected {
		return
	}
	to := datapath.MAC(p.Dmac)
	if !up {
		to = aliceMAC
	}
	if datapath.MAC(out[:6]) != to || datapath.MAC(out[6:12]) != datapath.MAC(p.Smac) || out[21] != in[21]-1 ||
		after.Mark != p.Mark || after.Priority != p.Priority {
		t.Errorf("up %v: it leaves from %x to %x, with hop limit %d, mark %d, priority %d", up, out[6:12], out[:6], out[21],
			after.Mark, after.Priority)
	}
	current := counters(t, d, alice)
	if n := current.UpBytes + current.DownBytes - before.UpBytes - before.DownBytes; n != 160 ||
		up != (current.UpPackets == before.UpPackets+1) {
		t.Errorf("up %v: counted %d of 160 bytes", up, n)
	}
}

// stampOf returns the index of the stamp that is valid for copies of a flow's entry.
func stampOf(k gatewayFlow6Key) uint32 {
	if k.Side == fromLAN {
		return uint32(mix6(k.Saddr, k.Daddr, k.Sport, k.Dport) >> 48)
	}
	return uint32(mix6(k.Daddr, k.Saddr, k.Dport, k.Sport) >> 48)
}

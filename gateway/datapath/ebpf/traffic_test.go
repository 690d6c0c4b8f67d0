// Tests of upgrades, masquerading rules and detach with real traffic. newNetwork makes a LAN with alice and bob and a
// WAN with a server, and open starts a data path between them (main_test.go).

package ebpf

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// in runs fn in a namespace.
func in(t testing.TB, namespace string, fn func() error) {
	t.Helper()
	must(t, netnstest.In("/run/netns/"+namespace, fn))
}

// TestUpgradeKeepsSessions: a daemon keeps the clients' entries although an earlier version has pinned maps of other
// sizes: stats, which has a counter for each reason to forward or drop a packet, had fewer, and the entries of hops,
// the cache of next hops, were smaller.
func TestUpgradeKeepsSessions(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	d.try(t, d.objs.LanIn, index(t, n.lan), tcp(443))
	before := counters(t, d, alice)
	must(t, d.Close())
	// Maps pinned by another version.
	for name, m := range map[string]*ebpf.MapSpec{
		"stats": {Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 3},
		"hops":  {Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 16, MaxEntries: 4096},
	} {
		pin := filepath.Join(d.cfg.PinDir, name)
		must(t, os.Remove(pin))
		other, err := ebpf.NewMap(m)
		must(t, err)
		must(t, other.Pin(pin))
		must(t, other.Close())
	}
	next := n.open(t)
	if got := counters(t, next, alice); got.Epoch != before.Epoch || got.UpBytes != before.UpBytes || before.UpBytes == 0 {
		t.Errorf("counters %+v, were %+v", got, before)
	}
	if verdict, _ := next.tryRedirected(t, next.objs.LanIn, index(t, n.lan), tcp(443), func() {}); verdict != redirect ||
		next.packets(t)["forwarded"] == 0 {
		t.Errorf("an admitted client's packet has verdict %d, counted as %v", verdict, next.packets(t))
	}
}

// TestMasqueradeUsesStack: while a rule masquerades, the stack forwards packets, and they are counted all the same.
// Without the rule they are redirected again.
func TestMasqueradeUsesStack(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	run(t, `ip -n $server route del default`, n.env()...) // only masqueraded packets are answered
	echo := func(manner string) error {
		_, err := try(`timeout 3 ip netns exec $client ping -c 3 -i 0.05 -W 1 -q 192.0.2.2`, n.env()...)
		return err
	}
	if echo("without NAT") == nil {
		t.Fatal("the server answered an address it has no route to")
	}
	run(t, `nft add table ip nat; nft 'add chain ip nat post { type nat hook postrouting priority 100; }'; nft add rule ip nat post oifname $wan masquerade`,
		n.env()...)
	defer try("nft delete table ip nat")
	netnstest.Await(t, "masquerading", func() error { return echo("with NAT") })
	earlier := counters(t, d, alice)
	must(t, echo("with NAT"))
	c := counters(t, d, alice)
	if c.UpPackets-earlier.UpPackets != 3 || c.DownPackets-earlier.DownPackets != 3 ||
		c.DownBytes-earlier.DownBytes != 3*84 {
		t.Errorf("counted %+v more for three pings, was %+v", c, earlier)
	}
	run(t, "nft delete table ip nat; ip -n $server route add default via 192.0.2.1", n.env()...)
	netnstest.Await(t, "redirecting again", func() error {
		before := d.packets(t)
		if err := echo("again"); err != nil {
			return err
		}
		if change(before, d.packets(t))["forwarded"] == 0 {
			return errors.New("packets still take the stack")
		}
		return nil
	})
}

// TestDetachLeavesNothing: detach removes programs, pins, rules and routes.
func TestDetachLeavesNothing(t *testing.T) {
	for name, clsact := range map[string]bool{"tcx": false, "clsact": true} {
		t.Run(name, func(t *testing.T) {
			if !clsact {
				netnstest.NeedTCX(t)
			}
			n := newNetwork(t)
			state := func() string {
				return run(t, `ip rule; ip -4 route show table all; ls /sys/fs/bpf; tc filter show dev $lan ingress; tc filter show dev $wan ingress; tc filter show dev $lan egress`,
					n.env()...)
			}
			before := state()
			cfg := n.config(t)
			cfg.clsact = clsact
			d, err := Open(cfg)
			must(t, err)
			if err := detach(cfg); !errors.Is(err, datapath.ErrBusy) {
				t.Errorf("detach while it runs: %v", err)
			}
			programs := programIDs(t, d)
			must(t, d.Close())
			if k := loaded(programs); k != len(programs) {
				t.Errorf("%d of %d programs are left without the daemon", k, len(programs))
			}
			must(t, detach(cfg))
			must(t, detach(cfg)) // a second call has no effect
			if after := state(); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			netnstest.Await(t, "programs unloaded", func() error {
				if k := loaded(programs); k > 0 {
					return fmt.Errorf("%d of %d are still there", k, len(programs))
				}
				return nil
			})
		})
	}
}

// programIDs returns the kernel's IDs of a data path's programs at its interfaces.
func programIDs(t *testing.T, d *Datapath) (ids []ebpf.ProgramID) {
	t.Helper()
	for _, p := range []*ebpf.Program{d.objs.LanIn, d.objs.WanIn, d.objs.LanOut} {
		info, err := p.Info()
		must(t, err)
		id, ok := info.ID()
		if !ok {
			t.Fatal("the kernel does not number programs")
		}
		ids = append(ids, id)
	}
	return ids
}

// loaded returns how many of the programs are still in the kernel.
func loaded(ids []ebpf.ProgramID) (k int) {
	for _, id := range ids {
		if p, err := ebpf.NewProgramFromID(id); err == nil {
			k++
			p.Close()
		}
	}
	return k
}

// TestLinksWithoutEthernet: the programs read Ethernet headers, so interfaces without one are refused, on either side,
// before anything is attached.
func TestLinksWithoutEthernet(t *testing.T) {
	n := newNetwork(t)
	const tunnel = "tunnel0"
	run(t, "ip tuntap add "+tunnel+" mode tun; ip link set "+tunnel+" up")
	t.Cleanup(func() { run(t, "ip link del "+tunnel) })
	for side, change := range map[string]func(*Config){
		"LAN": func(c *Config) { c.Networks = networksOf(tunnel) }, "WAN": func(c *Config) { c.WAN = tunnel },
	} {
		cfg := n.config(t)
		change(&cfg)
		d, err := Open(cfg)
		if err == nil {
			d.Close()
			must(t, detach(cfg))
		}
		if !errors.Is(err, datapath.ErrNotSupported) || !strings.Contains(err.Error(), tunnel) ||
			!strings.Contains(err.Error(), "Ethernet") {
			t.Errorf("a %s without Ethernet: %v", side, err)
		}
	}
}

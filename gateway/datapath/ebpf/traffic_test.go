package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netns"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// in runs fn on a thread in a namespace: sockets it makes belong there.
func in(t *testing.T, namespace string, fn func() error) {
	t.Helper()
	errc := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		ns, err := netns.GetFromName(namespace)
		if err == nil {
			err = netns.Set(ns)
			ns.Close()
		}
		if err == nil {
			err = fn()
		}
		errc <- err
	}()
	must(t, <-errc)
}

// flow sends numbered UDP packets from an address of the client's namespace to
// the server's and knows which came.
type flow struct {
	out      *net.UDPConn
	in       *net.UDPConn
	sent     atomic.Uint64
	arrived  sync.Map // number → struct{}
	received atomic.Uint64
	done     sync.WaitGroup
	stop     atomic.Bool
}

const flowBytes = 100 // of payload

func (n network) flow(t *testing.T, from, to netip.Addr) *flow {
	t.Helper()
	f := &flow{}
	in(t, n.server, func() (err error) {
		f.in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		return errors.Join(err, f.in.SetReadBuffer(8<<20))
	})
	in(t, n.client, func() (err error) {
		f.out, err = net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), f.in.LocalAddr().(*net.UDPAddr))
		return err
	})
	f.done.Go(func() {
		b := make([]byte, 2000)
		for {
			k, err := f.in.Read(b)
			if err != nil {
				return
			}
			if _, twice := f.arrived.LoadOrStore(binary.BigEndian.Uint64(b[:min(k, 8)]), struct{}{}); !twice {
				f.received.Add(1)
			}
		}
	})
	t.Cleanup(func() { f.stop.Store(true); f.out.Close(); f.in.Close(); f.done.Wait() })
	return f
}

// send sends one packet.
func (f *flow) send() {
	b := make([]byte, flowBytes)
	binary.BigEndian.PutUint64(b, f.sent.Add(1))
	f.out.Write(b) // an ICMP error of an earlier packet shows here: not this one's
}

// begin sends until the flow is stopped, some 10,000 packets a second.
func (f *flow) begin() {
	f.done.Go(func() {
		for !f.stop.Load() {
			f.send()
			time.Sleep(50 * time.Microsecond)
		}
	})
}

// halt stops sending and waits for what is under way.
func (f *flow) halt() {
	f.stop.Store(true)
	for last := uint64(1<<64 - 1); last != f.received.Load(); time.Sleep(100 * time.Millisecond) {
		last = f.received.Load()
	}
}

// eventually waits until packets arrive that were sent from now on.
func (f *flow) eventually(t *testing.T, after string) {
	t.Helper()
	began, was := time.Now(), f.received.Load()
	for f.received.Load() < was+100 {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("after %s nothing arrives any more", after)
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("after %s: 100 packets within %v", after, time.Since(began).Round(time.Millisecond))
}

// TestSuccessorLosesNothing replaces the data path again and again under traffic:
// every packet of an admitted client arrives and is billed once, no packet of
// another one does.
func TestSuccessorLosesNothing(t *testing.T) {
	for name, clsact := range map[string]bool{"tcx": false, "clsact": true} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			how := func(c *Config) { c.clsact = clsact }
			cfg := n.config(t)
			how(&cfg)
			d := n.open(t, how)
			must(t, d.Set(datapath.Client{Addr: alice, MAC: aliceMAC, Admitted: true}))
			must(t, d.Set(datapath.Client{Addr: nobody, MAC: aliceMAC}))
			admitted, blocked := n.flow(t, alice, server), n.flow(t, nobody, server)
			admitted.begin()
			blocked.begin()
			for range 10 {
				time.Sleep(50 * time.Millisecond)
				if _, err := Open(cfg); !errors.Is(err, ErrBusy) {
					t.Fatalf("a second gateway opened beside the first: %v", err)
				}
				must(t, d.Close())
				time.Sleep(20 * time.Millisecond) // nobody is there
				next, err := Open(cfg)
				must(t, err)
				d = next
			}
			defer d.Close()
			admitted.halt()
			blocked.halt()
			sent := admitted.sent.Load()
			if got := admitted.received.Load(); got != sent || sent == 0 {
				t.Errorf("%d of %d packets arrived", got, sent)
			}
			c := counters(t, d, alice)
			if want := sent * (20 + 8 + flowBytes); c.UpPackets != sent || c.UpBytes != want {
				t.Errorf("billed %d packets and %d bytes, want %d and %d", c.UpPackets, c.UpBytes, sent, want)
			}
			if got := blocked.received.Load(); got != 0 {
				t.Errorf("%d of %d packets of a client that is not admitted arrived", got, blocked.sent.Load())
			}
			if p := d.packets(t); p["forwarded"] < sent/2 {
				t.Errorf("only %d of %d packets were redirected: %v", p["forwarded"], sent, p)
			}
		})
	}
}

// TestUpgradeKeepsSessions: a version that counts by other reasons, or remembers less,
// takes over the clients all the same.
func TestUpgradeKeepsSessions(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addr: alice, MAC: aliceMAC, Admitted: true}))
	d.try(t, d.objs.LanIn, index(t, n.lan), tcp(443))
	was := counters(t, d, alice)
	must(t, d.Close())
	// What another version has pinned.
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
	if got := counters(t, next, alice); got.Epoch != was.Epoch || got.UpBytes != was.UpBytes || was.UpBytes == 0 {
		t.Errorf("counters %+v, were %+v", got, was)
	}
	next.try(t, next.objs.LanIn, index(t, n.lan), tcp(443))
	if verdict, _, _ := next.try(t, next.objs.LanIn, index(t, n.lan), tcp(443)); verdict != redirect || next.packets(t)["forwarded"] == 0 {
		t.Errorf("an admitted client's packet has verdict %d, counted as %v", verdict, next.packets(t))
	}
}

// TestTrafficFollowsTheNetwork changes what next hops are made of under traffic.
func TestTrafficFollowsTheNetwork(t *testing.T) {
	n := newNetwork(t)
	// Neighbours are asked again after a second, not after half a minute.
	run(t, `cd /proc/sys/net/ipv4/neigh/$wan; echo 500 >base_reachable_time_ms; echo 1 >delay_first_probe_time; echo 100 >retrans_time_ms`, n.env()...)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addr: alice, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addr: nobody, MAC: aliceMAC}))
	f, blocked := n.flow(t, alice, server), n.flow(t, nobody, server)
	f.begin()
	blocked.begin()
	f.eventually(t, "the start")
	for _, c := range []struct{ what, do string }{
		{"a new MAC of the neighbour", `ip -n $server link set s0 address 02:00:00:00:02:99; ip neigh flush dev $wan`},
		{"a new MAC nobody tells of", `ip -n $server link set s0 address 02:00:00:00:02:98`},
		{"a new address of the gateway", `ip addr add 192.0.2.9/24 dev $wan; ip addr del 192.0.2.1/24 dev $wan; ip addr add 192.0.2.1/24 dev $wan`},
		{"the WAN going down and up", `ip link set $wan down; sleep 0.2; ip link set $wan up`},
		{"the LAN going down and up", `ip link set $lan down; sleep 0.2; ip link set $lan up; ip -n $client route replace default via 10.1.0.1`},
		{"a route through another hop", `ip -n $server addr add 192.0.2.3/24 dev s0 2>/dev/null || :; ip route add 192.0.2.2/32 via 192.0.2.3 dev $wan`},
		{"the route going away again", `ip route del 192.0.2.2/32`},
		{"a shorter MTU", `ip link set $wan mtu 1400`},
	} {
		run(t, c.do, n.env()...)
		f.eventually(t, c.what)
	}
	run(t, `ip route add unreachable 192.0.2.2/32`)
	defer run(t, `ip route del unreachable 192.0.2.2/32`)
	time.Sleep(50 * time.Millisecond)
	f.halt()
	was := f.received.Load()
	f.send()
	time.Sleep(50 * time.Millisecond)
	if f.received.Load() != was {
		t.Error("packets arrive by a route that is gone")
	}
	if blocked.halt(); blocked.received.Load() != 0 {
		t.Errorf("%d packets of a client that is not admitted arrived", blocked.received.Load())
	}
}

// TestNetfilterHasItsSay: with masquerading, packets take the stack, which knows
// how, and are billed all the same; without, they are redirected again.
func TestNetfilterHasItsSay(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addr: alice, MAC: aliceMAC, Admitted: true}))
	run(t, `ip -n $server route del default`, n.env()...) // only masqueraded packets are answered
	echo := func(how string) error {
		_, err := try(`timeout 3 ip netns exec $client ping -c 3 -i 0.05 -W 1 -q 192.0.2.2`, n.env()...)
		return err
	}
	if echo("without NAT") == nil {
		t.Fatal("the server answered an address it has no route to")
	}
	run(t, `nft add table ip nat; nft 'add chain ip nat post { type nat hook postrouting priority 100; }'; nft add rule ip nat post oifname $wan masquerade`, n.env()...)
	defer try("nft delete table ip nat")
	eventually(t, "masquerading", func() error { return echo("with NAT") })
	was := counters(t, d, alice)
	must(t, echo("with NAT"))
	c := counters(t, d, alice)
	if c.UpPackets-was.UpPackets != 3 || c.DownPackets-was.DownPackets != 3 || c.DownBytes-was.DownBytes != 3*84 {
		t.Errorf("billed %+v more for three pings, was %+v", c, was)
	}
	run(t, "nft delete table ip nat; ip -n $server route add default via 192.0.2.1", n.env()...)
	eventually(t, "redirecting again", func() error {
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

func eventually(t *testing.T, what string, fn func() error) {
	t.Helper()
	var err error
	for range 40 {
		if err = fn(); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s: %v", what, err)
}

// TestICMPErrorsAppear: what a router must answer, the stack still does.
func TestICMPErrorsAppear(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addr: alice, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addr: nobody, MAC: aliceMAC}))
	run(t, `ip link set $wan mtu 1300; ip -n $server link set s0 mtu 1300`, n.env()...)
	for what, c := range map[string]struct{ do, says string }{
		"time exceeded":         {`ip netns exec $client ping -c 1 -W 2 -t 1 192.0.2.2`, "Time to live exceeded"},
		"fragmentation needed":  {`ip netns exec $client ping -c 2 -i 0.2 -W 2 -M do -s 1400 192.0.2.2`, "1300"},
		"not admitted":          {`ip netns exec $client ping -c 1 -W 2 -I 10.1.0.77 192.0.2.2`, "Packet filtered"},
		"fragments are carried": {`ip netns exec $client ping -c 1 -W 2 -s 4000 192.0.2.2`, "1 received"},
		"no route":              {`ip netns exec $client ping -c 1 -W 2 198.18.0.1`, "Unreachable"},
	} {
		t.Run(what, func(t *testing.T) {
			// Tests before this one may have used up what errors alice is sent in a second.
			eventually(t, c.do, func() error {
				if out, _ := try(c.do, n.env()...); !strings.Contains(out, c.says) {
					return fmt.Errorf("it says\n%s\nwant %q", out, c.says)
				}
				return nil
			})
		})
	}
}

// TestIPv6IsNoWayAround: the stack would forward it.
func TestIPv6IsNoWayAround(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Set(datapath.Client{Addr: alice, MAC: aliceMAC, Admitted: true}))
	run(t, `sysctl -qw net.ipv6.conf.all.forwarding=1; ip netns exec $client sysctl -qw net.ipv6.conf.all.disable_ipv6=0
ip addr add 2001:db8:1::1/64 dev $lan nodad; ip addr add 2001:db8:2::1/64 dev $wan nodad
ip -n $client addr add 2001:db8:1::2/64 dev c0 nodad; ip -n $client route add default via 2001:db8:1::1
ip -n $server addr add 2001:db8:2::2/64 dev s0 nodad; ip -n $server route add default via 2001:db8:2::1`, n.env()...)
	before := d.packets(t)["ipv6"]
	if out, err := try(`ip netns exec $client ping -6 -c 1 -W 1 2001:db8:2::2`, n.env()...); err == nil {
		t.Errorf("IPv6 passes:\n%s", out)
	}
	if d.packets(t)["ipv6"] == before {
		t.Error("it was not counted")
	}
}

// TestDetachLeavesNothing behind: programs, pins, rules, routes.
func TestDetachLeavesNothing(t *testing.T) {
	for name, clsact := range map[string]bool{"tcx": false, "clsact": true} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			state := func() string {
				return run(t, `ip rule; ip route show table all; ls /sys/fs/bpf; tc filter show dev $lan ingress; tc filter show dev $wan ingress; tc filter show dev $lan egress`, n.env()...)
			}
			before, programs := state(), loaded(t)
			cfg := n.config(t)
			cfg.clsact = clsact
			d, err := Open(cfg)
			must(t, err)
			if err := Detach(cfg, false); !errors.Is(err, ErrBusy) {
				t.Errorf("detach while it runs: %v", err)
			}
			must(t, d.Close())
			if loaded(t) == programs {
				t.Error("programs went with the daemon")
			}
			must(t, Detach(cfg, false))
			must(t, Detach(cfg, false)) // twice is the same
			if after := state(); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			eventually(t, "programs unloaded", func() error {
				if k := loaded(t); k > programs {
					return fmt.Errorf("%d programs more than before", k-programs)
				}
				return nil
			})
		})
	}
}

// loaded counts the eBPF programs in the kernel that bear our names.
func loaded(t *testing.T) (k int) {
	t.Helper()
	for _, name := range []string{"lan_in", "wan_in", "lan_out"} {
		k += countPrograms(t, name)
	}
	return k
}

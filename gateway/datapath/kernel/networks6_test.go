package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/framelink"
	"github.com/gateweigh/gateweigh/gateway/keeper"
	"github.com/gateweigh/gateweigh/gateway/netfilter/nftables"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Tests of what needs no PPPoE of the kernel: addresses, rules, routes and the filter of frames.

var (
	lan4 = datapath.Network{Interface: "lan0", Address: netip.MustParsePrefix("10.1.0.1/24")}
	lan6 = datapath.Network{Interface: "lan0", Address: lan4.Address,
		Address6: netip.MustParsePrefix("2001:db8:1::1/64"), Inbound6: prefixes("2001:db8:7::/48")}
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// TestOwnAddresses: a client sends from its networks of IPv6, of which none contains another, and from no network of
// IPv4.
func TestOwnAddresses(t *testing.T) {
	for name, tt := range map[string]struct {
		lan           datapath.Network
		addrs, routes string
		want          []netip.Prefix
		err           error
	}{
		"IPv4":           {lan4, "10.1.0.2", "", nil, nil},
		"IPv4 with IPv6": {lan6, "10.1.0.2", "", nil, nil},
		"its networks": {lan6, "10.1.0.2", "2001:db8:200:100::/56 2001:db8:100:1::/64",
			prefixes("2001:db8:200:100::/56", "2001:db8:100:1::/64"), nil},
		"addresses of them, and others": {lan6, "10.1.0.2 2001:db8:100:1::5 2001:db8:1::5 fe80::5",
			"2001:db8:100:1::/64 2001:db8:100:1::/64", prefixes("2001:db8:100:1::/64", "2001:db8:1::5/128"), nil},
		"an address without IPv6":  {lan4, "10.1.0.2 2001:db8:1::5", "", nil, datapath.ErrNotSupported},
		"a network without IPv6":   {lan4, "10.1.0.2", "2001:db8:100:1::/64", nil, datapath.ErrNotSupported},
		"a network of IPv4":        {lan6, "10.1.0.2", "203.0.113.0/28", nil, datapath.ErrNotSupported},
		"two addresses of IPv4":    {lan6, "10.1.0.2 10.1.0.3", "", nil, datapath.ErrNotSupported},
		"no address of IPv4":       {lan6, "2001:db8:100:1::5", "", nil, datapath.ErrNotSupported},
		"bits beyond their length": {lan6, "10.1.0.2", "2001:db8:100:1::7/64", prefixes("2001:db8:100:1::/64"), nil},
	} {
		c := datapath.Client{Routes: prefixes(strings.Fields(tt.routes)...)}
		for _, a := range strings.Fields(tt.addrs) {
			c.Addrs = append(c.Addrs, netip.MustParseAddr(a))
		}
		d := Datapath{net: tt.lan}
		addr, got, err := d.ownAddresses(c)
		if !errors.Is(err, tt.err) || !slices.Equal(got, tt.want) || err == nil && addr != c.Addrs[0] {
			t.Errorf("%s: %s, %v, %v", name, addr, got, err)
		}
	}
}

// within runs a function in a network namespace, which must not fail.
func within(t *testing.T, s *netnstest.Space, f func() error) {
	t.Helper()
	var err error
	s.Do(func() { err = f() })
	must(t, err)
}

// TestRules6: the kernel takes the rules for IPv6. What a client has is in them as it is compared with, moves, and is
// removed, and batches for the same configuration are the same. Long: the steps of one run, each of which needs the
// state that the one before left.
func TestRules6(t *testing.T) {
	router := netnstest.NewSpace(t)
	d := &Datapath{net: lan6, table: tableOf("lan0"), group: 7, clients: map[netip.Addr]*client{},
		prefixes6: prefixes("2001:db8:1::/64"), pools6: prefixes("2001:db8:200::/48")}
	one, err := d.baseRules().Digest()
	must(t, err)
	if two, err := d.baseRules().Digest(); err != nil || two != one {
		t.Errorf("two batches differ: %v", err)
	}
	within(t, router, func() (err error) {
		if d.rules, err = nftables.Dial(); err == nil {
			err = d.install()
		}
		return err
	})
	t.Cleanup(func() { d.rules.Close() })
	const loopback = 1
	c := &client{addr: netip.MustParseAddr("10.1.0.2"), pppoe: &pppoeSession{index: loopback},
		networks: prefixes("2001:db8:200:100::/56", "2001:db8:100:1::/64")}
	c.MTU = 1000 // too small for IPv6: without routes
	d.clients[c.addr] = c
	agree := func(when string) {
		t.Helper()
		var what string
		within(t, router, func() (err error) {
			if d.digests, err = d.digestsOf(d.tables()); err == nil {
				what, err = d.changed()
			}
			return err
		})
		if what != "" {
			t.Errorf("%s: %s differ\n%s", when, what, router.Run(t, "nft list ruleset"))
		}
	}
	var b nftables.Batch
	d.addClientRules(&b, c.holdings())
	must(t, d.rules.Commit(&b))
	agree("entered")
	if some, err := d.rules.SomeElements(table6Of("lan0"), setFrom); err != nil || len(some) != len(c.networks) {
		t.Errorf("of the clients' networks %d are listed: %v", len(some), err)
	}
	must(t, d.moveTo(c, prefixes("2001:db8:200:100::/60", "2001:db8:100:2::/64")))
	agree("moved")
	for _, p := range c.networks {
		if out := router.Run(t, "nft list table ip6 gatewayd-lan0"); !strings.Contains(out, p.String()) {
			t.Errorf("%s is not in\n%s", p, out)
		}
	}
	b = nftables.Batch{}
	d.barRules(&b, c.holdings())
	d.removeBarred(&b, c.holdings())
	must(t, d.rules.Commit(&b))
	c.pppoe = nil
	agree("removed")
	d.net = lan4
	must(t, d.install())
	if out := router.Run(t, "nft list tables"); strings.Contains(out, "ip6 ") {
		t.Errorf("without IPv6 there is %s", out)
	}
}

// TestUnreachable: the routes that lead nowhere are those of a LAN's pools, beside those of other LANs and programs.
func TestUnreachable(t *testing.T) {
	router := netnstest.NewSpace(t)
	router.Run(t, "ip link set lo up; ip -6 route add unreachable 2001:db8:900::/48")
	set := func(lan string, pools []netip.Prefix) {
		t.Helper()
		within(t, router, func() error { return setUnreachable(lan, pools) })
	}
	set("lan1", prefixes("2001:db8:300::/48"))
	for _, pools := range [][]netip.Prefix{prefixes("2001:db8:100::/48", "2001:db8:200::/48"),
		prefixes("2001:db8:200::/48", "2001:db8:300::/48"), nil} {
		set("lan0", pools)
		set("lan0", pools)
		out := router.Run(t, "ip -6 route show proto 103")
		if strings.Count(out, "unreachable 2001:db8:") != len(pools)+1 {
			t.Errorf("with %v there are\n%s", pools, out)
		}
		for _, p := range pools {
			if !strings.Contains(out, p.String()) {
				t.Errorf("%s is not in\n%s", p, out)
			}
		}
	}
	set("lan1", nil)
	if out := router.Run(t, "ip -6 route show type unreachable"); strings.Count(out, "2001:db8:") != 1 {
		t.Errorf("at the end there are\n%s", out)
	}
}

// TestKeeperBeforeRules: a keeper that begins before there are rules gets none.
func TestKeeperBeforeRules(t *testing.T) {
	d := &Datapath{net: lan6, table: tableOf("lan0"), lan: &net.Interface{Index: 1}, clients: map[netip.Addr]*client{},
		keeper: keeper.New(keeper.Config{Name: "lan0"})}
	d.refill()
}

// TestRoutesOfOthers: a client's routes take the place of another client's, and leave those of other programs.
func TestRoutesOfOthers(t *testing.T) {
	router := netnstest.NewSpace(t)
	router.Run(t, "ip link set lo up; ip link add u1 type veth peer name u2; ip link set u1 up; ip link set u2 up\n"+
		"for u in u1 u2; do sysctl -qw net.ipv6.conf.$u.disable_ipv6=0; done; ip -6 route add 2001:db8:900::/48 dev lo")
	d := &Datapath{net: lan6}
	enter := func(name, network string) (err error) {
		router.Do(func() {
			var dev *net.Interface
			if dev, err = net.InterfaceByName(name); err == nil {
				err = d.addRoutes6(&client{pppoe: &pppoeSession{index: dev.Index}}, prefixes(network))
			}
		})
		return err
	}
	const own, theirs = "2001:db8:100:1::/64", "2001:db8:900::/48"
	for _, unit := range []string{"u1", "u1", "u2"} {
		must(t, enter(unit, own))
		out := router.Run(t, "ip -6 route show proto 103")
		if strings.Count(out, own) != 1 || !strings.Contains(out, own+" dev "+unit) {
			t.Errorf("by %s there is\n%s", unit, out)
		}
	}
	var there map[netip.Prefix]int
	within(t, router, func() (err error) { there, err = d.routes6(); return err })
	if len(there) != 1 || there[netip.MustParsePrefix(own)] == 0 {
		t.Errorf("those of gatewayd are %v", there)
	}
	if err := enter("u1", theirs); !errors.Is(err, datapath.ErrTaken) {
		t.Errorf("to another program's network: %v", err)
	}
	if out := router.Run(t, "ip -6 route show "+theirs); !strings.Contains(out, "dev lo") {
		t.Errorf("another program's route is\n%s", out)
	}
}

// TestOnLinks: the filter passes frames of PPPoE sessions with neighbour discovery, DHCPv6 and echo requests, and no
// others. Its first four instructions need the kernel.
func TestOnLinks(t *testing.T) {
	vm, err := bpf.NewVM(onLinks(7)[4:])
	must(t, err)
	session := framelink.Host{MAC: datapath.MAC{2, 0, 0, 0, 0, 1}, Session: 9}
	toward := func(to string, next byte, upper ...byte) []byte {
		p, dest := headerFrom(netip.MustParseAddr("fe80::1")), netip.MustParseAddr(to).As16()
		p[6] = next
		copy(p[24:], dest[:])
		return append(p, append(upper, make([]byte, 8)...)...)
	}
	packet := func(next byte, upper ...byte) []byte { return toward("ff02::2", next, upper...) }
	for name, tt := range map[string]struct {
		to     framelink.Host
		packet []byte
		passes bool
	}{
		"router solicitation":        {session, packet(58, 133), true},
		"redirect":                   {session, packet(58, 137), true},
		"echo request":               {session, toward("fe80::ff", 58, 128), true},
		"echo request far away":      {session, toward("2001:db8:9::2", 58, 128), false},
		"to a DHCPv6 server":         {session, packet(17, 2, 34, 2, 35), true},
		"to a DHCPv6 client":         {session, packet(17, 2, 35, 2, 34), true},
		"echo reply":                 {session, packet(58, 129), false},
		"listener report":            {session, packet(58, 132), false},
		"beyond":                     {session, packet(58, 138), false},
		"DNS":                        {session, packet(17, 2, 34, 0, 53), false},
		"TCP":                        {session, packet(6, 2, 34, 2, 35), false},
		"without a session":          {framelink.Host{MAC: session.MAC}, packet(58, 133), false},
		"an address's header":        {session, packet(59), false},
		"of a type and another next": {session, packet(60, 133), false},
	} {
		n, err := vm.Run(framelink.Frame(tt.to, datapath.MAC{2, 0, 0, 0, 0, 2}, tt.packet))
		if err != nil || n > 0 != tt.passes {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
}

// TestEarEnds: a reader of frames ends when it is closed, whatever it waits for.
func TestEarEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	e := &ear{frames: blocked{ctx, cancel}, heard: make(chan []byte), ended: make(chan struct{})}
	e.both.Go(e.listen)
	done := make(chan error, 1)
	go func() {
		_, err := e.Read(make([]byte, 9))
		done <- err
	}()
	must(t, e.Close())
	must(t, e.Close())
	if err := <-done; err == nil {
		t.Error("a frame was read")
	}
}

// blocked is a source of frames without any.
type blocked struct {
	ctx    context.Context
	cancel func()
}

func (b blocked) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, net.ErrClosed }
func (b blocked) Close() error             { b.cancel(); return nil }

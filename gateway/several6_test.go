package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// trunk6 is trunk with IPv6 at the WAN and at each LAN, where the gateway is fd00:0:0:VLAN::1.
func trunk6(t testing.TB, vlans ...int) {
	t.Helper()
	trunk(t, vlans...)
	sh(t, `sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.conf.wan0.disable_ipv6=0
ip addr add 2001:db8:9::1/64 dev wan0 nodad
ip netns exec server sysctl -qw net.ipv6.conf.s0.disable_ipv6=0 net.ipv6.conf.s0.accept_ra=0
ip -n server addr add 2001:db8:9::2/64 dev s0 nodad; ip -n server route add default via 2001:db8:9::1`)
	for _, v := range vlans {
		sh(t, fmt.Sprintf(`sysctl -qw net.ipv6.conf.lan0/%[1]d.disable_ipv6=0
ip addr add fd00:0:0:%[1]d::1/64 dev lan0.%[1]d nodad
ip netns exec guest%[1]d sysctl -qw net.ipv6.conf.c0.disable_ipv6=0 net.ipv6.conf.c0.accept_ra=1`, v))
	}
}

// with6 are the keys of a network of trunk6, with more of [[network]].
func with6(v int, keys string) string {
	return fmt.Sprintf("address6 = \"fd00:0:0:%d::1/64\"\n%s", v, keys)
}

// addrIn waits for an address of a prefix, and returns it.
func (g guest) addrIn(prefix netip.Prefix) (found netip.Addr) {
	g.t.Helper()
	netnstest.Await(g.t, fmt.Sprintf("an address of %v at the client of VLAN %d", prefix, g.vlan), func() error {
		out, err := g.try("ip -6 -o addr show dev c0 scope global -tentative")
		for _, field := range strings.Fields(out) {
			if p, e := netip.ParsePrefix(field); e == nil && prefix.Contains(p.Addr()) {
				found = p.Addr()
				return nil
			}
		}
		return errors.Join(err, errors.New(out))
	})
	return found
}

// mustReach6 checks whether the client reaches the server from an address; where it should, it waits for that.
func (g guest) mustReach6(from netip.Addr, want bool, when string) {
	g.t.Helper()
	ping := func(flags string) error {
		_, err := g.try("ping -6 " + flags + " -I " + from.String() + " 2001:db8:9::2")
		return err
	}
	if want {
		netnstest.Await(g.t, fmt.Sprintf("%s: the way out from %v", when, from), func() error { return ping("-c 1 -W 1") })
	} else if ping("-c 2 -i 0.1 -W 0.2") == nil {
		g.t.Errorf("%s: %v reaches the server", when, from)
	}
}

// TestDelegatedSubnets: of the prefix that the provider delegates each network's clients have addresses of its own /64,
// by which they reach the server once they are logged in. A network that comes has its /64 at once, and one that gets
// another number has that one; the others' go on. Long: the steps of one run, each of which needs the state that the
// one before left.
func TestDelegatedSubnets(t *testing.T) {
	trunk6(t, 10, 20)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "dhcpd.conf"), []byte(dhcpd), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "leases"), nil, 0o666))
	must(t, os.Chmod(dir, 0o777))
	awaitLinkLocal(t, "server", "s0")
	sh(t, "ip -n server route add 2001:db8:a000::/40 via 2001:db8:9::1")
	spawn(t, "server", "dhcpd", "-6", "-f", "-q", "-cf", filepath.Join(dir, "dhcpd.conf"), "-lf",
		filepath.Join(dir, "leases"), "-pf", filepath.Join(dir, "dhcpd.pid"), "--no-pid", "s0")
	configured := func(texts ...string) *config.Config {
		for i, at := range []int{10, 20}[:len(texts)] {
			texts[i] = networkText(at, with6(at, texts[i]))
		}
		return severalWith(t, dir, strings.Replace(severalHead, "[wan]", "[wan]\ndelegation = true", 1), texts...)
	}
	t.Cleanup(func() {
		detachAll(t, configured("subnet = 3", "subnet = 4"))
		if left := sh(t, "ip -6 route"); strings.Contains(left, "2001:db8:a0") {
			t.Errorf("routes are left:\n%s", left)
		}
	})
	d := serveSeveral(t, configured("subnet = 3"))
	addr4 := guest{t, 10}.lease(dir)
	var whole netip.Prefix
	netnstest.Await(t, "a prefix", func() error {
		st, err := d.Status(t.Context())
		must(t, err)
		if v := st.Networks[0].IPv6; v == nil || len(v.Delegated) != 1 {
			return fmt.Errorf("the status has %+v", v)
		}
		whole = st.Networks[0].IPv6.Delegated[0].Prefix
		return nil
	})
	part := func(n byte) netip.Prefix {
		a := whole.Addr().As16()
		a[7] |= n
		return netip.PrefixFrom(netip.AddrFrom16(a), 64)
	}
	first := guest{t, 10}.addrIn(part(3))
	guest{t, 10}.mustReach6(first, false, "before login")
	guest{t, 10}.logIn()
	guest{t, 10}.mustReach6(first, true, "after login")

	d.apply(configured("subnet = 3", "subnet = 200"))
	guest{t, 20}.lease(dir)
	second := guest{t, 20}.addrIn(part(200))
	guest{t, 20}.logIn()
	guest{t, 20}.mustReach6(second, true, "a network that came")
	guest{t, 10}.mustReach6(first, true, "another network came")
	if _, err := (guest{t, 10}).try("ping -6 -c 2 -i 0.1 -W 0.2 " + second.String()); err == nil {
		t.Error("a client reaches another network's by IPv6")
	}
	s, err := d.Session(t.Context(), second)
	must(t, err)
	if s.Network != "n20" || s.State != session.Authenticated {
		t.Errorf("the second network's client is %+v", s)
	}
	before, err := d.Session(t.Context(), addr4)
	must(t, err)
	d.apply(configured("subnet = 3", "subnet = 201"))
	guest{t, 20}.mustReach6(guest{t, 20}.addrIn(part(201)), true, "with another number")
	guest{t, 10}.mustReach6(first, true, "another network has another number")
	if after, err := d.Session(t.Context(), first); err != nil || after.ID != before.ID {
		t.Errorf("the first network's client is %+v, %v; was %+v", after, err, before)
	}
}

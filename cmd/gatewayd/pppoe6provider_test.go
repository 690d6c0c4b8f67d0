package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/ppp"
)

// delegates has Kea's configuration delegate a /56 to the gateway, which is valid for 20 s and renewed each second.
func (w *world) delegates(prefix string) {
	w.t.Helper()
	next := filepath.Join(w.Dir, "kea.next")
	must(w.t, os.WriteFile(next, fmt.Appendf(nil, `{"Dhcp6": {"interfaces-config": {"interfaces": ["s0"]},
"server-id": {"type": "EN", "enterprise-id": 32473, "identifier": "0102030405", "persist": false},
"lease-database": {"type": "memfile", "persist": false},
"renew-timer": 1, "rebind-timer": 15, "preferred-lifetime": 20, "valid-lifetime": 20,
"subnet6": [{"id": 1, "subnet": "2001:db8:9::/64", "interface": "s0", "rapid-commit": true,
"pd-pools": [{"prefix": "%s", "prefix-len": 56, "delegated-len": 56}]}]}}`, prefix), 0o600))
	must(w.t, os.Rename(next, filepath.Join(w.Dir, "kea.json")))
}

// TestSessionsFollowProvider: the clients of PPPoE sessions have a /64 of the prefix that the provider (Kea) delegates.
// Where it delegates another one, sessions that go on have one of that too, which passes from its first packet on, and
// lose the former one when that is valid no longer. Long: the network, and the steps of one run.
func TestSessionsFollowProvider(t *testing.T) {
	t.Parallel()
	w := newNetwork(t)
	w.enable6()
	w.sh(`nsenter --net=/run/netns/$ID-router ip addr add fd00:0:0:1::1/64 dev lan0 nodad
nsenter --net=/run/netns/$ID-server ethtool -K s0 tx off # see onLine`)
	eventually(t, "the server's link-local address, which Kea needs", func() error {
		out, err := w.try("ip -n $ID-server -6 -o addr show dev s0 scope link -tentative")
		if err == nil && out == "" {
			err = errors.New("none yet")
		}
		return err
	})
	w.delegates("2001:db8:a000::")
	kea := w.spawnAt("server", "kea.log", "env", "KEA_PIDFILE_DIR="+w.Dir, "KEA_LOCKFILE_DIR="+w.Dir, "kea-dhcp6", "-c",
		filepath.Join(w.Dir, "kea.json"))
	w.LAN = "address6 = \"fd00:0:0:1::1/64\"\nclient_prefixes = \"delegated\""
	w.Lines = "ipv6 = true\necho_failures = 60"
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	path := w.write("radius/gatewayd.toml", "gatewayd.toml", w)
	text, err := os.ReadFile(path)
	must(t, err)
	wan := "interface = \"wan0\"\n"
	must(t, os.WriteFile(path, []byte(strings.Replace(string(text), wan, wan+"delegation = true\n", 1)), 0o600))
	w.start()
	c := w.addUnaddressed()
	s := c.subscriber(ppp.Config{User: "ann", Password: "right", IPv6: true})
	_, err = s.dial()
	must(t, err)
	terms := s.terms6()
	c.sh("sysctl -qw net.ipv6.conf.default.disable_ipv6=0 net.ipv6.conf.default.addr_gen_mode=1")
	s.route(c, terms)
	c.sh(fmt.Sprintf("ip addr add %s/64 dev ppp0", local6(terms.LocalID)))
	links := func(all ...string) {
		t.Helper()
		eventually(t, "the session to have networks of "+fmt.Sprint(all), func() error {
			one, err := w.session("ann")
			of := func(p netip.Prefix) string { return netip.PrefixFrom(p.Addr(), 56).Masked().Addr().String() }
			if err == nil && !slices.EqualFunc(one.Delegated, all, func(p netip.Prefix, want string) bool {
				return p.Bits() == 64 && of(p) == want
			}) {
				err = fmt.Errorf("it has %v", one.Delegated)
			}
			return err
		})
	}
	first := c.addrOf6("2001:db8:a000::/56")
	links("2001:db8:a000::")
	must(t, c.ping6(first))
	w.delegates("2001:db8:a001::")
	must(t, kea.cmd.Process.Signal(syscall.SIGHUP))
	second := c.addrOf6("2001:db8:a001::/56")
	must(t, c.ping6(second))
	links("2001:db8:a001::")
	must(t, c.ping6(second))
}

// addrOf6 waits until the client's kernel has an address of a prefix in its session.
func (c *client) addrOf6(prefix string) (addr netip.Addr) {
	c.w.t.Helper()
	eventually(c.w.t, "an address of "+prefix, func() error {
		out, err := c.try("ip -6 -o addr show dev ppp0 scope global -tentative")
		for word := range strings.FieldsSeq(out) {
			p, bad := netip.ParsePrefix(word)
			if bad == nil && netip.MustParsePrefix(prefix).Contains(p.Addr()) {
				addr = p.Addr()
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("it has %q", out))
	})
	return addr
}

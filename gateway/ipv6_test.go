package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// network6 is network with IPv6: the client's kernel makes its addresses from router advertisements.
func network6(t *testing.T) {
	t.Helper()
	network(t)
	sh(t, `sysctl -qw net.ipv6.conf.all.forwarding=1
ip addr add 2001:db8:1::1/64 dev lan0 nodad; ip addr add 2001:db8:9::1/64 dev wan0 nodad
ip netns exec server sysctl -qw net.ipv6.conf.s0.accept_ra=0
ip -n server addr add 2001:db8:9::2/64 dev s0 nodad; ip -n server route add default via 2001:db8:9::1`)
}

// serve6 runs a gateway with IPv6 on the LAN.
func serve6(t *testing.T, dir string) daemon {
	t.Helper()
	cfg := configured(t, dir, onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	return serve(t, cfg)
}

// addrs6 returns the client's global addresses.
func addrs6(t *testing.T) (addrs []netip.Addr) {
	t.Helper()
	out := sh(t, `ip -n client -6 -o addr show dev c0 scope global -tentative`)
	for _, m := range regexp.MustCompile(`inet6 (\S+)/64`).FindAllStringSubmatch(out, -1) {
		addrs = append(addrs, netip.MustParseAddr(m[1]))
	}
	return addrs
}

func awaitAddrs6(t *testing.T, most int) (addrs []netip.Addr) {
	t.Helper()
	netnstest.Await(t, "addresses of the client", func() error {
		if addrs = addrs6(t); len(addrs) < most {
			return fmt.Errorf("it has %v", addrs)
		}
		return nil
	})
	return addrs
}

// reaches6 reports whether the client reaches the server from an address.
func reaches6(from netip.Addr) error {
	_, err := try("ip netns exec client ping -6 -c 1 -W 4 -I $from 2001:db8:9::2", "from="+from.String())
	return err
}

const curl6 = "ip netns exec client curl -6 -g -s --max-time 30 "

// token6 returns the token of the form on a page of the portal.
func token6(t *testing.T, page string) string {
	t.Helper()
	text := sh(t, curl6+`http://[2001:db8:1::1]:8080/`+page)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(text)
	if token == nil {
		t.Fatalf("no form on the page:\n%s", text)
	}
	return token[1]
}

// login6 logs the client in at the portal by IPv6.
func login6(t *testing.T) {
	t.Helper()
	code := sh(t, curl6+`-o /dev/null -w '%{http_code}' -d token=`+token6(t, "login")+
		` -d username=ann -d password=right http://[2001:db8:1::1]:8080/login`)
	if code != "303" {
		t.Fatalf("the login by IPv6 is answered by %s", code)
	}
}

// logout6 logs the client out at the portal by IPv6.
func logout6(t *testing.T) {
	t.Helper()
	sh(t, curl6+`-o /dev/null -d token=`+token6(t, "status")+` -d username=ann http://[2001:db8:1::1]:8080/logout`)
}

// TestClientOfBothFamilies takes a client with the kernel's own IPv6 addresses through redirect, login at the portal's
// IPv6 address, a new temporary address, a restart of the gateway and logout. Long: the steps of one run, each of which
// needs the state that the one before left.
func TestClientOfBothFamilies(t *testing.T) {
	network6(t)
	dir := t.TempDir()
	sh(t, "ip netns exec client sysctl -qw net.ipv6.conf.c0.use_tempaddr=2")
	d := serve6(t, dir)
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	lease(t)
	addrs := awaitAddrs6(t, 2)
	for _, addr := range addrs {
		if reaches6(addr) == nil {
			t.Errorf("%s reaches the server before login", addr)
		}
	}
	caught := sh(t, curl6+`-o /dev/null -w '%{http_code} %{redirect_url}' http://[2001:db8:9::2]/generate_204`)
	if !strings.HasPrefix(caught, "302 http://[2001:db8:1::1]:8080/login") {
		t.Fatalf("the first look at the web is answered by %q", caught)
	}
	login6(t)
	if !clientReachesServer() {
		t.Fatal("the login by IPv6 does not let IPv4 pass")
	}
	for _, addr := range addrs {
		netnstest.Await(t, "the way out", func() error { return reaches6(addr) })
	}
	sh(t, "ip -n client addr add 2001:db8:1::7e3b/64 dev c0") // as a new temporary one: DAD, then use
	netnstest.Await(t, "a new address without a new login", func() error {
		if !slices.Contains(addrs6(t), netip.MustParseAddr("2001:db8:1::7e3b")) {
			return errors.New("the kernel still looks whether another host has it")
		}
		return reaches6(netip.MustParseAddr("2001:db8:1::7e3b"))
	})
	if got := d.client(t).State; got != session.Authenticated {
		t.Errorf("the client is %q", got)
	}

	must(t, d.stop())
	for _, addr := range addrs {
		if err := reaches6(addr); err != nil {
			t.Errorf("without the daemon %s is cut off: %v", addr, err)
		}
	}
	d = serve6(t, dir)
	for _, addr := range addrs {
		must(t, reaches6(addr))
	}
	logout6(t)
	for _, addr := range addrs {
		if reaches6(addr) == nil {
			t.Errorf("%s still passes after logout", addr)
		}
	}
	if clientReachesServer() {
		t.Error("IPv4 still passes after logout by IPv6")
	}
}

// TestCheckIPv6: what IPv6 lacks on this machine is found, with the command that mends it.
func TestCheckIPv6(t *testing.T) {
	network6(t)
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	find := func(cfg *config.Config, w Weight, text string) {
		t.Helper()
		all := Check(cfg)
		if !slices.ContainsFunc(all, func(f Finding) bool { return f.Weight == w && strings.Contains(f.Text, text) }) {
			t.Errorf("no finding with %q among %v", text, all)
		}
	}
	if all := Check(cfg); Refused(all) != nil {
		t.Errorf("refused although nothing lacks: %v", Refused(all))
	}
	sh(t, "sysctl -qw net.ipv6.conf.wan0.accept_ra=1")
	find(cfg, Warning, "net.ipv6.conf.wan0.accept_ra=2")
	sh(t, "sysctl -qw net.ipv6.conf.all.forwarding=0")
	find(cfg, Refusal, "net.ipv6.conf.all.forwarding=1")
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:2::1/64")
	find(cfg, Refusal, "ip addr add 2001:db8:2::1/64 dev lan0")
	sh(t, "sysctl -qw net.ipv6.conf.lan0.disable_ipv6=1")
	find(cfg, Refusal, "net.ipv6.conf.lan0.disable_ipv6=0")
}

// TestClientOfDHCPv6: an address that DHCPv6 gave a client is its client's, and stays so for a gateway that is started
// again.
func TestClientOfDHCPv6(t *testing.T) {
	network6(t)
	sh(t, "ip netns exec client sysctl -qw net.ipv6.conf.c0.autoconf=0")
	dir := t.TempDir()
	stateful := func() daemon {
		cfg := configured(t, dir, onEBPF)
		cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
		cfg.DHCP6.Mode = config.Stateful
		return serve(t, cfg)
	}
	d := stateful()
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	addr4 := netip.MustParseAddr(lease(t))
	script := filepath.Join(dir, "dhclient-script")
	must(t, os.WriteFile(script, []byte(
		"#!/bin/sh\n[ $reason != BOUND6 ] || ip -6 addr add $new_ip6_address/128 dev $interface\n"), 0o755))
	pid := filepath.Join(dir, "pid")
	awaitLinkLocal(t, "client", "c0")
	sh(t, "ip netns exec client dhclient -6 -1 -q -sf "+script+" -lf "+filepath.Join(dir, "lease")+" -pf "+pid+" c0")
	t.Cleanup(func() { sh(t, "kill $(cat "+pid+")") })
	out := sh(t, "ip -n client -6 -o addr show dev c0 scope global")
	m := regexp.MustCompile(`inet6 (2001:db8:1:\S+)/128`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no address by DHCPv6:\n%s", out)
	}
	addr := netip.MustParseAddr(m[1])
	if reaches6(addr) == nil {
		t.Error("it reaches the server before login")
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: addr4, User: "ann"})
	must(t, err)
	netnstest.Await(t, "the way out", func() error { return reaches6(addr) }) // the kernel first asks for its router
	if st, err := c.Status(t.Context()); err != nil || st.IPv6.Leases["address"] != 1 || st.DHCP6["request"] != 1 {
		t.Errorf("the status has %+v, %v, %v", st.IPv6, st.DHCP6, err)
	}
	must(t, d.stop())
	d = stateful()
	must(t, reaches6(addr))
	c, err = control.Dial(d.cfg.ControlSocket())
	must(t, err)
	_, err = c.Logout(t.Context(), control.LogoutRequest{Addr: addr4})
	must(t, err)
	if reaches6(addr) == nil {
		t.Error("it still passes after logout")
	}
}

// awaitLinkLocal waits until an interface has a link-local address that no other host has.
func awaitLinkLocal(t testing.TB, namespace, link string) {
	t.Helper()
	netnstest.Await(t, "a link-local address", func() error {
		out, err := try("ip -n " + namespace + " -6 addr show dev " + link + " scope link -tentative")
		if err == nil && !strings.Contains(out, "fe80") {
			return errors.New("none yet")
		}
		return err
	})
}

// statusHasPrefix checks that the status has a prefix that is part of another, and one client's addresses.
func statusHasPrefix(t *testing.T, c *control.Client, of netip.Prefix) {
	t.Helper()
	st, err := c.Status(t.Context())
	must(t, err)
	if v := st.IPv6; v == nil || len(v.Delegated) != 1 || !of.Overlaps(v.Delegated[0].Prefix) ||
		!v.Delegated[0].PreferredUntil.Before(v.Delegated[0].ValidUntil) || v.Addresses < 2 || v.Clients != 1 ||
		st.RouterAdv["solicited"]+st.RouterAdv["unsolicited"] == 0 || st.Neighbours["solicitation"] == 0 {
		t.Errorf("the status has %+v, %v, %v", v, st.RouterAdv, st.Neighbours)
	}
}

// dhcpd is the configuration of a provider's server that delegates prefixes.
const dhcpd = `default-lease-time 600; preferred-lifetime 300;
subnet6 2001:db8:9::/64 { prefix6 2001:db8:a000:: 2001:db8:a0ff:: /56; }
`

// TestDelegatedPrefix: clients have addresses of the prefix that the provider delegates, beside those of the gateway's
// own prefix, or of a /64 of their own; sessions go on by all, ident names their user, and detach leaves no route.
func TestDelegatedPrefix(t *testing.T) {
	t.Run("one for all", func(t *testing.T) { delegatedPrefix(t, config.ClientPrefixes{}, 2) })
	t.Run("one for each", func(t *testing.T) { delegatedPrefix(t, config.ClientPrefixes{Delegated: true}, 1) })
}

// delegatedPrefix is TestDelegatedPrefix with that many addresses of the client. Long: the steps of one run, each of
// which needs the state that the one before left.
func delegatedPrefix(t *testing.T, each config.ClientPrefixes, count int) {
	t.Helper()
	network6(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "dhcpd.conf"), []byte(dhcpd), 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "leases"), nil, 0o666))
	must(t, os.Chmod(dir, 0o777))
	awaitLinkLocal(t, "server", "s0")
	sh(t, "ip -n server route add 2001:db8:a000::/40 via 2001:db8:9::1")
	spawn(t, "server", "dhcpd", "-6", "-f", "-q", "-cf", filepath.Join(dir, "dhcpd.conf"), "-lf",
		filepath.Join(dir, "leases"), "-pf", filepath.Join(dir, "dhcpd.pid"), "--no-pid", "s0")
	cfg := configured(t, dir, onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.WAN.Delegation, cfg.LAN.ClientPrefixes, cfg.Ident.Enabled = true, each, true
	d := serve(t, cfg)
	addr4 := netip.MustParseAddr(lease(t))
	delegated := netip.MustParsePrefix("2001:db8:a000::/40")
	var ofProvider netip.Addr
	netnstest.Await(t, "an address of the delegated prefix", func() error {
		for _, addr := range addrs6(t) {
			if delegated.Contains(addr) {
				ofProvider = addr
				return nil
			}
		}
		return fmt.Errorf("the client has %v", addrs6(t))
	})
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: addr4, User: "ann"})
	must(t, err)
	for _, addr := range awaitAddrs6(t, count) {
		netnstest.Await(t, "the way out", func() error { return reaches6(addr) })
	}
	statusHasPrefix(t, c, delegated)
	told := sh(t, "ip netns exec client rdisc6 -1 -r 10 -w 3000 c0")
	route := regexp.MustCompile(`Route +: (\S+)`).FindStringSubmatch(told)
	if route == nil || !netip.MustParsePrefix(route[1]).Contains(ofProvider) || !strings.HasSuffix(route[1], "/56") {
		t.Errorf("no route to the delegated prefix is advertised (RFC 7084, L-3):\n%s", told)
	}
	server := newIdentPeer(t, "2001:db8:9::2")
	conn := server.connect(ofProvider)
	server.expectReply(ofProvider, conn, "USERID : UNIX : ann")
	if got := d.client(t); !slices.Contains(got.Further, ofProvider) {
		t.Errorf("the client is shown with %v, without %s", got.Further, ofProvider)
	}
	must(t, d.stop())
	must(t, reaches6(ofProvider))
	d = serve(t, cfg)
	netnstest.Await(t, "the same address with the next daemon", func() error {
		if got := d.client(t); !slices.Contains(got.Further, ofProvider) {
			return fmt.Errorf("the client is shown with %v", got.Further)
		}
		return reaches6(ofProvider)
	})
	server.expectReply(ofProvider, conn, "USERID : UNIX : ann")
	must(t, d.stop())
	must(t, Detach(d.cfg, false))
	if out := sh(t, "ip -6 route show dev lan0"); strings.Contains(out, "2001:db8:a0") {
		t.Errorf("a route is left: %s", out)
	}
}

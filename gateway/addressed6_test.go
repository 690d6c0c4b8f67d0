package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestRADIUSGivesAddress: FreeRADIUS gives a client of the LAN an address, which DHCPv6 gives it, and a network behind
// it. The network is the client's while its session lasts, also for a daemon that is started again, and nobody else can
// have either. What cannot be given is refused. Long: the steps of one run, each of which needs the state that the one
// before left.
func TestRADIUSGivesAddress(t *testing.T) {
	network6(t)
	addIntruder(t)
	sh(t, "ip -n server route add 2001:db8:6000::/48 via 2001:db8:9::1")
	dir := t.TempDir()
	secret, told := startOutside(t)
	var logs logtest.Log
	start := func() daemon {
		cfg := milano(t, dir, secret, "address6 = \"2001:db8:1::1/64\"\n[dhcp6]\nmode = \"stateful\"")
		cfg.RADIUS.Dynamic = netip.MustParseAddrPort("192.0.2.1:3799")
		return serveLogging(t, cfg, logs.Logger())
	}
	var d daemon
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	d = start()
	addr4 := lease(t)
	awaitAddrs6(t, 1)
	own, network := netip.MustParseAddr("2001:db8:1::77"), netip.MustParsePrefix("2001:db8:6000::/48")
	behind := netip.MustParseAddr("2001:db8:6000:7::1")
	refuses := func(namespace, user, why string) {
		t.Helper()
		if code := loginFrom(t, namespace, user); code != "200" || !strings.Contains(logs.String(), why) {
			t.Errorf("%s is answered by %s, and the log does not say %q:\n%s", user, code, why, logs.String())
		}
	}
	refuses("client", "doorman", "2001:db8:1::1 (Framed-IPv6-Address), which is the gateway's own")
	refuses("client", "stranger", "2001:db8:2::7 (Framed-IPv6-Address), which is not of the LAN")
	if code := loginFrom(t, "client", "home"); code != "303" {
		t.Fatalf("the login is answered by %s:\n%s", code, logs.String())
	}
	began := d.sessionOf(t, addr4)
	if !slices.Equal(began.Delegated, []netip.Prefix{network}) {
		t.Errorf("the session is %+v", began)
	}
	script, leases := filepath.Join(dir, "script"), filepath.Join(dir, "leases6")
	must(t, os.WriteFile(script, []byte(
		"#!/bin/sh\n[ $reason != BOUND6 ] || ip -6 addr add $new_ip6_address/128 dev $interface\n"), 0o755))
	spawn(t, "client", "dhclient", "-6", "-d", "-sf", script, "-lf", leases, "-pf", leases+".pid", "c0")
	if got := awaitAddrOf(t, "client", "c0", netip.PrefixFrom(own, 120)); got != own {
		t.Errorf("the client has %s", got)
	}
	sh(t, "ip -n client addr add "+behind.String()+"/128 dev lo nodad")
	for _, addr := range []netip.Addr{own, behind} {
		netnstest.Await(t, "the way out of "+addr.String(), func() error { return reaches6(addr) })
	}
	const route = "Framed-IPv6-Route = \"2001:db8:6000::/48 :: 1\""
	awaitTold(t, told, "Start", began.ID, route)
	awaitTold(t, told, "Interim-Update", began.ID, route, "Framed-IPv6-Address = "+own.String())
	isRouted := func(want bool) {
		t.Helper()
		if out := sh(t, "ip -6 route show proto 103"); strings.Contains(out, network.String()) != want {
			t.Errorf("the kernel has the routes\n%s", out)
		}
	}
	isRouted(true)

	must(t, d.stop())
	d = start()
	must(t, reaches6(own))
	must(t, reaches6(behind))
	if s := d.sessionOf(t, addr4); s.ID != began.ID || !slices.Equal(s.Delegated, began.Delegated) {
		t.Errorf("after a restart there is %+v", s)
	}
	awaitAddrOf(t, "intruder", "i0", netip.MustParsePrefix("2001:db8:1::/64"))
	refuses("intruder", "rival", "2001:db8:1::77 (Framed-IPv6-Address), which another client has")
	refuses("intruder", "invader", "2001:db8:6000:1::/64 (Framed-IPv6-Route), which another client has")

	out, _ := try(fmt.Sprintf("echo 'Framed-IPv6-Address = %s' | ip netns exec server radclient -x -r 2 -t 5 "+
		"192.0.2.1:3799 disconnect %q 2>&1", own, secret))
	if !strings.Contains(out, "Disconnect-ACK") {
		t.Errorf("a request is answered by\n%s", out)
	}
	awaitTold(t, told, "Stop", began.ID, route, "Framed-IPv6-Address = "+own.String())
	var now control.Session
	netnstest.Await(t, "the session's end", func() error {
		if now = d.sessionOf(t, addr4); now.State == session.Authenticated {
			return fmt.Errorf("it is %+v", now)
		}
		return nil
	})
	if len(now.Delegated) > 0 || !slices.Contains(now.Further, own) {
		t.Errorf("after its session the client is %+v", now)
	}
	isRouted(false)
	if _, err := try("ip netns exec client ping -6 -c 1 -W 1 -I " + behind.String() + " 2001:db8:9::2"); err == nil {
		t.Errorf("%s passes after the session", behind)
	}
	if code := loginFrom(t, "intruder", "invader"); code != "303" {
		t.Errorf("another user's login with the free network is answered by %s:\n%s", code, logs.String())
	}
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	_, err = c.Logout(t.Context(), control.LogoutRequest{User: "invader"})
	must(t, err)
	if code := loginFrom(t, "intruder", "rival"); code != "303" {
		t.Errorf("a login with the address of a client that is not logged in is answered by %s:\n%s", code, logs.String())
	}
	must(t, d.stop())
}

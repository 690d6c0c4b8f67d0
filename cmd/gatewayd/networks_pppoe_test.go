// A test of a network with PPPoE beside one without. newNetwork makes the host of a gateway with clients and a server,
// in namespaces (world_test.go); networkOf returns the table of a network for the configuration (networks_test.go);
// dial6 is a client of a PPPoE session with IPv4 and IPv6 (pppoe6_test.go).

package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// linesOf is the table of a network at lan0 with PPPoE. more is further lines of it.
func (w *world) linesOf(more string) string {
	return networkOf("lines", 0, fmt.Sprintf(`address6 = "%s/64"
%s
%s
[network.dhcp]
pools = ["10.1.0.10-10.1.0.99"]
[network.pppoe]
enabled = true
pools = ["10.1.0.100-10.1.0.199"]
ipv6 = true
echo_failures = 60
[network.auth]
methods = ["radius"]
[network.radius]
timeout = "500ms"
[network.radius.primary]
address = "127.0.0.1:1812"
acct_address = "127.0.0.1:1813"
secret = "%s"
`, gateway6, prefixes6, more, w.Secret))
}

// TestNetworkWithPPPoE: a subscriber of one network has IPv4 and IPv6 in a session, beside a client of another network
// that has DHCP and NAT. What each sends is counted for it. They do not reach each other. Both go on when the other
// network changes, when their own does, and when the daemon is killed and started again. Long: the steps of one run,
// each of which needs the state that the one before left.
func TestNetworkWithPPPoE(t *testing.T) {
	t.Parallel()
	netnstest.NeedTCX(t)
	w := newNetwork(t)
	w.plainTCP("server")
	w.enable6()
	w.auth, w.acct = w.radius("auth", 1812), w.radius("acct", 1813)
	lines, plain := w.linesOf(""), networkOf("plain", 1, "[network.nat]\nmasquerade = true")
	w.configureNetworks(true, lines, plain)
	b := w.addLAN(1)
	w.start()
	w.sh("nsenter --net=/run/netns/$ID-router ethtool -K wan0 gro on") // the gateway aggregates what it receives
	ann, line := w.dial6("ann")
	ann.sh("ip route add " + serverAddr.String() + " dev ppp0")
	b.lease()
	verbs, err := w.control()
	must(t, err)
	second, err := verbs.Login(context.Background(), control.LoginRequest{Addr: b.addr, User: "bob"})
	must(t, err)
	first, err := w.session("ann")
	must(t, err)
	if first.Network != "lines" || first.PPPoE == 0 || second.Network != "plain" || second.PPPoE != 0 {
		t.Fatalf("the sessions are %+v and %+v", first, second)
	}
	both := func(when string) {
		t.Helper()
		if !b.passes(true) {
			t.Errorf("%s: the client without PPPoE does not reach the server", when)
		}
		if _, err := ann.try("ping -c 1 -W 9 " + serverAddr.String()); err != nil {
			t.Errorf("%s: the subscriber does not reach the server by IPv4: %v", when, err)
		}
		if err := ann.ping6(ann.addr); err != nil {
			t.Errorf("%s: the subscriber does not reach the server by IPv6: %v", when, err)
		}
		if s, err := w.session("ann"); err != nil || s.ID != first.ID {
			t.Errorf("%s: the subscriber's session is %+v, %v, was %+v", when, s, err, first)
		}
		if s := b.session(); s.ID != second.ID {
			t.Errorf("%s: the other client's session is %+v, was %+v", when, s, second)
		}
	}
	both("after login")
	w.transferTo(ann, server6, 2_000_000)
	w.transfer(ann, 2_000_000)
	w.transfer(b, 2_000_000)
	others := b.session()
	before, err := w.session("ann")
	must(t, err)
	ann.sh("ping -q -c 10 -i 0.05 -s 100 " + serverAddr.String())
	ann.sh("ping -6 -q -c 10 -i 0.05 -s 100 -I " + ann.addr.String() + " " + server6)
	eventually(t, "the bytes of both families, for the subscriber alone", func() error {
		const sent = 10 * (128 + 148)
		now, err := w.session("ann")
		up, down := now.UpBytes-before.UpBytes, now.DownBytes-before.DownBytes
		if err == nil && (up != sent || down != sent) {
			err = fmt.Errorf("counted %d and %d of %d", up, down, sent)
		}
		if s := b.session(); err == nil && s.UpBytes+s.DownBytes > others.UpBytes+others.DownBytes+sent/2 { // a late FIN
			err = fmt.Errorf("the other client is billed %+v, was %+v", s.Traffic, others.Traffic)
		}
		return err
	})
	if _, err := ann.try("ping -c 2 -i 0.1 -W 0.2 " + b.addr.String()); err == nil {
		t.Error("the subscriber reaches the other network's client")
	}
	if _, err := b.try("ping -c 2 -i 0.1 -W 0.2 " + first.Addr.String()); err == nil {
		t.Error("the other network's client reaches the subscriber")
	}

	w.configureNetworks(true, lines, networkOf("plain", 1, "portal.title = \"x\"\n[network.nat]\nmasquerade = true"))
	w.reload("plain: changed")
	both("the other network changed")
	w.configureNetworks(true, w.linesOf("portal.title = \"x\""), networkOf("plain", 1,
		"portal.title = \"x\"\n[network.nat]\nmasquerade = true"))
	w.reload("lines: changed")
	both("the subscriber's network changed")
	w.kill()
	if !b.passes(true) || ann.ping6(ann.addr) != nil {
		t.Error("without the daemon a client is cut off")
	}
	w.start()
	both("the next daemon")
	line.hangUp()
	if reason := line.awaitEnd(); reason == nil {
		t.Error("the link ended without a reason")
	}
	w.acct.awaitAccounting("Stop", first.ID)
}

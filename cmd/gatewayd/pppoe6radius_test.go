// Tests of addresses, networks and pools of IPv6 that RADIUS gives the clients of PPPoE sessions. newLines6, dial6
// (pppoe6_test.go), asks6, refuses and countAtServer (pppoe6pd_test.go) make worlds with such clients.

package main

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/ppp"
)

// named6 are the settings beside [pppoe] where RADIUS names pools of prefixes.
const named6 = lines6 + "\n[dhcp6.prefix_pool]\nhomes = \"2001:db8:4000::/40\""

// TestSubscribersAddressesIPv6: FreeRADIUS gives a PPPoE client addresses, which DHCPv6 gives it in its session,
// networks behind it, and the pool of its delegated prefix. All of it is the session's: forwarded, counted and billed
// with it, taken up by a killed daemon's successor, told in accounting, found by requests, and free after its end. What
// cannot be given, and what another has, refuses the login; the same user's other device takes it over. Long: the steps
// of one run, each of which needs the state that the one before left.
func TestSubscribersAddressesIPv6(t *testing.T) {
	t.Parallel()
	w := newLines6(t, granted6, named6)
	for user, why := range map[string]string{
		"outsider":  "address 2001:db8:400::7 (Framed-IPv6-Address), which is not of lan.client_prefixes or lan.prefix_pool",
		"router":    "address 2001:db8:100:b:: (Framed-IPv6-Address), which all routers have",
		"annexer":   "2001:db8:100::/40 (Framed-IPv6-Route), which overlaps the LAN, 2001:db8:100::/48",
		"landlord":  "2001:db8:200:7::/64 (Framed-IPv6-Route), which overlaps dhcp6.pd_pool",
		"neighbour": "2001:db8:9:0:8000::/66 (Framed-IPv6-Route), which overlaps a network at an interface",
		"stray":     "the pool \\\"offices\\\" (Delegated-IPv6-Prefix-Pool), which dhcp6.prefix_pool does not have",
		"lodger":    "the pool \\\"silver\\\" (Stateful-IPv6-Address-Pool), which lan.prefix_pool does not have",
	} {
		w.refuses(user, why)
	}
	networks := []string{"2001:db8:100:a::/64", "2001:db8:100:b::/64", "2001:db8:5000::/48", "2001:db8:5001:1::/64"}
	count := w.countAtServer(append(networks, "2001:db8:4000::/40")...)
	c, line := w.dial6("house")
	one, err := w.session("house")
	must(t, err)
	if got := texts(one.Delegated); !slices.Equal(slices.Sorted(slices.Values(got)), networks) {
		t.Errorf("the session has %v, want %v", got, networks)
	}
	if told := c.sh("rdisc6 -1 ppp0"); !strings.Contains(told, "Stateful address conf.    :          Yes") {
		t.Errorf("it is not told to ask for an address:\n%s", told)
	}
	host := c.asksBoth6()
	if pool := netip.MustParsePrefix("2001:db8:4000::/40"); !pool.Contains(host) {
		t.Errorf("the host behind has %s", host)
	}
	leased := []string{"2001:db8:100:a::7", "2001:db8:100:b::7"}
	if got := c.leased6(); len(got) != 2 {
		t.Errorf("it has leased %v", got)
	}
	behind := []string{"2001:db8:5000:1234::1", "2001:db8:5001:1::1"}
	for _, addr := range behind {
		c.addLocal(netip.MustParseAddr(addr))
	}
	all := append(append(slices.Clone(leased), behind...), host.String())
	passes := func(when string) {
		t.Helper()
		for _, addr := range all {
			if err := c.ping6(netip.MustParseAddr(addr)); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	passes("at first")
	for _, addr := range all {
		c.sh("ping -6 -q -c 5 -i 0.05 -s 700 -I " + addr + " " + server6)
	}
	w.transferTo(c, server6, 200_000)
	routed := []string{"2001:db8:5000::/48 :: 1", "2001:db8:5001:1::/64 :: 1"}
	r := w.acct.awaitAccounting("Start", one.ID)
	if !slices.Equal(r["Framed-IPv6-Route"], routed) || !slices.Equal(r["Framed-IPv6-Prefix"], networks[:2]) {
		t.Errorf("its start is accounted as %v", r)
	}

	w.kill()
	passes("without a daemon")
	w.start()
	passes("after a restart")
	if now, err := w.session("house"); err != nil || now.ID != one.ID || len(now.Delegated) != len(networks)+1 {
		t.Errorf("after a restart the session is %+v, %v", now, err)
	}
	if routes := w.sh("ip -n $ID-router -6 route show proto 103"); !strings.Contains(routes, "2001:db8:5000::/48") ||
		!strings.Contains(routes, "2001:db8:5001:1::/64") {
		t.Errorf("the kernel has the routes\n%s", routes)
	}
	w.refuses("trespasser", "2001:db8:5000:7::/64 (Framed-IPv6-Route), which another client has")
	w.refuses("squatter", "another client has 2001:db8:100:b::/64")
	bob, _ := w.dial6("guest-bob")
	for _, addr := range []string{behind[0], leased[0]} {
		bob.addLocal(netip.MustParseAddr(addr).Next())
		w.refused(bob, netip.MustParseAddr(addr).Next())
	}
	const lost = "Session-Context-Not-Found"
	for attributes, want := range map[string]string{
		"Framed-IPv6-Address = 2001:db8:100:a::8, WISPr-Bandwidth-Max-Up = 6000000":       lost,
		"Framed-IPv6-Address = 2001:db8:100:b::7, WISPr-Bandwidth-Max-Up = 7000000":       "CoA-ACK",
		"Framed-IPv6-Address = 2001:db8:100:b::7, Delegated-IPv6-Prefix-Pool = \"homes\"": "Unsupported-Attribute",
		"Framed-IPv6-Address = 2001:db8:100:b::7, Idle-Timeout = 9, " +
			"Framed-IPv6-Route = \"2001:db8:5002::/48\"": "Unsupported-Attribute",
	} {
		if out := w.radclient("coa", w.Secret, attributes); !strings.Contains(out, want) {
			t.Errorf("%s is answered by\n%s", attributes, out)
		}
	}
	out := w.radclient("disconnect", w.Secret, "Framed-IPv6-Address = 2001:db8:100:b::7")
	if !strings.Contains(out, "Disconnect-ACK") {
		t.Errorf("answered by\n%s", out)
	}
	line.awaitEnd()
	r = w.acct.awaitAccounting("Stop", one.ID)
	if !slices.Equal(r["Framed-IPv6-Route"], routed) || !slices.Equal(r["Framed-IPv6-Prefix"], networks[:2]) ||
		len(r["Delegated-IPv6-Prefix"]) != 1 || !slices.Contains(r["Framed-IPv6-Address"], leased[0]) ||
		!slices.Contains(r["Framed-IPv6-Address"], leased[1]) {
		t.Errorf("its end is accounted as %v", r)
	}
	count.equals(r)
	for _, addr := range all {
		w.refused(c, netip.MustParseAddr(addr))
	}
	if routes := w.sh("ip -n $ID-router -6 route show proto 103"); strings.Contains(routes, "2001:db8:500") {
		t.Errorf("the kernel keeps the routes\n%s", routes)
	}

	first := w.addUnaddressed().subscriber(ppp.Config{User: "house", Password: "right", IPv6: true})
	_, err = first.dial()
	must(t, err)
	_, err = w.addUnaddressed().subscriber(ppp.Config{User: "house", Password: "right", IPv6: true}).dial()
	if err != nil {
		t.Errorf("the user's other device: %v\n%s", err, w.daemon.output())
	}
	first.awaitEnd()
}

// TestSubscribersAddressPool: FreeRADIUS names the pool of a PPPoE client's address, which DHCPv6 gives it out of its
// /64, also where a killed daemon's successor is asked for it.
func TestSubscribersAddressPool(t *testing.T) {
	t.Parallel()
	w := newLines6(t, granted6, named6)
	w.sh("nsenter --net=/run/netns/$ID-server ethtool -K s0 tx off") // see onLine
	c, _ := w.dialIn6("desk", "2001:db8:300::/48")
	w.kill()
	w.start()
	c.asksBoth6()
	leased := c.leased6()[0]
	if one, err := w.session("desk"); err != nil || len(one.Delegated) != 2 || !one.Delegated[0].Contains(leased) ||
		!slices.Contains(one.Further, leased) {
		t.Errorf("it has %s, and the session is %+v, %v", leased, one, err)
	}
	must(t, c.ping6(leased))
}

// leased6 waits until the client's session has addresses that the kernel did not make, and returns them. Those that it
// made have one interface identifier.
func (c *client) leased6() (all []netip.Addr) {
	c.w.t.Helper()
	eventually(c.w.t, "a leased address", func() error {
		out, err := c.try("ip -6 -o addr show dev ppp0 scope global -tentative")
		if all = nil; err != nil {
			return err
		}
		for word := range strings.FieldsSeq(out) {
			p, err := netip.ParsePrefix(word)
			if err == nil && !bytes.Equal(p.Addr().AsSlice()[8:], c.addr.AsSlice()[8:]) {
				all = append(all, p.Addr())
			}
		}
		if len(all) == 0 {
			return errors.New(out)
		}
		return nil
	})
	return all
}

// asksBoth6 is asks6 for a client that asks for addresses too. It waits until the kernel has one of them.
func (c *client) asksBoth6() (behind netip.Addr) {
	c.w.t.Helper()
	behind = c.asksFor6("send ia-na 2, ia-pd 1;", "id-assoc na 2 { };\n")
	c.leased6()
	return behind
}

// texts returns networks as text.
func texts(all []netip.Prefix) (out []string) {
	for _, p := range all {
		out = append(out, p.String())
	}
	return out
}

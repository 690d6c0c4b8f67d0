package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/ppp"
)

// The pool that sessions of these tests are delegated prefixes of, and the settings of [pppoe] and after it.
const (
	delegated6 = "2001:db8:200::/48"
	lines6     = "ipv6 = true\necho_failures = 60\n[dhcp6]\npd_pool = \"" + delegated6 + "\"\npd_length = 56"
)

// asks6 starts wide-dhcpv6's client in the client's session. It asks for a prefix, and gives a link to hosts behind the
// client an address of its second /64, which it returns.
func (c *client) asks6() (behind netip.Addr) {
	c.w.t.Helper()
	return c.asksFor6("send ia-pd 1;", "")
}

// asksFor6 is asks6 with what wide-dhcpv6's client sends, and associations beside that of the prefix.
func (c *client) asksFor6(sends, more string) (behind netip.Addr) {
	c.w.t.Helper()
	dir := filepath.Join(c.w.Dir, c.host+".dhcp6c")
	must(c.w.t, os.Mkdir(dir, 0o700))
	must(c.w.t, os.WriteFile(filepath.Join(dir, "conf"), []byte(`interface ppp0 { `+sends+` };
`+more+`id-assoc pd 1 { prefix-interface down0 { sla-id 1; sla-len 8; }; };
`), 0o600))
	if _, err := c.try("ip link show down0"); err != nil {
		c.sh("ip link add down0 type veth peer name down1")
		c.sh("ip link set down0 up")
		c.sh("ip link set down1 up")
	}
	c.w.spawnAt(c.host, c.host+".dhcp6c.log", "unshare", "-m", "sh", "-ec",
		`mkdir -p /var/lib/dhcpv6; mount --bind "$1" /var/lib/dhcpv6; mount --bind "$1" /run
exec dhcp6c -f -D -c "$1/conf" ppp0`, "sh", dir)
	return c.global6("down0")
}

// TestSubscribersDelegated: the client of a PPPoE session is delegated a network by DHCPv6. Its hosts are the
// session's: forwarded, counted and billed with it, and nobody else can send from their addresses. A killed daemon's
// successor takes it up. It ends with the session.
func TestSubscribersDelegated(t *testing.T) {
	t.Parallel()
	newLines6(t, prefixes6, lines6).delegatesNetworks(func(w *world) {
		if out := w.sh("ip -n $ID-router -6 route show proto 103"); strings.Count(
			out, "via fe80::6761:7465:7761:7964") != 2 || strings.Count(out, "\n") > 2 {
			t.Errorf("the kernel has other routes than those of the two pools:\n%s", out)
		}
	})
}

// delegatesNetworks is TestSubscribersDelegated on any data path. routed checks the kernel's routes. Long: the steps of
// one run, each of which needs the state that the one before left.
func (w *world) delegatesNetworks(routed func(*world)) {
	t := w.t
	t.Helper()
	ann, line := w.dial6("ann")
	host := ann.asks6()
	network := netip.PrefixFrom(host, 56).Masked()
	if !netip.MustParsePrefix(delegated6).Contains(host) {
		t.Fatalf("the host behind has %s", host)
	}
	one, err := w.session("ann")
	must(t, err)
	link := netip.PrefixFrom(ann.addr, 64).Masked()
	if !slices.Equal(one.Delegated, []netip.Prefix{link, network}) {
		t.Errorf("the session has %v, want %s and %s", one.Delegated, link, network)
	}
	must(t, ann.ping6(host))
	ann.sh("ping -6 -q -c 10 -i 0.05 -s 100 -I " + host.String() + " " + server6)
	const packets = 11
	eventually(t, "the bytes of the host behind", func() error {
		now, err := w.session("ann")
		if err == nil && (now.UpBytes < one.UpBytes+10*148+1 || now.DownBytes != one.DownBytes+10*148+104) {
			err = fmt.Errorf("counted %d and %d, then %d and %d of %d packets", one.UpBytes, one.DownBytes, now.UpBytes,
				now.DownBytes, packets)
		}
		return err
	})
	bob, _ := w.dial6("guest-bob")
	bob.addLocal(host.Next())
	w.refused(bob, host.Next())
	if theirs := bob.asks6(); network.Contains(theirs) {
		t.Errorf("two sessions have %s", network)
	}

	w.kill()
	must(t, ann.ping6(host))
	w.start()
	must(t, ann.ping6(host))
	if now, err := w.session("ann"); err != nil || now.ID != one.ID || !slices.Equal(now.Delegated, one.Delegated) {
		t.Errorf("after a restart the session is %+v, %v", now, err)
	}
	routed(w)
	r := w.acct.awaitAccounting("Interim-Update", one.ID)
	if !slices.Contains(r["Delegated-IPv6-Prefix"], network.String()) ||
		!slices.Equal(r["Framed-IPv6-Prefix"], []string{link.String()}) {
		t.Errorf("accounted as %v", r)
	}

	line.hangUp()
	line.awaitEnd()
	eventually(t, "the session's end", func() error { return w.gone("ann") })
	w.refused(ann, host)
	r = w.acct.awaitAccounting("Stop", one.ID)
	if !slices.Equal(r["Delegated-IPv6-Prefix"], []string{network.String()}) ||
		!slices.Equal(r["Framed-IPv6-Prefix"], []string{link.String()}) {
		t.Errorf("accounted as %v", r)
	}
	again := ann.subscriber(ppp.Config{User: "ann", Password: "right", IPv6: true})
	_, err = again.dial()
	must(t, err)
	two, err := w.session("ann")
	must(t, err)
	if !slices.Equal(two.Delegated, []netip.Prefix{link}) {
		t.Errorf("the device that dials again has %v, want %s", two.Delegated, link)
	}
}

// gone reports whether a user has no session.
func (w *world) gone(user string) error {
	if _, err := w.session(user); err == nil {
		return errors.New("it is there")
	}
	return nil
}

// addLocal gives the client's session an address without duplicate address detection. The kernel enters it into its
// routing a moment later, before which it takes no packet to it.
func (c *client) addLocal(addr netip.Addr) {
	c.w.t.Helper()
	c.sh("ip addr add " + addr.String() + "/128 dev ppp0 nodad")
	eventually(c.w.t, "the kernel of "+c.host+" to have "+addr.String(), func() error {
		out, err := c.try("ip -6 route show table local " + addr.String())
		if err == nil && out == "" {
			err = errors.New("not yet")
		}
		return err
	})
}

// TestFirstPacketOfAddress: all addresses of a session's /64 are the session's, without being learned: the first packet
// from each passes. Those of others' /64s, and of none, do not.
func TestFirstPacketOfAddress(t *testing.T) {
	t.Parallel()
	newLines6(t, prefixes6, "ipv6 = true\necho_failures = 60").firstPackets()
}

// firstPackets is TestFirstPacketOfAddress on any data path.
func (w *world) firstPackets() {
	t := w.t
	t.Helper()
	ann, _ := w.dial6("ann")
	must(t, ann.ping6(ann.addr))
	addr := netip.PrefixFrom(ann.addr, 64).Masked().Addr()
	before := w.received6()
	for range 20 { // more than a client's addresses that are learned
		addr = addr.Next()
		ann.addLocal(addr)
		must(t, ann.ping6(addr))
	}
	if now := w.received6(); now != before+20 {
		t.Errorf("%d echo requests reach the server, want 20", now-before)
	}
	bob, _ := w.dial6("guest-bob")
	outside := netip.MustParseAddr("2001:db8:100:ffff::1")
	if netip.PrefixFrom(outside, 64).Contains(ann.addr) {
		outside = netip.MustParseAddr("2001:db8:100:fffe::1") // if it is bob's, it is refused too
	}
	for c, addr := range map[*client]netip.Addr{bob: addr.Next(), ann: outside} {
		c.addLocal(addr)
		w.refused(c, addr)
	}
	st, err := w.status()
	must(t, err)
	if st.Packets["wrong-mac"] == 0 {
		t.Errorf("the data path has %v", st.Packets)
	}
}

// granted6 are the settings of [lan] where RADIUS gives prefixes of a pool.
const granted6 = prefixes6 + "\n[lan.prefix_pool]\ngold = \"2001:db8:300::/48\""

// TestSubscribersGrantedIPv6: FreeRADIUS gives a PPPoE client its /64s, the network that is delegated to it, its
// interface identifier, DNS servers and a route. Accounting has all of it, and octets as the server outside counts
// them. Requests find the session by it. What cannot be given, and what another has, refuses the login; the same user's
// other device takes it over.
func TestSubscribersGrantedIPv6(t *testing.T) {
	t.Parallel()
	newLines6(t, granted6, lines6).grants()
}

// grants is TestSubscribersGrantedIPv6 on any data path. Long: the steps of one run, each of which needs the state that
// the one before left.
func (w *world) grants() {
	t := w.t
	t.Helper()
	w.refuses("far", "2001:db8:8000::/56 (Delegated-IPv6-Prefix), which is not of dhcp6.pd_pool")
	w.refuses("silver", "the pool \\\"silver\\\" (Framed-IPv6-Pool), which lan.prefix_pool does not have")
	w.refuses("double", "(Framed-Interface-Id), which is the gateway's own")
	count := w.countAtServer("2001:db8:100:7::/64", "2001:db8:100:8::/64", "2001:db8:200:ab00::/56")
	c, line := w.dial6("six")
	one, err := w.session("six")
	must(t, err)
	if id := line.terms6().LocalID; id != [8]byte{7: 0x77} {
		t.Errorf("the client has the interface identifier %x", id)
	}
	if p := netip.PrefixFrom(c.addr, 64).Masked().String(); p != "2001:db8:100:7::/64" && p != "2001:db8:100:8::/64" {
		t.Errorf("the client has %s", c.addr)
	}
	host := c.asks6()
	if want := netip.MustParsePrefix("2001:db8:200:ab01::/64"); !want.Contains(host) {
		t.Errorf("the host behind has %s", host)
	}
	told := strings.Join(strings.Fields(c.sh("rdisc6 -1 ppp0")), " ")
	for _, want := range []string{"Recursive DNS server : 2001:db8:9::2", "Route : 2001:db8:a000::/36",
		"Prefix : 2001:db8:100:7::/64", "Prefix : 2001:db8:100:8::/64"} {
		if !strings.Contains(told, want) {
			t.Errorf("not advertised: %s\n%s", want, told)
		}
	}
	c.sh("ip route add " + serverAddr.String() + " dev ppp0")
	must(t, c.ping6(host))
	must(t, c.ping6(c.addr))
	c.sh("ping -q -c 5 -i 0.05 -s 700 " + serverAddr.String())
	c.sh("ping -6 -q -c 5 -i 0.05 -s 700 -I " + host.String() + " " + server6)
	w.transferTo(c, server6, 200_000)
	both := []string{"2001:db8:100:7::/64", "2001:db8:100:8::/64"}
	for kind, delegated := range map[string][]string{"Start": nil, "Interim-Update": {"2001:db8:200:ab00::/56"}} {
		r := w.acct.awaitAccounting(kind, one.ID)
		if !slices.Equal(r["Framed-IPv6-Prefix"], both) || !slices.Equal(r["Delegated-IPv6-Prefix"], delegated) ||
			r.value("Framed-Interface-Id") != "0:0:0:77" {
			t.Errorf("accounted as %v", r)
		}
	}

	w.kill()
	w.start()
	must(t, c.ping6(host))
	w.refuses("robber", "another client has 2001:db8:100:7::/64")
	w.refuses("raider", "which another client has: ")
	const lost = "Session-Context-Not-Found"
	for attributes, want := range map[string]string{
		"Framed-IPv6-Prefix = 2001:db8:100:9::/64, WISPr-Bandwidth-Max-Up = 6000000":                      lost,
		"Delegated-IPv6-Prefix = 2001:db8:200:ab00::/56, WISPr-Bandwidth-Max-Up = 7000000":                "CoA-ACK",
		"Framed-Interface-Id = 0:0:0:77, Framed-IPv6-Prefix = 2001:db8:100:8::/64, Session-Timeout = 999": "CoA-ACK",
	} {
		if out := w.radclient("coa", w.Secret, attributes); !strings.Contains(out, want) {
			t.Errorf("%s is answered by\n%s", attributes, out)
		}
	}
	if now, err := w.session("six"); err != nil || now.ID != one.ID || now.Limits.UpBps != 7_000_000 {
		t.Errorf("after a change there is %+v, %v", now, err)
	}
	if out := w.radclient("disconnect", w.Secret, "Framed-IPv6-Prefix = 2001:db8:100:7::/64"); !strings.Contains(
		out, "Disconnect-ACK") {
		t.Errorf("answered by\n%s", out)
	}
	r := w.acct.awaitAccounting("Stop", one.ID)
	if !slices.Equal(r["Framed-IPv6-Prefix"], both) || r.value("Delegated-IPv6-Prefix") != "2001:db8:200:ab00::/56" ||
		r.value("Framed-Interface-Id") != "0:0:0:77" || r.value("Acct-Terminate-Cause") != "Admin-Reset" {
		t.Errorf("accounted as %v", r)
	}
	count.equals(r)
	w.refused(c, host)

	first := w.addUnaddressed().subscriber(ppp.Config{User: "six", Password: "right", IPv6: true})
	_, err = first.dial()
	must(t, err)
	if _, err := w.addUnaddressed().subscriber(ppp.Config{User: "six", Password: "right", IPv6: true}).dial(); err != nil {
		t.Errorf("the user's other device: %v", err)
	}
	first.awaitEnd()
	gold, err := w.addUnaddressed().subscriber(ppp.Config{User: "gold", Password: "right", IPv6: true}).dial()
	must(t, err)
	two, err := w.session("gold")
	must(t, err)
	pool := netip.MustParsePrefix("2001:db8:300::/48")
	if len(two.Delegated) != 1 || !pool.Contains(two.Delegated[0].Addr()) {
		t.Errorf("%s has %v", gold.Local, two.Delegated)
	}
}

// refuses checks that a user's login is refused, and that the log says why.
func (w *world) refuses(user, why string) {
	w.t.Helper()
	_, err := w.addUnaddressed().subscriber(ppp.Config{User: user, Password: "right", IPv6: true}).dial()
	if !errors.Is(err, ppp.ErrRefused) || !strings.Contains(w.daemon.output(), why) {
		w.t.Errorf("%s: %v, and the log does not say %q:\n%s", user, err, why, w.daemon.output())
	}
}

// serverCount is what the server counts of a session.
type serverCount struct{ w *world }

// countAtServer has the server count the packets of all clients by IPv4, and of prefixes.
func (w *world) countAtServer(prefixes ...string) serverCount {
	w.t.Helper()
	from, to := "ip saddr 10.1.0.0/24 counter name up\n", "ip daddr 10.1.0.0/24 counter name down\n"
	for _, p := range prefixes {
		from += "ip6 saddr " + p + " counter name up\n"
		to += "ip6 daddr " + p + " counter name down\n"
	}
	w.sh(`at() { nsenter --net=/run/netns/$ID-server "$@"; }
at ethtool -K s0 tso off gso off gro off; at ip link set s0 gso_max_segs 1 # packets as they are on the wire
at nft -f - <<'END'
table inet counted {
counter up { }
counter down { }
chain in { type filter hook input priority -300
` + from + `}
chain out { type filter hook output priority 300
` + to + `}
}
END`)
	return serverCount{w}
}

// equals checks that accounting has what the server counted, within one packet.
func (s serverCount) equals(r record) {
	t, of := s.w.t, func(name string) (packets, bytes uint64) {
		out := s.w.sh("nsenter --net=/run/netns/$ID-server nft list counter inet counted " + name)
		_, err := fmt.Sscanf(out[strings.Index(out, "packets"):], "packets %d bytes %d", &packets, &bytes)
		must(s.w.t, err)
		return packets, bytes
	}
	t.Helper()
	var up, down control.Traffic
	up.UpPackets, up.UpBytes = of("up")
	down.DownPackets, down.DownBytes = of("down")
	got := r.counts()
	near := func(got, want, most uint64) bool { return got >= want && got <= want+most }
	if !near(got.UpPackets, up.UpPackets, 1) || !near(got.UpBytes, up.UpBytes, 1500) || up.UpBytes < 200_000 ||
		!near(got.DownPackets, down.DownPackets, 1) || !near(got.DownBytes, down.DownBytes, 1500) {
		t.Errorf("accounted %+v; the server has %+v and %+v", got, up, down)
	}
	t.Logf("accounted %+v; the server has %d and %d bytes", got, up.UpBytes, down.DownBytes)
}

// TestSessionsTakeUpIPv6: sessions of a daemon without pppoe.ipv6 have a /64 once a daemon has it, and none once it has
// it no longer.
func TestSessionsTakeUpIPv6(t *testing.T) {
	t.Parallel()
	w := newLines6(t, prefixes6, "echo_failures = 60")
	_, err := w.addUnaddressed().subscriber(ppp.Config{User: "ann", Password: "right", IPv6: true}).dial()
	must(t, err)
	one, err := w.session("ann")
	must(t, err)
	for _, step := range []struct {
		settings string
		prefixes int
	}{{"echo_failures = 60", 0}, {"ipv6 = true\necho_failures = 60", 1}, {"ipv6 = true\necho_failures = 60", 1},
		{"echo_failures = 60", 0}} {
		w.kill()
		w.Lines = step.settings
		w.write("radius/gatewayd.toml", "gatewayd.toml", w)
		w.start()
		now, err := w.session("ann")
		must(t, err)
		if now.ID != one.ID || len(now.Delegated) != step.prefixes {
			t.Errorf("with %q the session is %+v", step.settings, now)
		}
	}
}

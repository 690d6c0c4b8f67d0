package routeradv

import (
	"net/netip"
	"testing"
	"time"
)

// TestKernelConfiguresItself: the kernel takes addresses, routes, MTU and times from the advertisement.
func TestKernelConfiguresItself(t *testing.T) {
	l := newLAN(t, 1)
	c := l.clients[0]
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	cfg.All.Preference, cfg.All.HopLimit, cfg.All.MTU = High, 61, 1400
	cfg.All.Reachable, cfg.All.Retransmit = 31*time.Second, 1500*time.Millisecond
	cfg.All.Routes = []Route{
		{Prefix: netip.MustParsePrefix("2001:db8:ff00::/40"), Preference: Low, Lifetime: time.Hour}}
	s := start(t, cfg)
	c.Set(t, "ipv6/conf/c0/use_tempaddr", "2")
	c.Run(t, "[ ! -e /proc/sys/net/ipv6/conf/c0/accept_ra_rt_info_max_plen ] || "+
		"echo 64 >/proc/sys/net/ipv6/conf/c0/accept_ra_rt_info_max_plen")
	c.up()
	c.shows("ip -o -6 addr show dev c0", "2001:db8:1::ff:fe00:10/64", "mngtmpaddr", "!tentative")
	c.shows("ip -o -6 addr show dev c0", "2001:db8:1:", "temporary", "!tentative")
	c.shows("ip -o -6 addr show dev c0", "2001:db8:1::ff:fe00:10/64", "valid_lft 143", "preferred_lft 35")
	c.shows("ip -6 route show dev c0 default", "via fe80::1", "pref high", "mtu 1400", "hoplimit 61")
	c.shows("ip -6 route show dev c0", "2001:db8:1::/64 proto kernel")
	c.shows("cat /proc/sys/net/ipv6/conf/c0/mtu", "1400")
	c.shows("cat /proc/sys/net/ipv6/neigh/c0/base_reachable_time_ms", "31000")
	c.shows("cat /proc/sys/net/ipv6/neigh/c0/retrans_time_ms", "1500")
	if _, err := c.Try("[ -e /proc/sys/net/ipv6/conf/c0/accept_ra_rt_info_max_plen ]"); err == nil {
		c.shows("ip -6 route show dev c0 2001:db8:ff00::/40", "via fe80::1", "pref low")
	}
	if st := s.Stats(); st.Rogue != 0 || st.Malformed != 0 || st.SendErrors != 0 {
		t.Errorf("%+v", st)
	}
}

// TestUpdateDeprecates: a prefix that is replaced is deprecated at once, and the new one works beside it.
func TestUpdateDeprecates(t *testing.T) {
	c := newLAN(t, 1).clients[0]
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	s := start(t, cfg)
	c.up()

	c.shows(addrs, "2001:db8:1:", "!deprecated", "!tentative")
	wrong := func(a *Advertisement) { a.Prefixes[0].Preferred = 5 * time.Hour }
	if err := s.Update(wrong); err == nil {
		t.Error("a prefix is preferred for longer than it is valid")
	}
	w := c.wire()
	err := s.Update(func(a *Advertisement) { a.Prefixes[0].Prefix = netip.MustParsePrefix("2001:db8:2::/64") })
	if err != nil {
		t.Fatal(err)
	}
	c.shows(addrs, "2001:db8:1:", "deprecated", "valid_lft 7", "preferred_lft 0sec") // two hours
	c.shows(addrs, "2001:db8:2:", "!deprecated", "!tentative")
	for got := w.await(); ; got = w.await() {
		if old, ok := got.prefixes()["2001:db8:1::/64"]; ok && old[0] == 0 {
			if len(got.prefixes()) != 2 || old[1] > 7200 || old[1] < 7000 || got.to != groupMAC(allNodes.As16()) {
				t.Errorf("%+v", got)
			}
			break
		}
	}
	// What has come back is preferred again.
	err = s.Update(func(a *Advertisement) { a.Prefixes[0].Prefix = netip.MustParsePrefix("2001:db8:1::/64") })
	if err != nil {
		t.Fatal(err)
	}
	c.shows(addrs, "2001:db8:1:", "!deprecated")
	c.shows(addrs, "2001:db8:2:", "deprecated")
}

// TestCloseEndsTheRouter: hosts lose their default route, and keep their addresses.
func TestCloseEndsTheRouter(t *testing.T) {
	c := newLAN(t, 1).clients[0]
	cfg := config()
	cfg.All = slaac("2001:db8:1::/64")
	s := start(t, cfg)
	c.up()
	c.shows("ip -6 route show dev c0 default", "via fe80::1")
	c.shows("ip -o -6 addr show dev c0", "2001:db8:1:", "!tentative")
	w := c.wire()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.shows(`echo "routes: $(ip -6 route show dev c0 default)."`, "routes: .")
	c.shows("ip -o -6 addr show dev c0", "2001:db8:1:", "!deprecated")
	for w.await().message.RouterLifetime != 0 {
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

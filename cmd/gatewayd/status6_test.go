// Tests of what gatewayd status and sessions print of IPv6 and of several networks. must fails the test on an error.

package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// TestStatusOfIPv6: gatewayd status says how many IPv6 addresses clients have, how they got them, and how long the
// provider's prefixes are valid.
func TestStatusOfIPv6(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var b strings.Builder
	writeStatus(&b, control.Status{Since: now, IPv6: &control.IPv6{
		Addresses: 7, Clients: 1, Contests: 2, Leases: map[string]int{"registered": 3, "prefix": 0},
		Delegated: []control.DelegatedPrefix{
			{Prefix: netip.MustParsePrefix("2001:db8:a::/56"), PreferredUntil: now.Add(time.Hour),
				ValidUntil: now.Add(2 * time.Hour)},
			{Prefix: netip.MustParsePrefix("2001:db8:b::/56"), PreferredUntil: now.Add(-time.Hour),
				ValidUntil: now.Add(time.Hour)},
		}, Delegation: "the provider does not answer",
	}, RouterAdv: map[string]uint64{"rogue": 5}}, now)
	for _, want := range []string{
		"ipv6        7 addresses of 1 device, 2 contested, 3 by DHCPv6 (registered)\n",
		"delegated   2001:db8:a::/56, in use for 1h00m, valid for 2h00m\n",
		"delegated   2001:db8:b::/56, is replaced, valid for 1h00m\n",
		"delegated   the provider does not answer\n", "routers     rogue                           5\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestSessionsShowAllAddresses: in gatewayd sessions a client's IPv6 addresses follow its row.
func TestSessionsShowAllAddresses(t *testing.T) {
	var b strings.Builder
	show := tableWriter(&b, time.Now(), nil)
	further := []netip.Addr{netip.MustParseAddr("2001:db8:1::7e3b"), netip.MustParseAddr("fe80::1")}
	must(t, show(control.Session{Addr: netip.MustParseAddr("10.1.0.9"), Further: further, User: "ann"}))
	must(t, show(control.Session{Addr: netip.MustParseAddr("10.1.0.10")}))
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 6 || !strings.HasPrefix(lines[1], "10.1.0.9 ") || lines[2] != "  2001:db8:1::7e3b" ||
		lines[3] != "  fe80::1" || !strings.HasPrefix(lines[4], "10.1.0.10 ") {
		t.Errorf("shown is\n%s", b.String())
	}
}

// TestSessionsOfNetworks: where gatewayd has several networks, a client's row begins with its network, and the lines
// below it are indented by the width of that column.
func TestSessionsOfNetworks(t *testing.T) {
	var b strings.Builder
	must(t, tableWriter(&b, time.Now(), nil)(control.Session{Network: "guests", Addr: netip.MustParseAddr("10.1.0.9"),
		Further:   []netip.Addr{netip.MustParseAddr("2001:db8:1::9")},
		Delegated: []netip.Prefix{netip.MustParsePrefix("2001:db8:200::/64")}}))
	lines := strings.Split(b.String(), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "NETWORK          ADDRESS ") ||
		!strings.HasPrefix(lines[1], "guests           10.1.0.9 ") ||
		lines[2] != strings.Repeat(" ", 19)+"2001:db8:1::9" || lines[3] != strings.Repeat(" ", 19)+"2001:db8:200::/64" {
		t.Errorf("shown is\n%s", b.String())
	}
}

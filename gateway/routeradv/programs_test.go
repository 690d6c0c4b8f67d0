package routeradv

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// everything has all that an advertisement can say.
func everything() Advertisement {
	return Advertisement{
		RouterLifetime: 1800 * time.Second, Preference: High, HopLimit: 61, Managed: true, Other: true,
		Reachable: 30 * time.Second, Retransmit: 1500 * time.Millisecond, MTU: 1400,
		Prefixes: []Prefix{
			{Prefix: netip.MustParsePrefix("2001:db8:1::/64"), Preferred: time.Hour, Valid: 4 * time.Hour, OnLink: true,
				Autonomous: true},
			{Prefix: netip.MustParsePrefix("2001:db8:2::/56"), Preferred: 2 * time.Hour, Valid: Infinity, Delegates: true},
		},
		Routes: []Route{{Prefix: netip.MustParsePrefix("2001:db8:ff00::/40"), Preference: Low, Lifetime: time.Hour},
			{Prefix: netip.MustParsePrefix("2001:db8:fe00::1/128"), Preference: High}},
		DNSServers:        []netip.Addr{netip.MustParseAddr("2001:db8:1::53"), netip.MustParseAddr("fe80::1")},
		SearchDomains:     []string{"guests.example.", "example.net"},
		DNSLifetime:       1200 * time.Second,
		CaptivePortal:     "https://portal.example/api",
		NAT64Prefix:       netip.MustParsePrefix("64:ff9b::/96"),
		NAT64PrefixExpiry: 601 * time.Second,
	}
}

// TestProgramsRead: rdisc6 and tcpdump decode the advertisement. They show the bytes of options that they do not know
// (captive portal, NAT64 prefix), and of the flag P: 0x10 behind the length 0x38.
func TestProgramsRead(t *testing.T) {
	c := newLAN(t, 1).clients[0]
	c.up()
	cfg := config()
	cfg.All = everything()
	start(t, cfg)
	c.shows("ip -o -6 addr show dev c0", "fe80::", "!tentative")
	out := c.Run(t, `cd $dir; tcpdump -c 1 -vvv -n --immediate-mode -i c0 "icmp6[0]==134" >out 2>err & tcpdump=$!
until grep -q "^tcpdump: listening" err; do sleep 0.01; done
rdisc6 -1 c0 | sed -E 's/ +/ /g'; wait $tcpdump; sed -E 's/ +/ /g' out`, "dir="+t.TempDir())
	for _, text := range strings.Split(strings.TrimSpace(decoded), "\n") {
		if !strings.Contains(out, strings.ReplaceAll(text, `\n`, "\n")) {
			t.Errorf("%q is missing", text)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// decoded are lines that rdisc6 1.0.5 and tcpdump 4.99 write.
const decoded = `
Hop limit : 61 (
Stateful address conf. : Yes
Stateful other conf. : Yes
Router preference : high
Router lifetime : 1800 (
Reachable time : 30000 (
Retransmit time : 1500 (
Source link-layer address: 02:00:00:00:00:01
MTU : 1400 bytes (valid)
Prefix : 2001:db8:1::/64\n On-link : Yes\n Autonomous address conf.: Yes\n Valid time : 14400
Pref. time : 3600
Prefix : 2001:db8:2::/56\n On-link : No\n Autonomous address conf.: No\n Valid time : infinite
Route : 2001:db8:ff00::/40\n Route preference : low\n Route lifetime : 3600
Route : 2001:db8:fe00::1/128\n Route preference : high\n Route lifetime : 0
Recursive DNS server : 2001:db8:1::53\n Recursive DNS server : fe80::1\n DNS servers lifetime : 1200
DNS search list : guests.example example.net
DNS search list lifetime: 1200
from fe80::1
hlim 255, next-header ICMPv6
[icmp6 sum ok]
0x0000: 3810 ffff ffff 0000 1c20
unknown option (37), length 32 (4):
0x0000: 6874 7470 733a 2f2f 706f 7274 616c 2e65
0x0010: 7861 6d70 6c65 2f61 7069 0000 0000
unknown option (38), length 16 (2):
0x0000: 0260 0064 ff9b 0000 0000 0000 0000
`

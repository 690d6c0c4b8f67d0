// Tests of ReadVariance for IPv6. apply makes a table of nftables from a short notation (constant_test.go).

package stack

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestVarying6: for IPv6 too, ReadVariance names a rule that decides packet by packet about packets of established
// connections (TestVarying explains the cases). Rules of inet tables apply to both families, except rules about IPv4
// headers: these decide nothing about IPv6, so no reason is expected. Nor is one expected
// of rules about ICMPv6, because the flows are TCP's and UDP's.
func TestVarying6(t *testing.T) {
	at := crossing(t)
	const forward = "chain forward { type filter hook forward priority 0; policy drop; %; }"
	for _, c := range []struct{ chains, reason string }{
		{forward + "ct state established,related accept; limit rate 1/second accept", ""},
		{forward + "meta nfproto ipv4 limit rate 1/second accept; accept", ""},
		{forward + "meta nfproto ipv6 limit rate 1/second accept; accept", "limit"},
		{forward + "meta protocol ip limit rate 1/second accept; accept", ""},
		{forward + "ip ttl < 5 drop; accept", ""},
		{forward + "ip saddr 10.1.0.10 log; accept", ""},
		{forward + "ip6 saddr 2001:db8:1::/64 counter accept", ""},
		{forward + "ip6 saddr 2001:db8:1::10 log; accept", "logs"},
		{forward + "ip6 nexthdr icmpv6 log; accept", ""},
		{forward + "icmpv6 type echo-request limit rate 1/second accept; accept", ""},
		{forward + "ip6 dscp cs1 drop; accept", ""},
		{forward + "ip6 flowlabel 22 drop; accept", ""},
		{forward + "ip6 ecn ce drop; accept", "ecn"},
		{forward + "ip6 hoplimit < 5 drop; accept", "hop limit"},
		{forward + "ip6 length > 1000 drop; accept", "ip6 length"},
		{forward + "exthdr frag exists drop; accept", "options in headers"},
		{forward + "ip6 daddr . tcp dport vmap { 2001:db8:9::2 . 80 : accept }", ""},
		{forward + "ip6 dscp set cs1 accept", "changes packets"},
		{"set s { type ipv6_addr; timeout 1m; }|" + forward + "ip6 saddr @s accept", "come and go"},
		{"set s { type ipv6_addr; flags interval; elements = { 2001:db8:1::/64 } }|" + forward + "ip6 saddr @s accept", ""},
	} {
		apply(t, c.chains)
		v, err := ReadVariance(unix.NFPROTO_IPV6, noOwnTables, at)
		if reason := v.Established; err != nil || (c.reason == "") != (reason == "") || !strings.Contains(reason, c.reason) {
			t.Errorf("%s\n%q, %v; want %q", c.chains, reason, err, c.reason)
		}
		sh(t, "nft flush ruleset")
	}
	// The rules of iptables are for IPv4, those of ip6tables for IPv6.
	for script, message := range map[string]string{
		"iptables -A FORWARD -m limit --limit 1/s -j ACCEPT":                                             "",
		"ip6tables -A FORWARD -m limit --limit 1/s -j ACCEPT":                                            "limit",
		"ip6tables -A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT; ip6tables -A FORWARD -j LOG": "",
		"ip6tables -A FORWARD -p ipv6-icmp -m limit -j ACCEPT; ip6tables -A FORWARD -j REJECT":           "",
		"ip6tables -A FORWARD -p tcp --dport 22 -j REJECT --reject-with tcp-reset":                       "",
		"ip6tables -A FORWARD -m hl --hl-lt 5 -j DROP":                                                   "hl",
	} {
		sh(t, script)
		v, err := ReadVariance(unix.NFPROTO_IPV6, noOwnTables, at)
		if reason := v.Established; err != nil || (message == "") != (reason == "") || !strings.Contains(reason, message) {
			t.Errorf("%s\n%q, %v; want %q", script, reason, err, message)
		}
		sh(t, "nft flush ruleset")
	}
}

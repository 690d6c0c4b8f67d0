package stack

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The tests of ReadVariance: which rules of netfilter can decide differently about packets of one flow. Each case is
// the chains of one table, in the notation of apply, and part of the reason that ReadVariance must give. An empty
// reason: no rule can, because each decides by what is the same for all packets of the flow, or such packets do not
// meet it.

// TestVarying: the reason names a rule that decides packet by packet about packets of established connections. Long:
// most lines are the table of cases.
func TestVarying(t *testing.T) {
	at := crossing(t)
	const forward = "chain forward { type filter hook forward priority 0; policy drop; %; }"
	for _, c := range []struct{ chains, reason string }{
		{"chain out { type nat hook postrouting priority 100; oifname wan0 masquerade random; limit rate 1/second accept; }",
			""},
		{"chain in { type filter hook input priority 0; limit rate 1/second accept; }", ""},
		{forward + "ct state established,related accept; limit rate 1/second accept", ""},
		{forward + "ct state vmap { established : accept, related : accept, invalid : drop }; log", ""},
		{forward + "ct state vmap { invalid : drop, new : jump fresh }; accept; }|chain fresh { limit rate 1/second accept",
			""},
		{forward + "ct state vmap { invalid : drop, established : jump old }; accept; }|chain old { limit rate 1/second " +
			"accept", "limit"},
		{forward + "ct state new limit rate 1/second accept; accept", ""},
		{forward + "meta l4proto icmp limit rate 1/second accept; accept", ""},
		{forward + "ip protocol { icmp, igmp } limit rate 1/second accept; accept", ""},
		{forward + "ip protocol { icmp, udp } limit rate 1/second accept; accept", "limit"},
		{forward + "iifname other limit rate 1/second accept; accept", ""},
		{forward + "iifname wan0 oifname lan0 limit rate 1/second accept; accept", "limit"},
		{forward + "iif lan0 oif lan0 limit rate 1/second accept; accept", ""},
		{forward + "tcp flags syn / syn,rst limit rate 1/second accept; accept", ""},
		{forward + "tcp flags syn tcp option maxseg size set rt mtu; accept", ""},
		{forward + "tcp flags & psh == psh accept", "tcp flags"},
		{forward + "tcp dport { 22, 80 } ip saddr 10.1.0.0/24 counter accept", ""},
		{forward + "tcp dport 80-90 ct mark 7 meta mark set ct mark accept", ""},
		{forward + "ct mark set 5 ct mark 7 accept", ""},
		{forward + "ct label set 5 accept", "changes connections"},
		{forward + "tcp dport vmap { 22 : accept, 80 : jump web }; }|chain web { quota 1000 bytes accept", "quota"},
		{forward + "accept; limit rate 1/second accept", ""},
		{forward + "jump sub; }|chain sub { ct state established accept; log", ""},
		{forward + "tcp dport 80 jump sub; log; }|chain sub { ct state established accept", "logs"},
		{forward + "goto sub; log; }|chain sub { return", ""},
		{forward + "meta length > 1000 drop; accept", "meta length"},
		{forward + "ip length > 1000 drop; accept", "ip length"},
		{forward + "ip ttl < 5 drop; accept", "ip ttl"},
		{forward + "ip dscp cs1 drop; accept", ""},
		{forward + "ip ecn ce drop; accept", "ecn"},
		{forward + "ip frag-off & 0x1fff != 0 drop; accept", ""},
		{forward + "ip dscp set cs1 accept", "changes packets"},
		{forward + "meta mark set numgen inc mod 2; accept", "numgen"},
		{forward + "meta mark set jhash ip saddr mod 2; accept", ""},
		{forward + "@th,64,8 7 accept", "transport header"},
		{forward + "ct bytes > 1000 drop; accept", "ct bytes"},
		{forward + "ct count over 5 drop; accept", "ct count"},
		{forward + "meta hour 08:00-17:00 accept", "meta hour"},
		{"set s { type ipv4_addr; timeout 1m; }|" + forward + "ip saddr @s accept", "come and go"},
		{"set s { type ipv4_addr; }|" + forward + "ip saddr @s accept", ""},
		{"set s { type ipv4_addr; flags dynamic; }|" + forward + "add @s { ip saddr }; accept", "adds to a set"},
		{"chain raw { type filter hook prerouting priority -300; ct state established limit rate 1/second drop; }", ""},
		{"chain raw { type filter hook prerouting priority -300; oifname lan0 limit rate 1/second drop; }", ""},
		{"chain raw { type filter hook prerouting priority -150; ct state established limit rate 1/second drop; }", "limit"},
		{"chain e { type filter hook egress device wan0 priority 0; limit rate 1/second accept; }", ""},
		{"chain i { type filter hook ingress device wan0 priority 0; tcp dport 22 drop; }", ""},
		{"chain i { type filter hook ingress device wan0 priority 0; udp dport 53 limit rate 1/second accept; }", "limit"},
		{"chain i { type filter hook ingress device other priority 0; limit rate 1/second accept; }", ""},
	} {
		apply(t, c.chains)
		v, err := ReadVariance(unix.NFPROTO_IPV4, noOwnTables, at)
		if reason := v.Established; err != nil || (c.reason == "") != (reason == "") ||
			!strings.Contains(reason, c.reason) {
			t.Errorf("%s\n%q, %v; want %q", c.chains, reason, err, c.reason)
		}
		sh(t, "nft flush ruleset")
	}
}

// TestMarks: rules that set the mark of an established connection are told from rules that only read marks, and from
// rules of chains that see a connection's first packet only.
func TestMarks(t *testing.T) {
	at := crossing(t)
	for script, marks := range map[string]bool{
		"nft add table t; nft add chain t f '{ type filter hook forward priority 0; }'; nft add rule t f ct mark 5 meta " +
			"mark set ct mark": false,
		// All packets of a flow that nobody answers are new to netfilter.
		"nft add table t; nft add chain t f '{ type filter hook forward priority 0; }'; nft add rule t f ct state new ct " +
			"mark set 5": true,
		"nft add table t; nft add chain t f '{ type filter hook forward priority 0; }'; nft add rule t f oifname other0 ct " +
			"mark set 5": false,
		"nft add table t; nft add chain t f '{ type filter hook forward priority 0; }'; nft add rule t f ct mark set 5": true,
		"nft add table t; nft add chain t f '{ type filter hook forward priority 0; }'; nft add chain t s; nft add rule t " +
			"f jump s; nft add rule t s ct mark set 5": true,
		"nft add table t; nft add chain t n '{ type nat hook postrouting priority 100; }'; nft add rule t n ct mark set 5": false,
		"iptables -t mangle -A FORWARD -j CONNMARK --set-mark 5":                                                           true,
		"iptables -t mangle -A FORWARD -j MARK --set-mark 5":                                                               false,
	} {
		sh(t, script)
		if v, err := ReadVariance(unix.NFPROTO_IPV4, noOwnTables, at); err != nil || v.Established != "" || v.Marks != marks {
			t.Errorf("%s\n%+v, %v; want marks %v", script, v, err, marks)
		}
		sh(t, "nft flush ruleset")
	}
}

// TestVaryingUnanswered: packets of UDP flows to which nothing is answered meet the rules for new connections.
func TestVaryingUnanswered(t *testing.T) {
	at := crossing(t)
	const forward = "chain forward { type filter hook forward priority 0; policy drop; %; }"
	for _, c := range []struct{ chains, reason string }{
		{forward + "ct state established,related accept; limit rate 1/second accept", "limit"},
		{forward + "ct state established,related accept; iifname lan0 accept; ct status dnat accept", ""},
		{forward + "ct state new log prefix new; accept", "logs"},
		{forward + "ct state new tcp dport 22 log; accept", ""},
		{forward + "ct state established limit rate 1/second accept; accept", ""},
		{forward + "ct state vmap { established : accept, new : jump fresh }; }|chain fresh { quota 1000 bytes accept",
			"quota"},
		{"chain raw { type filter hook prerouting priority -300; ct state new limit rate 1/second drop; }", ""},
		{"chain out { type nat hook postrouting priority 100; limit rate 1/second accept; }", ""},
	} {
		apply(t, c.chains)
		v, err := ReadVariance(unix.NFPROTO_IPV4, noOwnTables, at)
		if reason := v.Unanswered; err != nil || (c.reason == "") != (reason == "") || !strings.Contains(reason, c.reason) {
			t.Errorf("%s\n%q, %v; want %q", c.chains, reason, err, c.reason)
		}
		sh(t, "nft flush ruleset")
	}
	for script, message := range map[string]string{
		"iptables -A FORWARD -m conntrack --ctstate NEW -m limit --limit 1/s -j ACCEPT": "limit",
		"iptables -A FORWARD -m state --state ESTABLISHED -m limit -j ACCEPT":           "",
	} {
		sh(t, script)
		v, err := ReadVariance(unix.NFPROTO_IPV4, noOwnTables, at)
		if reason := v.Unanswered; err != nil || (message == "") != (reason == "") || !strings.Contains(reason, message) {
			t.Errorf("%s\n%q, %v; want %q", script, reason, err, message)
		}
		sh(t, "nft flush ruleset")
	}
}

// noOwnTables has ReadVariance judge all tables.
func noOwnTables(uint8, string) bool { return false }

// crossing is from lan0 to wan0.
func crossing(t *testing.T) Crossing {
	t.Helper()
	index := func(name string) int {
		dev, err := net.InterfaceByName(name)
		must(t, err)
		return dev.Index
	}
	return Crossing{LAN: "lan0", WAN: "wan0", LANIndex: index("lan0"), WANIndex: index("wan0")}
}

// apply makes a table with chains and sets, which are written as one line: what follows "%; }" comes in the place of
// "%", and "|" begins another chain. A first chain with the name e makes it a table of family netdev.
func apply(t *testing.T, chains string) {
	t.Helper()
	family, script := "inet", chains
	if strings.HasPrefix(script, "chain e ") {
		family = "netdev"
	}
	if head, rules, found := strings.Cut(script, "%; }"); found {
		script = head + rules + "; }"
	}
	script = strings.NewReplacer("; }|", "\n}\n", "; }", "\n}", "|", "\n").Replace(script)
	sh(t, "nft 'table "+family+" v { "+script+"\n}'")
}

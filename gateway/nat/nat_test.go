// Tests of the nftables table of address translation. config is a configuration, open puts its table in place in a
// namespace of the test, and ranges parses ranges of addresses.

package nat

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// must fails the test on an error.
var must = netnstest.Must

// ranges parses ranges of addresses: "first-last", or one address.
func ranges(texts ...string) (out []Range) {
	for _, text := range texts {
		first, last, several := strings.Cut(text, "-")
		if !several {
			last = first
		}
		out = append(out, Range{netip.MustParseAddr(first), netip.MustParseAddr(last)})
	}
	return out
}

// config is of a LAN with two forwards and an exception.
func config(change func(*Config)) Config {
	c := Config{
		LAN: "lan0", WAN: "wan0", Name: Table("lan0"), Network: netip.MustParsePrefix("10.1.0.0/24"), Hairpin: true,
		Exceptions: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("198.51.100.9/32")},
		Forwards: []Forward{
			{unix.IPPROTO_TCP, 8080, 8080, netip.MustParseAddr("10.1.0.5"), 80},
			{unix.IPPROTO_UDP, 5000, 5010, netip.MustParseAddr("10.1.0.6"), 0},
		},
		Log: slog.New(slog.DiscardHandler),
	}
	change(&c)
	return c
}

// open puts a table in place, in a namespace of the test.
func open(t *testing.T, c Config) (*NAT, *netnstest.Space) {
	t.Helper()
	s := netnstest.NewSpace(t)
	var n *NAT
	var err error
	s.Do(func() { n, err = Open(c) })
	must(t, err)
	t.Cleanup(func() { n.Close() })
	return n, s
}

// TestRulesAreWhatNftReads compares the rules with nft's output. Long: most lines are the table of cases.
func TestRulesAreWhatNftReads(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"masquerade": {func(*Config) {}, []string{
			`iifname "wan0" ct state ! established,related ip daddr 10.1.0.0/24 ct status ! dnat drop`,
			`oifname "wan0" ip saddr 10.1.0.0/24 ip daddr != 192.168.0.0/16 ip daddr != 198.51.100.9 drop`,
			"type nat hook prerouting priority dstnat; policy accept;",
			`iifname "wan0" tcp dport 8080 tcp flags syn / fin,syn,rst,ack ip daddr != 10.1.0.0/24 fib daddr type local dnat to 10.1.0.5:80`,
			`iifname "lan0" tcp dport 8080 tcp flags syn / fin,syn,rst,ack ip daddr != 10.1.0.0/24`,
			`iifname "lan0" udp dport 5000`,
			"udp dport 5000-5010 ip daddr != 10.1.0.0/24 fib daddr type local dnat to 10.1.0.6\n",
			"type nat hook postrouting priority srcnat; policy accept;",
			`oifname "lan0" ip saddr 10.1.0.0/24 ct status dnat snat to ct original ip daddr`,
			`oifname "wan0" ip saddr 10.1.0.0/24 ip daddr 192.168.0.0/16 accept`,
			`oifname "wan0" ip saddr 10.1.0.0/24 ip daddr 198.51.100.9 accept`,
			`oifname "wan0" ip saddr 10.1.0.0/24 masquerade`}},
		"who may come in": {func(c *Config) { c.Inbound = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")} }, []string{
			`ip daddr 10.1.0.0/24 ct status ! dnat ip saddr != 192.168.0.0/16 drop`}},
		"no hairpin": {func(c *Config) { c.Hairpin = false }, []string{
			`iifname "wan0" tcp dport 8080 tcp flags syn / fin,syn,rst,ack ip daddr !=`, `iifname "wan0" udp dport 5000-5010`}},
		"an interface for each client": {func(c *Config) { c.LAN = "" }, []string{
			"ip saddr 10.1.0.0/24 tcp dport 8080 tcp flags syn / fin,syn,rst,ack ip daddr !=",
			"\t\tip daddr 10.1.0.0/24 ip saddr 10.1.0.0/24 ct status dnat snat to ct original ip daddr"}},
		"sources": {func(c *Config) { c.Sources = ranges("203.0.113.7", "203.0.113.8-203.0.113.9") }, []string{
			`ip saddr 10.1.0.0/24 snat to 203.0.113.7-203.0.113.9 persistent`, "elements = { 203.0.113.7, 203.0.113.8,",
			`iifname "wan0" oifname "wan0" ip daddr @outside drop`,
			`iifname "wan0" tcp dport 8080 tcp flags syn / fin,syn,rst,ack ip daddr != 10.1.0.0/24 ip daddr @outside dnat to 10.1.0.5:80`,
			`iifname "lan0" udp dport 5000-5010 ip daddr != 10.1.0.0/24 ip daddr @outside dnat to 10.1.0.6`}},
		"between two machines": {func(c *Config) { c.Moves, c.Sources = true, ranges("203.0.113.7") }, []string{
			"type filter hook input priority filter; policy accept;", `iifname "wan0" ip daddr @outside ` +
				`tcp flags != syn / fin,syn,rst,ack ct state invalid,new drop`}},
		"ports": {func(c *Config) { c.Ports, c.Clients = 1000, ranges("10.1.0.10-10.1.0.11") }, []string{
			"type ipv4_addr : inet_service\n", "10.1.0.10 : 1024, 10.1.0.11 : 2024", "10.1.0.10 : 2023, 10.1.0.11 : 3023",
			"masquerade to :ip saddr map @first-ports-ip saddr map @last-ports", `ip saddr 10.1.0.0/24 drop`,
			`iifname "wan0" ip daddr 10.1.0.0/24 ct status expected drop`,
			`oifname "wan0" ip saddr 10.1.0.0/24 ct status expected drop`,
			`ct status dnat snat to ct original ip daddr:ip saddr map @first-ports-ip saddr map @last-ports`,
			`oifname "lan0" ip saddr 10.1.0.0/24 ct status dnat drop`}},
		"ports of sources": {func(c *Config) {
			c.Ports, c.Clients, c.Sources = 40000, ranges("10.1.0.5-10.1.0.5", "10.1.0.10-10.1.0.11"),
				ranges("203.0.113.6-203.0.113.7", "203.0.113.30")
		}, []string{
			`iifname "wan0" tcp dport 8080 tcp flags syn / fin,syn,rst,ack ip daddr != 10.1.0.0/24 ip daddr 203.0.113.6 dnat to 10.1.0.5:80`,
			`ip daddr != 10.1.0.0/24 ip daddr @outside dnat to 10.1.0.6`, `ct status dnat snat ip to ip saddr map @clients`,
			"type ipv4_addr : interval ipv4_addr . inet_service", "10.1.0.10 : 203.0.113.7 . 1024-41023",
			"10.1.0.11 : 203.0.113.30 . 1024-41023", `ip saddr map @clients`, `ip saddr 10.1.0.0/24 drop`}},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(tt.change)
			must(t, Check(c))
			_, s := open(t, c)
			listed := s.Run(t, "nft list ruleset ip")
			for _, want := range append(tt.want, "table ip gatewayd-nat-lan0 {") {
				if !strings.Contains(listed+"\n", want) {
					t.Errorf("nft does not read %q in\n%s", want, listed)
				}
			}
			for line := range strings.Lines(listed) {
				if strings.Contains(line, "dnat") && !strings.Contains(line, "status") && !strings.Contains(line, "iifname") &&
					!strings.Contains(line, "saddr") {
					t.Errorf("takes connections by any interface: %s", line)
				}
			}
			if strings.Contains(listed, "ct status dnat snat") != c.Hairpin {
				t.Errorf("hairpin %v:\n%s", c.Hairpin, listed)
			}
		})
	}
}

// TestSuccessor: a daemon takes over the table of a former one, even with another configuration, and removes it at the
// end.
func TestSuccessor(t *testing.T) {
	s := netnstest.NewSpace(t)
	var n *NAT
	var err error
	s.Do(func() { n, err = Open(config(func(*Config) {})) })
	must(t, err)
	must(t, n.Close())
	if !strings.Contains(s.Run(t, "nft list ruleset"), "masquerade") {
		t.Fatal("nothing is left without the daemon")
	}
	s.Do(func() { n, err = Open(config(func(c *Config) { c.Forwards, c.Sources = nil, ranges("203.0.113.7") })) })
	must(t, err)
	if listed := s.Run(t, "nft list ruleset"); strings.Contains(listed, "masquerade") ||
		strings.Contains(listed, "prerouting") || strings.Count(listed, "snat") != 1 {
		t.Errorf("after the successor:\n%s", listed)
	}
	must(t, n.Close())
	for range 2 {
		s.Do(func() { err = Remove(Table("lan0")) })
		must(t, err)
	}
	if listed := s.Run(t, "nft list ruleset"); listed != "" {
		t.Errorf("left behind:\n%s", listed)
	}
}

// followTable runs the goroutine that restores the table, until the test ends.
func (n *NAT) followTable(t *testing.T, gone func() bool) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); n.Run(ctx, gone) }()
	t.Cleanup(func() { stop(); <-ended })
}

// TestTableRestored: what others remove from the table or change in it is restored and counted. On kernels where the
// table has an owner, others cannot remove anything.
func TestTableRestored(t *testing.T) {
	for _, unheld := range []bool{true, false} {
		t.Run(fmt.Sprint("unheld ", unheld), func(t *testing.T) {
			n, s := open(t, config(func(c *Config) { c.unheld, c.Ports, c.Clients = unheld, 7, ranges("10.1.0.2-10.1.0.200") }))
			before := s.Run(t, "nft list ruleset")
			n.followTable(t, func() bool { return false })
			for i, script := range []string{"nft flush ruleset", "nft delete table ip gatewayd-nat-lan0",
				"nft flush table ip gatewayd-nat-lan0", "nft flush chain ip gatewayd-nat-lan0 postrouting",
				`nft replace rule ip gatewayd-nat-lan0 postrouting handle $(nft -a list table ip gatewayd-nat-lan0 | sed -n 's/.*masquerade.*# handle //p') oifname wan0 accept`,
				"nft delete element ip gatewayd-nat-lan0 first-ports { 10.1.0.7 }", "nft flush map ip gatewayd-nat-lan0 last-ports",
				"nft 'delete element ip gatewayd-nat-lan0 last-ports { 10.1.0.7 }; add element ip gatewayd-nat-lan0 last-ports { " +
					"10.1.0.7 : 9 }'"} {
				out, err := s.Try(script)
				if n.tableHeld == (err == nil) && i > 0 {
					t.Errorf("%s: %v %s", script, err, out)
				}
				netnstest.Await(t, "the rules to be back", func() error {
					if now := s.Run(t, "nft list ruleset"); now != before {
						return fmt.Errorf("%s", now)
					}
					return nil
				})
				if !n.tableHeld {
					netnstest.Await(t, "the count", func() error {
						if n.Restored() != uint64(i+1) {
							return fmt.Errorf("%d", n.Restored())
						}
						return nil
					})
				}
			}
			if n.tableHeld && n.Restored() != 0 {
				t.Errorf("restored %d times what was never away", n.Restored())
			}
		})
	}
}

// TestTableReleasedAfterDetach: after the data path was detached, the daemon gives its table up for good. Remove, in
// another process, waits for that.
func TestTableReleasedAfterDetach(t *testing.T) {
	n, s := open(t, config(func(*Config) {}))
	var detached atomic.Bool
	n.followTable(t, detached.Load)
	detached.Store(true)
	var err error
	s.Do(func() { err = Remove(Table("lan0")) })
	must(t, err)
	s.Run(t, "nft add table ip other; nft delete table ip other") // has it look
	if listed := s.Run(t, "nft list ruleset"); listed != "" {
		t.Errorf("after detach:\n%s", listed)
	}
}

// TestForeignRules: the check names chains of others that translate sources, made with nftables or iptables, and rules
// that give connections a helper.
func TestForeignRules(t *testing.T) {
	_, s := open(t, config(func(*Config) {}))
	s.Run(t, `nft -f - <<EOF
table ip isp { chain post { type nat hook postrouting priority srcnat; oifname "wan0" masquerade; oifname "wan0" snat to 203.0.113.7; }; chain pre { type nat hook prerouting priority dstnat; tcp dport 80 dnat to 10.1.0.5; }; }
table inet every { chain post { type nat hook postrouting priority srcnat; oifname "wan0" meta nfproto ipv4 masquerade; }; chain f { type filter hook forward priority filter; accept; }; }
table ip6 nat { chain post { type nat hook postrouting priority srcnat; oifname "wan0" masquerade; }; }
EOF
iptables -t nat -N docker; iptables -t nat -A docker -s 172.17.0.0/16 -j MASQUERADE`)
	s.Run(t, `nft 'table inet ftp { ct helper standard { type "ftp" protocol tcp; }; chain pre { type filter hook prerouting priority 0; tcp dport 21 ct helper set "standard"; }; }'
iptables -t raw -A PREROUTING -p tcp --dport 2121 -j CT --helper ftp; iptables -t raw -A PREROUTING -p udp --dport 9 -j CT --notrack`)
	var got, helpers []string
	var err error
	s.Do(func() { got, helpers, err = ForeignRules() })
	must(t, err)
	if want := []string{"a rule in ip raw PREROUTING", "the table inet ftp"}; !slices.Equal(helpers, want) {
		t.Errorf("helpers %q, want %q", helpers, want)
	}
	if want := []string{"inet every post", "ip isp post", "ip nat docker"}; !slices.Equal(
		slices.Sorted(slices.Values(got)), want) {
		t.Errorf("%q, want %q", got, want)
	}
}

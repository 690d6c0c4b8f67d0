package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestRADIUSGivesPrefixes: FreeRADIUS gives a client a /64, DNS servers and a route. The client uses them while its
// session lasts, nobody else can have them, and accounting has the prefixes and the octets of both families as the
// server outside counted them. What cannot be given is refused. Long: the steps of one run, each of which needs the
// state that the one before left.
func TestRADIUSGivesPrefixes(t *testing.T) {
	network6(t)
	sh(t, `ip netns add other; ip -n client link add c1 link c0 netns other type macvlan mode bridge
ip -n server route add 2001:db8:100::/40 via 2001:db8:9::1
ip -n server route add 2001:db8:300::/48 via 2001:db8:9::1
ip -n server route add 2001:db8:7000::/40 via 2001:db8:9::1`)
	t.Cleanup(func() { sh(t, "ip netns del other") })
	dir := t.TempDir()
	secret, told := startOutside(t)
	var logs logtest.Log
	start := func() daemon {
		cfg := milano(t, dir, secret, `
address6 = "2001:db8:1::1/64"
client_prefixes = "2001:db8:100::/40"
[lan.prefix_pool]
gold = "2001:db8:300::/48"
[dhcp6]
pd_pool = "2001:db8:7000::/40"
`)
		cfg.RADIUS.Dynamic = netip.MustParseAddrPort("192.0.2.1:3799")
		return serveLogging(t, cfg, logs.Logger())
	}
	var d daemon
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	d = start()
	addr4 := lease(t)
	first := awaitAddrs6(t, 1)[0]
	hashed := netip.PrefixFrom(first, 64).Masked()
	given := netip.MustParsePrefix("2001:db8:100:7::/64")
	delegated := netip.MustParsePrefix("2001:db8:7000:100::/56")
	for user, why := range map[string]string{
		"sixth":  "2001:db8:1::7 (Framed-IPv6-Address), which is not of lan.client_prefixes",
		"away":   "2001:db8:200::/64 (Framed-IPv6-Prefix), which is not of lan.client_prefixes",
		"far":    "2001:db8:8000::/56 (Delegated-IPv6-Prefix), which is not of dhcp6.pd_pool",
		"silver": `the pool \"silver\" (Framed-IPv6-Pool), which lan.prefix_pool does not have`,
		"inside": "2001:db8:1::/64 (Framed-IPv6-Prefix), which overlaps the LAN",
		"itself": "2001:db8:9::/56 (Delegated-IPv6-Prefix), which has addresses of this machine",
	} {
		if code := loginFrom(t, "client", user); code != "200" || !strings.Contains(logs.String(), why) {
			t.Errorf("%s is answered by %s, and the log does not say %q:\n%s", user, code, why, logs.String())
		}
	}
	if s := d.sessionOf(t, addr4); s.State == session.Authenticated || given.Contains(awaitAddrs6(t, 1)[0]) {
		t.Errorf("after logins that were refused there is %+v", s)
	}
	countAtServer(t, addr4, hashed, given, delegated)
	if code := loginFrom(t, "client", "own"); code != "303" {
		t.Fatalf("the login is answered by %s", code)
	}
	began := d.sessionOf(t, addr4)
	own := awaitAddrOf(t, "client", "c0", given)
	leases := filepath.Join(dir, "leases6")
	spawn(t, "client", "dhclient", "-6", "-P", "-d", "-sf", "/bin/true", "-lf", leases, "-pf", leases+".pid", "c0")
	netnstest.Await(t, "the delegated prefix", func() error {
		if s := d.sessionOf(t, addr4); !slices.Equal(s.Delegated, []netip.Prefix{delegated}) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	behind := delegated.Addr().Next()
	sh(t, "ip -n client addr add "+behind.String()+"/128 dev lo nodad")
	awaitTold(t, told, "Start", began.ID, "Framed-IPv6-Prefix = "+given.String(), "Framed-IPv6-Prefix = "+hashed.String())
	awaitTold(t, told, "Interim-Update", began.ID, "Framed-IPv6-Address = "+own.String(),
		"Framed-IPv6-Prefix = "+given.String())
	awaitTold(t, told, "Interim-Update", began.ID, "Delegated-IPv6-Prefix = "+delegated.String())
	advertised := sh(t, "ip netns exec client rdisc6 -1 c0")
	for _, want := range []string{"Recursive DNS server      : 2001:db8:9::2", "DNS server               : 2001:db8:9::3",
		"Route                    : 2001:db8:a000::/36", "Prefix                   : " + given.String()} {
		if !strings.Contains(strings.Join(strings.Fields(advertised), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("not advertised: %s\n%s", want, advertised)
		}
	}
	netnstest.Await(t, "the old address to be deprecated", func() error {
		if out := sh(t, "ip -n client -6 addr show dev c0 deprecated"); !strings.Contains(out, first.String()+"/") {
			return errors.New(out)
		}
		return nil
	})
	netnstest.Await(t, "the way out", func() error { return reaches6(own) })
	netnstest.Await(t, "the way out of the delegated prefix", func() error { return reaches6(behind) })
	sh(t, "ip netns exec client ping -6 -c 3 -i 0.01 -s 1000 -I "+behind.String()+" 2001:db8:9::2")
	sh(t, "ip netns exec client ping -c 3 -i 0.01 -s 1000 192.0.2.2")
	sh(t, curl+"-o /dev/null http://192.0.2.2/path; "+curl6+"-o /dev/null http://[2001:db8:9::2]/path")
	if n := logs.Count("attribute=Framed-Interface-Id clients=\"on Ethernet\""); n != 1 {
		t.Errorf("the log says %d times that Framed-Interface-Id is not carried out", n)
	}

	must(t, d.stop())
	d = start()
	must(t, reaches6(own))
	if s := d.sessionOf(t, addr4); s.ID != began.ID || !slices.Contains(s.Further, own) {
		t.Errorf("after a restart there is %+v", s)
	}
	sh(t, "ip -n other link set c1 up")
	netnstest.Await(t, "an address of the other client", func() error { _, err := globalAddr("other", "c1"); return err })
	if code := loginFrom(t, "other", "thief"); code != "200" || logs.Count("another client has "+given.String()) != 1 {
		t.Errorf("another user's login is answered by %s:\n%s", code, logs.String())
	}
	if code := loginFrom(t, "other", "robber"); code != "200" || logs.Count("which another client has: ") != 1 {
		t.Errorf("another user's login is answered by %s:\n%s", code, logs.String())
	}
	ask := func(code, attributes string) string {
		const radclient = "ip netns exec server radclient -x -r 2 -t 5 192.0.2.1:3799"
		out, _ := try(fmt.Sprintf("printf '%%s\\n' %q | %s %s %q 2>&1", attributes, radclient, code, secret))
		return out
	}
	for attributes, want := range map[string]string{
		"Framed-IPv6-Prefix = 2001:db8:100:8::/64, WISPr-Bandwidth-Max-Up = 7000000":           "Session-Context-Not-Found",
		"Framed-IPv6-Prefix = " + given.String() + ", DNS-Server-IPv6-Address = 2001:db8:9::4": "Unsupported-Attribute",
		"Delegated-IPv6-Prefix = " + delegated.String() + ", WISPr-Bandwidth-Max-Up = 7000000": "CoA-ACK",
	} {
		if out := ask("coa", attributes); !strings.Contains(out, want) {
			t.Errorf("%s is answered by\n%s", attributes, out)
		}
	}
	if s := d.sessionOf(t, addr4); s.Limits.UpBps != 7000000 {
		t.Errorf("after a change there is %+v", s)
	}

	if code := loginFrom(t, "other", "own"); code != "303" { // the same user with another device
		t.Fatalf("the login of the user's other device is answered by %s:\n%s", code, logs.String())
	}
	stop := awaitTold(t, told, "Stop", began.ID, "Acct-Terminate-Cause = NAS-Request",
		"Framed-IPv6-Prefix = "+given.String(), "Delegated-IPv6-Prefix = "+delegated.String())
	for name, counter := range map[string]string{"Input": "up", "Output": "down"} {
		packets, octets := serverCount(t, counter)
		gotPackets, gotOctets := toldNumber(t, stop, "Acct-"+name+"-Packets"), toldNumber(t, stop, "Acct-"+name+"-Octets")
		if gotPackets < packets || gotPackets > packets+1 || gotOctets < octets || gotOctets > octets+1500 || octets < 4000 {
			t.Errorf("Acct-%s: %d packets, %d octets; the server has %d and %d", name, gotPackets, gotOctets, packets, octets)
		}
	}
	awaitAddrOf(t, "other", "c1", given)
	netnstest.Await(t, "the former device without the prefix", func() error {
		if reaches6(own) == nil {
			return fmt.Errorf("%s passes", own)
		}
		return nil
	})
	if out := ask("disconnect", "Framed-IPv6-Prefix = "+given.String()); !strings.Contains(out, "Disconnect-ACK") {
		t.Errorf("answered by\n%s", out)
	}
	if code := loginFrom(t, "client", "thief"); code != "200" { // the other device has an address of it still
		t.Errorf("a login with a prefix in use is answered by %s", code)
	}
	if code := loginFrom(t, "client", "golden"); code != "303" {
		t.Errorf("a login with a pool is answered by %s:\n%s", code, logs.String())
	}
	golden := awaitAddrOf(t, "client", "c0", netip.MustParsePrefix("2001:db8:300::/48"))
	netnstest.Await(t, "the way out of the pool", func() error { return reaches6(golden) })
	out, err := try("ip netns exec client busybox nslookup -type=aaaa www.example 2001:db8:1::1") // from golden
	if err != nil || !strings.Contains(out, "Address: "+outside6) {
		t.Errorf("a name is answered by %q, %v", out, err)
	}
	awaitTold(t, told, "Start", d.sessionOf(t, addr4).ID,
		"Framed-IPv6-Prefix = "+netip.PrefixFrom(golden, 64).Masked().String())
	must(t, d.stop())
}

// loginFrom logs a client in at the portal by IPv6, and returns the status of the answer.
func loginFrom(t *testing.T, namespace, user string) string {
	t.Helper()
	curl := strings.Replace(curl6, " client ", " "+namespace+" ", 1)
	text := sh(t, curl+`http://[2001:db8:1::1]:8080/login`)
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(text)
	if token == nil {
		t.Fatalf("no form on the page:\n%s", text)
	}
	return sh(t, curl+`-o /dev/null -w '%{http_code}' -d token=`+token[1]+` -d username=`+user+
		` --data-urlencode "password=correct horse" http://[2001:db8:1::1]:8080/login`)
}

// sessionOf returns the client with an address.
func (d daemon) sessionOf(t *testing.T, addr string) (found control.Session) {
	t.Helper()
	for _, s := range d.sessions(t) {
		if s.Addr.String() == addr {
			return s
		}
	}
	t.Fatalf("no client has %s", addr)
	return found
}

// awaitAddrOf waits until a link has an address of a prefix for new connections.
func awaitAddrOf(t *testing.T, namespace, link string, prefix netip.Prefix) (addr netip.Addr) {
	t.Helper()
	netnstest.Await(t, "an address of "+prefix.String(), func() error {
		out := sh(t, "ip -n "+namespace+" -6 -o addr show dev "+link+" scope global -tentative -deprecated")
		for word := range strings.FieldsSeq(out) {
			if p, err := netip.ParsePrefix(word); err == nil && prefix.Contains(p.Addr()) {
				addr = p.Addr()
				return nil
			}
		}
		return errors.New(out)
	})
	return addr
}

// awaitTold waits until RADIUS was told of a session with all lines, and returns what it was told.
func awaitTold(t *testing.T, file, status, id string, lines ...string) (record string) {
	t.Helper()
	lines = append(lines, "Acct-Status-Type = "+status, `Acct-Session-Id = "`+id+`"`)
	var all string
	has := func() bool {
		text, err := os.ReadFile(file)
		all = string(text)
		for record = range strings.SplitSeq(all, "\n\n") {
			lacks := func(line string) bool { return !strings.Contains(record+"\n", line+"\n") }
			if err == nil && !slices.ContainsFunc(lines, lacks) {
				return true
			}
		}
		return false
	}
	netnstest.Await(t, "accounting with "+strings.Join(lines, ", "), func() error {
		if !has() {
			return fmt.Errorf("RADIUS was told:\n%s", all)
		}
		return nil
	})
	return record
}

// toldNumber returns a number of what RADIUS was told.
func toldNumber(t *testing.T, record, attribute string) int {
	t.Helper()
	m := regexp.MustCompile(attribute + ` = (\d+)\n`).FindStringSubmatch(record + "\n")
	if m == nil {
		t.Fatalf("no %s in\n%s", attribute, record)
	}
	n, err := strconv.Atoi(m[1])
	must(t, err)
	return n
}

// countAtServer has the server count the packets of a client.
func countAtServer(t *testing.T, addr4 string, prefixes ...netip.Prefix) {
	t.Helper()
	var sources, destinations string
	for _, p := range prefixes {
		sources += fmt.Sprintf("ip6 saddr %s counter name up\n", p)
		destinations += fmt.Sprintf("ip6 daddr %s counter name down\n", p)
	}
	sh(t, "ip netns exec server ethtool -K s0 tso off gso off gro off") // packets as they are on the wire
	sh(t, "ip -n server link set s0 gso_max_segs 1")
	sh(t, fmt.Sprintf(`ip netns exec server nft -f - <<'END'
table inet counted {
counter up { }
counter down { }
chain in { type filter hook input priority -300
ip saddr %s counter name up
%s}
chain out { type filter hook output priority 300
ip daddr %s counter name down
%s}
}
END`, addr4, sources, addr4, destinations))
}

// serverCount returns what the server has counted.
func serverCount(t *testing.T, counter string) (packets, octets int) {
	t.Helper()
	out := sh(t, "ip netns exec server nft list counter inet counted "+counter)
	if _, err := fmt.Sscanf(out[strings.Index(out, "packets"):], "packets %d bytes %d", &packets, &octets); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return packets, octets
}

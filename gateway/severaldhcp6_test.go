package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// at6 is the gateway's IPv6 address in the network of the client's VLAN.
func (g guest) at6() string { return fmt.Sprintf("fd00:0:0:%d::1", g.vlan) }

// dhclient6 runs ISC dhclient for DHCPv6 with more flags, until it has what it asked for. The client then has the
// address, if it is given one. It returns the DNS servers that it was told.
func (g guest) dhclient6(dir, flags string) string {
	g.t.Helper()
	awaitLinkLocal(g.t, fmt.Sprintf("guest%d", g.vlan), "c0")
	file := filepath.Join(dir, fmt.Sprintf("dhclient%d", g.vlan))
	must(g.t, os.WriteFile(file+".sh", []byte("#!/bin/sh\n[ -z \"$new_ip6_address\" ] || [ $reason != BOUND6 ] || "+
		"ip -6 addr add $new_ip6_address/128 dev $interface\necho $new_dhcp6_name_servers >"+file+".dns\n"), 0o755))
	out, err := g.try("dhclient -6 -1 -q " + flags + " -sf " + file + ".sh -lf " + file + ".lease -pf " + file + ".pid c0")
	if err != nil {
		g.t.Fatalf("dhclient: %v\n%s", err, out)
	}
	g.t.Cleanup(func() { _, _ = try("kill $(cat " + file + ".pid)") }) // with -S it has ended
	told, err := os.ReadFile(file + ".dns")
	must(g.t, err)
	return strings.TrimSpace(string(told))
}

// logIn6 fills in the portal's form by IPv6.
func (g guest) logIn6() {
	g.t.Helper()
	url := fmt.Sprintf("http://[%s]:8080/login", g.at6())
	var page string
	netnstest.Await(g.t, fmt.Sprintf("the portal at the client of VLAN %d", g.vlan), func() (err error) {
		page, err = g.try("curl -6 -g -s --max-time 30 " + url)
		return err
	})
	token := regexp.MustCompile(`name="token" value="([^"]+)"`).FindStringSubmatch(page)
	if token == nil {
		g.t.Fatalf("no form on the login page:\n%s", page)
	}
	code, err := g.try("curl -6 -g -s --max-time 30 -o /dev/null -w '%{http_code}' -d token=" + token[1] +
		" -d username=ann -d password=right " + url)
	if code != "303" {
		g.t.Fatalf("the right password is answered by %s, %v", code, err)
	}
}

// TestDHCPv6OfNetworks: of two networks one has stateless DHCPv6 and the other stateful. Clients, which have no IPv4,
// are told their own network's gateway as DNS server, log in at their own portal by IPv6, and reach the server and not
// each other, also when the daemon has been started again. Long: the steps of one run, each of which needs the state
// that the one before left.
func TestDHCPv6OfNetworks(t *testing.T) {
	trunk6(t, 10, 20)
	sh(t, "ip netns exec guest20 sysctl -qw net.ipv6.conf.c0.autoconf=0")
	dir := t.TempDir()
	cfg := severalConfig(t, dir, networkText(10, with6(10, "[network.dhcp6]\nmode = \"stateless\"")),
		networkText(20, with6(20, "[network.dhcp6]\nmode = \"stateful\"")))
	t.Cleanup(func() { detachAll(t, cfg) })
	d := serveSeveral(t, cfg)
	addrs := map[int]netip.Addr{}
	for v, flags := range map[int]string{10: "-S", 20: ""} {
		g := guest{t, v}
		if told := g.dhclient6(dir, flags); told != g.at6() {
			t.Errorf("the client of VLAN %d is told the DNS servers %q", v, told)
		}
		addrs[v] = g.addrIn(netip.MustParsePrefix(g.at6() + "/64"))
		g.mustReach6(addrs[v], false, "before login")
		caught, err := g.try("curl -6 -g -s --max-time 30 -o /dev/null -w '%{redirect_url}' http://[2001:db8:9::2]/")
		if want := fmt.Sprintf("http://[%s]:8080/login", g.at6()); !strings.HasPrefix(caught, want) {
			t.Errorf("the client of VLAN %d is sent to %q, %v, want %s", v, caught, err, want)
		}
		g.logIn6()
		g.mustReach6(addrs[v], true, "after login")
	}
	status, err := d.Status(t.Context())
	must(t, err)
	for i, n := range status.Networks {
		stateful := i == 1
		if n.IPv6 == nil || n.IPv6.Leases["address"] != i || n.DHCP6["request"] > 0 != stateful ||
			n.DHCP6["information-request"] > 0 == stateful {
			t.Errorf("the status of %s has %+v, %v", n.Network, n.IPv6, n.DHCP6)
		}
	}
	asBefore := func(when string) {
		t.Helper()
		for v, addr := range addrs {
			guest{t, v}.mustReach6(addr, true, when)
			other := addrs[30-v]
			if _, err := (guest{t, v}).try("ping -6 -c 2 -i 0.1 -W 0.2 " + other.String()); err == nil {
				t.Errorf("%s: the client of VLAN %d reaches %s of the other network", when, v, other)
			}
		}
	}
	asBefore("after login")
	must(t, d.stop())
	asBefore("without the daemon")
	d = serveSeveral(t, cfg)
	asBefore("with the next daemon")
	for v, addr := range addrs {
		s, err := d.Session(t.Context(), addr)
		if err != nil || s.Network != fmt.Sprintf("n%d", v) || s.State != session.Authenticated || s.UpBytes == 0 {
			t.Errorf("the client of VLAN %d is %+v, %v", v, s, err)
		}
	}
}

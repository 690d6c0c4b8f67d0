// Tests of several networks in one file. minimal is the shortest good file, of five lines, and problem a wrong file
// with the errors that it must cause (errors_test.go); parse reads a text that must be good, and wantProblems one that
// must cause the listed errors.

package config

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// several is a good file of two networks.
const several = `wan.interface = "wan0"
dns.upstreams = ["192.0.2.53"]
dhcp.lease = "30m"
dhcp.options = { 42 = ["192.0.2.7"], 43 = "x" }
auth.methods = ["click-through"]
[[network]]
name = "guests"
interface = "lan0.10"
address = "10.10.0.1/24"
reaches = ["staff"]
[[network]]
name = "staff"
interface = "lan0.20"
address = "10.20.0.1/24"
[network.dhcp]
lease = "8h"
options = { 43 = "y" }
[network.nat]
masquerade = true
[[network.nat.forward]]
proto = "tcp"
ports = 8022
to = "10.20.0.9:22"
[[network.nat.forward]]
proto = "udp"
ports = 8023
to = "10.20.0.9"
`

// TestNetworks: each network has its own keys, and for others the file's or the defaults.
func TestNetworks(t *testing.T) {
	c := parse(t, several)
	guests, staff := c.All()[0], c.All()[1]
	if guests.Name != "guests" || guests.LAN.Interface != "lan0.10" || guests.LAN.Address.String() != "10.10.0.1/24" ||
		!slices.Equal(guests.Reaches, []string{"staff"}) || guests.WAN.Interface != "wan0" {
		t.Errorf("the first is %+v", guests)
	}
	if guests.DHCP.Lease != 30*time.Minute || staff.DHCP.Lease != 8*time.Hour {
		t.Errorf("leases of %v and %v", guests.DHCP.Lease, staff.DHCP.Lease)
	}
	if len(guests.DHCP.Options) != 2 || len(staff.DHCP.Options) != 1 || string(staff.DHCP.Options[43]) != "y" {
		t.Errorf("options %q and %q", guests.DHCP.Options, staff.DHCP.Options)
	}
	if guests.NAT.Masquerade || len(staff.NAT.Forwards) != 2 || staff.NAT.Forwards[1].To.String() != "10.20.0.9" {
		t.Errorf("NAT %+v and %+v", guests.NAT, staff.NAT)
	}
	if at := staff.WhereForward(1, "to"); at != "/etc/gatewayd/x.toml:27: network.nat.forward.to" {
		t.Errorf("the second forward is at %s", at)
	}
	if staff.StateDir != "/var/lib/gatewayd/staff" || staff.Datapath.PinDir != "/sys/fs/bpf/gatewayd/staff" ||
		staff.FlowLog.Folder != "/var/lib/gatewayd/staff/flows" || staff.ControlSocket() != c.ControlSocket() {
		t.Errorf("folders %s, %s, %s", staff.StateDir, staff.Datapath.PinDir, staff.FlowLog.Folder)
	}
	external := parse(t, strings.Replace(several, `lease = "8h"
options = { 43 = "y" }`, `mode = "external"`, 1))
	// The file's keys about leases are no mistake for this network.
	if mode := external.All()[1].DHCP.Mode; mode != External {
		t.Errorf("the second's leases are by %s", mode)
	}
	if own := guests.DHCP.Pools; len(own) == 0 || !own[0].Contains(netip.MustParseAddr("10.10.0.9")) {
		t.Errorf("the first leases %v", own)
	}
}

// wrongNetworks are mistakes in files with several networks.
var wrongNetworks = []problem{
	{"[lan] beside networks", several + "[lan]\ninterface = \"lan1\"\n",
		[]string{`x.toml:29: lan.interface: has no effect: … [[network]], …`}},
	{"one bracket", strings.Replace(several[:strings.LastIndex(several, "[[network]]")], "[[network]]", "[network]", 1),
		[]string{`x.toml:6: network: must be in double brackets … [[network]]`}},
	{"one bracket twice", strings.ReplaceAll(several, "[[network]]", "[network]"),
		[]string{`x.toml:11: network: is on line 6 already: … [[network]] …`}},
	{"no table", "network = 7\n" + strings.ReplaceAll(minimal, "[[network]]", ""),
		[]string{`x.toml:1: network: must be tables in double brackets: [[network]]`}},
	{"a table twice", several + "[network.dhcp]\nmtu = 1400\n",
		[]string{`x.toml:28: network.dhcp: is on line 15 already …`}},
	{"without keys", several + "[[network]]\n",
		[]string{`x.toml:28: network.name: missing …`, `x.toml:28: network.interface: missing …`,
			`x.toml:28: network.address: missing …`}},
	{"name twice", strings.Replace(several, `"staff"
interface`, `"guests"
interface`, 1),
		[]string{`x.toml:10: network.reaches: there is no network "staff"`,
			`x.toml:12: network.name: "guests" is … line 6 …`}},
	{"bad name", strings.Replace(several, `"guests"`, `"Guests!"`, 1),
		[]string{`x.toml:7: network.name: must be a name … "Guests!"`}},
	{"interface twice", strings.Replace(several, "lan0.20", "lan0.10", 1),
		[]string{`x.toml:13: network.interface: "lan0.10" … network "guests" (line 8) …`}},
	{"the WAN's interface", strings.Replace(several, "lan0.20", "wan0", 1),
		[]string{`x.toml:1: wan.interface: network "staff": "wan0" …`}},
	{"overlap", strings.Replace(several, "10.20.0.1/24", "10.10.0.129/25", 1),
		[]string{`x.toml:14: network.address: 10.10.0.128/25 overlaps 10.10.0.0/24 of network "guests" (line 9)`,
			`x.toml:23: network.nat.forward.to: 10.20.0.9 …`, `x.toml:27: network.nat.forward.to: 10.20.0.9 …`}},
	{"overlap of IPv6", strings.NewReplacer(`"10.10.0.1/24"`, "\"10.10.0.1/24\"\nclient_prefixes = \"2001:db8:8::/48\"\n"+
		"address6 = \"2001:db8:1::1/64\"", `"10.20.0.1/24"`, "\"10.20.0.1/24\"\naddress6 = \"2001:db8:8:7::1/64\"").Replace(
		several), []string{
		`x.toml:17: network.address6: 2001:db8:8:7::/64 overlaps 2001:db8:8::/48 of network "guests" (line 10)`}},
	{"one pool for two", "dhcp6.pd_pool = \"2001:db8:200::/48\"\n" + strings.NewReplacer(`"10.10.0.1/24"`,
		"\"10.10.0.1/24\"\naddress6 = \"2001:db8:1::1/64\"", `"10.20.0.1/24"`,
		"\"10.20.0.1/24\"\naddress6 = \"2001:db8:2::1/64\"").Replace(several), []string{
		`x.toml:1: network.dhcp6.pd_pool: 2001:db8:200::/48 overlaps 2001:db8:200::/48 of network "guests" (line 1)`}},
	{"unknown key", strings.Replace(several, "lease = \"8h\"", "leese = \"8h\"", 1),
		[]string{`x.toml:16: network.dhcp.leese: unknown key; did you mean "network.dhcp.lease"?`}},
	{"key for all", several + "[network.metrics]\nlisten = \"127.0.0.1:1\"\n",
		[]string{`x.toml:28: network.metrics: is the same for all networks: set metrics outside …`}},
	{"bad value", strings.Replace(several, "lease = \"8h\"", "lease = 8", 1),
		[]string{`x.toml:16: network.dhcp.lease: must be …`}},
	{"pool outside", "dhcp.pools = [\"10.20.0.5-10.20.0.9\"]\n" + several,
		[]string{`x.toml:1: dhcp.pools: network "guests": … 10.20.0.5 is not in the LAN …`,
			`x.toml:1: dhcp.pools: network "guests": … 10.20.0.9 is not in the LAN …`}},
	{"missing for all", strings.Replace(several, "dns.upstreams = [\"192.0.2.53\"]\n", "", 1),
		[]string{`x.toml:1: dns.upstreams: missing …`}},
	{"no effect in its own", strings.Replace(several, `lease = "8h"`, `mode = "external"`, 1),
		[]string{`x.toml:17: network.dhcp.options: has no effect: …`}},
	{"no effect in any", "portal.tls_port = 8444\n" + several,
		[]string{`x.toml:1: portal.tls_port: has no effect: …`}},
	{"data path", "datapath.kind = \"tun\"\n" + several,
		[]string{`x.toml:1: datapath.kind: "tun" … [[network]] … "ebpf"`}},
	{"delegation", "wan.delegation = true\n" + several, []string{
		`x.toml:1: wan.delegation: has no effect: … network.subnet = 0`}},
	{"subnet without delegation", strings.Replace(several, "reaches = [\"staff\"]", "subnet = 0", 1), []string{
		`x.toml:10: network.subnet: has no effect: … wan.delegation = true`}},
	{"subnet without IPv6", "wan.delegation = true\n" + strings.Replace(several, "reaches = [\"staff\"]", "subnet = 0", 1),
		[]string{`x.toml:11: network.subnet: needs network.address6 …`}},
	{"subnet twice", "wan.delegation = true\n" + strings.NewReplacer(`"10.10.0.1/24"`,
		"\"10.10.0.1/24\"\naddress6 = \"2001:db8:1::1/64\"\nsubnet = 7", `"10.20.0.1/24"`,
		"\"10.20.0.1/24\"\naddress6 = \"2001:db8:2::1/64\"\nsubnet = 7").Replace(several), []string{
		`x.toml:19: network.subnet: 7 is the number of network "guests" (line 12) too`}},
	{"bad subnet", strings.Replace(several, "reaches = [\"staff\"]", "subnet = -1", 1), []string{
		`x.toml:10: network.subnet: must be …`}},
	{"all of the delegated prefix", "wan.delegation = true\n" + strings.Replace(several, `"10.10.0.1/24"`,
		"\"10.10.0.1/24\"\naddress6 = \"2001:db8:1::1/64\"\nsubnet = 7\nclient_prefixes = \"delegated\"", 1), []string{
		`x.toml:13: network.client_prefixes: must not be "delegated" …`}},
	{"prefix too long for addresses", strings.Replace(several, `"10.20.0.1/24"`,
		"\"10.20.0.1/24\"\naddress6 = \"2001:db8:1::1/72\"", 1), []string{`x.toml:15: network.address6: must be …`}},
	{"ports forwarded twice", strings.Replace(several, "reaches = [\"staff\"]", "nat = { masquerade = true }\n"+
		"[[network.nat.forward]]\nproto = \"tcp\"\nports = \"8000-8100\"\nto = \"10.10.0.7\"", 1),
		[]string{`x.toml:26: network.nat.forward.ports: 8022 leads … network "guests" (line 13) already`}},
}

// TestMistakesInNetworks: every mistake in several networks has its file, line and key, once.
func TestMistakesInNetworks(t *testing.T) {
	for _, c := range wrongNetworks {
		t.Run(c.name, func(t *testing.T) {
			wantProblems(t, c.text, c.want)
		})
	}
}

// TestTooManyNetworks: a daemon has a bounded number of networks.
func TestTooManyNetworks(t *testing.T) {
	text := strings.SplitAfter(several, "click-through\"]\n")[0]
	add := func(i int) {
		text += fmt.Sprintf("[[network]]\nname = \"n%d\"\ninterface = \"v%d\"\naddress = \"10.%d.0.1/24\"\n", i, i, i)
	}
	for i := range MostNetworks {
		add(i)
	}
	if c := parse(t, text); len(c.All()) != MostNetworks {
		t.Errorf("%d networks", len(c.All()))
	}
	add(MostNetworks)
	if _, err := Parse("x.toml", []byte(text)); err == nil || !strings.Contains(err.Error(), "at most 64") {
		t.Errorf("one too many: %v", err)
	}
}

// TestLANInterfaces: the interfaces to keep closed are found in a file with other mistakes, and above a line that is no
// TOML.
func TestLANInterfaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.toml")
	for _, c := range []struct{ text, want, problem string }{
		{several, "lan0.10 lan0.20", ""},
		{strings.Replace(several, "10.20.0.1/24", "x", 1), "lan0.10 lan0.20", ""},
		{strings.Replace(several, `"lan0.10"`, "7", 1), "lan0.20", ":8: network.interface: must"},
		{strings.Replace(several, `"10.20.0.1/24"`, `"`, 1), "lan0.10 lan0.20", ":14: "},
		{strings.Replace(minimal, "lan.", "[network]\nname = \"a\"\n", 1), "lan0", ""},
		{minimal, "lan0", ""},
		{"", "", ":1: lan.interface: missing"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := LANInterfaces(path)
		if strings.Join(found, " ") != c.want || (err != nil) != (c.problem != "") ||
			err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("found %v, %v, want %s and %s in:\n%s", found, err, c.want, c.problem, c.text)
		}
	}
}

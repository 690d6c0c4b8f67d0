package config

import (
	"net/netip"
	"strings"
	"testing"
)

// outsiders are mistakes of pppoe.networks.
var outsiders = []problem{
	{"no networks", onPPPoE + "pppoe.networks = [\"203.0.113.1/24\", \"2001:db8::/48\", \"10.0.0.0/8\"]\n", []string{
		`x.toml:11: pppoe.networks: … 203.0.113.1/24 has bits … "203.0.113.0/24"? … "2001:db8::/48" … "10.0.0.0/8"`}},
	{"overlaps", onPPPoE + "pppoe.networks = [\"10.1.7.0/24\", \"203.0.113.0/24\", \"203.0.113.64/26\"]\n", []string{
		`x.toml:11: pppoe.networks: 10.1.7.0/24 overlaps the LAN, 10.1.0.0/16, …`,
		`x.toml:11: pppoe.networks: 203.0.113.64/26 overlaps 203.0.113.0/24`}},
	{"many", onPPPoE + "pppoe.networks = [\"100.64.0.0/14\", \"203.0.113.0/24\"]\n",
		[]string{`x.toml:11: pppoe.networks: 262400 addresses: at most 262144, …`}},
	{"with tun", onPPPoE + "datapath.kind = \"tun\"\npppoe.networks = [\"203.0.113.0/24\"]\n",
		[]string{`x.toml:12: pppoe.networks: is not possible with datapath.kind = "tun", … ebpf, kernel`}},
}

// onPPPoE is a configuration with PPPoE clients.
var onPPPoE = withRADIUS + "dhcp.pools = [\"10.1.1.0-10.1.1.99\"]\npppoe.enabled = true\n" +
	"pppoe.pools = [\"10.1.2.0-10.1.2.99\"]\n"

func TestProblemsOfNetworksOutside(t *testing.T) {
	for _, tt := range outsiders {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

// TestPoolsOutside: pools of PPPoE are in the LAN, or within one of pppoe.networks.
func TestPoolsOutside(t *testing.T) {
	text := strings.Replace(onPPPoE, "10.1.2.0-10.1.2.99", "203.0.113.0-203.0.113.255", 1)
	c := parse(t, text+"pppoe.networks = [\"203.0.113.0/24\"]\n")
	for addr, fits := range map[string]bool{"203.0.113.0": true, "203.0.114.0": false, "10.1.2.0": true, "10.1.0.1": false,
		"10.1.255.255": false} {
		if problem := c.UnfitForPPPoE(netip.MustParseAddr(addr)); (problem == "") != fits {
			t.Errorf("%s %s", addr, problem)
		}
	}
	want := []string{`x.toml:10: pppoe.pools: … 203.0.113.0 is not in the LAN, …`,
		`x.toml:10: pppoe.pools: … 203.0.113.255 is not in the LAN, …`}
	wantProblems(t, text, want)
	wantProblems(t, text+"pppoe.networks = [\"203.0.113.0/25\"]\n", want)
}

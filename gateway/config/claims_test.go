package config

import (
	"net/netip"
	"slices"
	"testing"
)

// claims are mistakes of dhcp.claims.
var claims = []problem{
	{"nothing left to claim", minimal + "dhcp.claims = true\n",
		[]string{`x.toml:6: dhcp.claims: dhcp.pools is all of the LAN, … set dhcp.pools, or dhcp.claimable`}},
	{"claimable alone", minimal + "dhcp.claimable = [\"10.1.0.2-10.1.0.9\"]\n",
		[]string{`x.toml:6: dhcp.claimable: has no effect: dhcp.claims is not true`}},
	{"what can be claimed",
		minimal + "dhcp.claims = true\ndhcp.claimable = [\"10.1.0.1-10.1.0.9\", \"10.2.0.1-10.2.0.9\"]\n", []string{
			`x.toml:7: dhcp.claimable: … has the gateway's own address …`, `x.toml:7: dhcp.claimable: … 10.2.0.1 is not in …`,
			`x.toml:7: dhcp.claimable: … 10.2.0.9 is not in …`}},
	{"another server's", minimal + "dhcp.mode = \"external\"\ndhcp.claims = true\n",
		[]string{`x.toml:7: dhcp.claims: has no effect: dhcp.mode is "external"`}},
}

// repeaters are mistakes of lan.repeaters.
var repeaters = []problem{
	{"no MAC address", minimal + "lan.repeaters = [\"eth1\"]\n",
		[]string{`x.toml:6: lan.repeaters: each value must be a MAC address … "eth1"`}},
	{"group and repetition", minimal + "lan.repeaters = [\"02:00:5e:10:00:01\", \"02-00-5E-10-00-01\"]\n",
		[]string{`x.toml:6: lan.repeaters: "02-00-5E-10-00-01" is listed twice`}},
	{"with IPv6", minimal + "lan.address6 = \"2001:db8:1::1/64\"\nlan.repeaters = [\"02:00:5e:10:00:01\"]\n",
		[]string{`x.toml:7: lan.repeaters: is not possible with lan.address6: …`}},
}

func TestProblemsOfClaims(t *testing.T) {
	for _, tt := range slices.Concat(claims, repeaters) {
		t.Run(tt.name, func(t *testing.T) { wantProblems(t, tt.text, tt.want) })
	}
}

// TestClaimable: without dhcp.claimable, these are the addresses of the LAN in no pool.
func TestClaimable(t *testing.T) {
	c := parse(t, minimal+"dhcp.claims = true\ndhcp.pools = [\"10.1.2.0-10.1.255.254\", \"10.1.0.9-10.1.0.11\"]\n")
	for addr, want := range map[string]bool{"10.1.0.1": false, "10.1.0.8": true, "10.1.0.9": false, "10.1.0.11": false,
		"10.1.0.12": true, "10.1.1.255": true, "10.1.2.0": false, "10.1.255.254": false, "10.1.0.0": false} {
		if got := c.Claimable(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s can be claimed: %v", addr, got)
		}
	}
	if n := c.Addresses(); n != 1<<16-3 {
		t.Errorf("%d addresses for clients", n)
	}
}

// A test of labs around a router whose addresses are given (closed).

package topology

import (
	"net/netip"
	"testing"
)

// TestClosedAddresses: beside a router that is there, hosts and clients take addresses that it has not.
func TestClosedAddresses(t *testing.T) {
	for _, c := range []struct {
		lan, wan    string
		clientHosts int
		want        string // host, first and last client, server
	}{
		{"192.168.1.1/24", "10.0.0.1/24", 1, "192.168.1.254 192.168.1.2 192.168.1.253 10.0.0.2"},
		{"192.168.1.254/24", "10.0.0.254/24", 1, "192.168.1.253 192.168.1.1 192.168.1.252 10.0.0.1"},
		{"192.168.1.253/24", "10.0.0.2/24", 3, "192.168.1.252 192.168.1.1 192.168.1.249 10.0.0.3"},
		{"192.168.1.50/24", "10.0.0.9/24", 2, "192.168.1.254 192.168.1.51 192.168.1.252 10.0.0.1"},
	} {
		spec := Spec{ClientHosts: c.clientHosts, Cables: true, Closed: [2]netip.Prefix{
			netip.MustParsePrefix(c.lan), netip.MustParsePrefix(c.wan)}}
		built := Portal(spec)
		if err := built.check(); err != nil {
			t.Error(err)
		}
		host := built.Links[0].B.Addrs[0].Addr()
		got := host.String() + " " + built.FirstLease.String() + " " + built.LastLease.String() + " " +
			built.ServerIP.String()
		if got != c.want || len(built.Nodes) != 1+c.clientHosts || built.Gateway != spec.Closed[0].Addr() {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

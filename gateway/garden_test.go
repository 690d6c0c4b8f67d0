package gateway

import (
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
)

// TestCheckRedundant: values that change nothing are told, with file, line and key, and what holds them. Others are
// not.
func TestCheckRedundant(t *testing.T) {
	cfg, err := config.Parse("x.toml", []byte(`lan.interface = "lan0"
lan.address = "10.1.0.1/24"
wan.interface = "wan0"
dns.upstreams = ["192.0.2.2"]
auth.methods = ["click-through"]
portal.name = "login.hotel.example"
nat.masquerade = true
nat.inbound = ["192.168.0.0/16", "192.168.7.0/24", "192.169.0.0/24"]
nat.except = ["172.16.0.0/12", "172.17.0.1"]
garden.prefixes = ["198.51.100.0/24", "198.51.100.7", "203.0.113.7"]
garden.domains = ["*.example.org", "a.example.org", "*.b.example.org", "example.org", "login.hotel.example"]
garden.ports = ["www.example.org:443", "198.51.100.9:80", "203.0.113.0/24:80", "203.0.113.9:80", "203.0.113.9:80/udp", "203.0.113.9:81", "*.pay.example:443", "x.pay.example:443", "x.pay.example:80"]
`))
	must(t, err)
	var got []string
	for _, f := range CheckFiles(cfg) {
		if f.Weight == Warning {
			got = append(got, f.Text)
		}
	}
	for _, w := range []string{
		"x.toml:9: nat.except: 172.17.0.1 changes nothing, because 172.16.0.0/12 holds it",
		"nat.inbound: 192.168.7.0/24 changes nothing, because 192.168.0.0/16 holds it",
		"garden.prefixes: 198.51.100.7 changes nothing, because 198.51.100.0/24 holds it",
		"garden.domains: a.example.org changes nothing, because *.example.org holds it",
		"garden.domains: *.b.example.org changes nothing, because *.example.org holds it",
		"garden.domains: login.hotel.example is portal.name",
		"garden.ports: www.example.org:443 changes nothing, because *.example.org of garden.domains holds it",
		"garden.ports: 198.51.100.9:80 changes nothing, because 198.51.100.0/24 of garden.prefixes holds it",
		"garden.ports: 203.0.113.9:80 changes nothing, because 203.0.113.0/24:80 holds it",
		"garden.ports: x.pay.example:443 changes nothing, because *.pay.example:443 holds it",
	} {
		has := func(s string) bool { return strings.Contains(s, w) }
		if i := slices.IndexFunc(got, has); i >= 0 {
			got = slices.Delete(got, i, i+1)
		} else {
			t.Errorf("nothing says %q", w)
		}
	}
	if len(got) > 0 {
		t.Errorf("beside what changes nothing it says %q", got)
	}
}

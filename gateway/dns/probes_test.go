// Tests of the names at which devices look for a login page (probes): HTTP to their addresses stays closed before
// login. main_test.go has the helpers: start runs the server that is tested, whose recorder notes which addresses it
// opens (list) and which ports of addresses it opens or closes (parts); ask sends it a query over "udp" or "tcp", and
// query makes one. serve runs an upstream resolver with the test's own answers (edns_test.go).

package dns

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	miekg "github.com/miekg/dns"
)

// TestProbesAreShut: HTTP to the addresses of a probe's name is kept from the garden before the answer is sent,
// whatever shares the address, or the name; a name of one port opens that port.
func TestProbesAreShut(t *testing.T) {
	addr := serve(t, func(w miekg.ResponseWriter, q *miekg.Msg) {
		r := new(miekg.Msg).SetReply(q)
		if name := q.Question[0].Name; name == "alias.probe.example." {
			r.Answer = records(t, name+" CNAME cdn.example.", "cdn.example. A 93.184.216.36")
		} else {
			r.Answer = records(t, name+" A 93.184.216.34")
		}
		w.WriteMsg(r)
	})
	d := &recorder{}
	s := start(t, d, []netip.AddrPort{addr}, func(c *Config) {
		c.Garden, c.Probes = []string{"pay.example", "*.probe.example"}, []string{"look.probe.example", "alias.probe.example"}
		c.Ports = []PortName{{"*.shop.example", 6, 443}, {"shop.example", 17, 443}}
	})
	for _, c := range []struct {
		name  string
		open  []string
		parts []string
	}{
		{"www.shop.example.", []string{}, []string{"93.184.216.34/32 port 443 of 6"}},
		{"shop.example.", []string{}, []string{"93.184.216.34/32 port 443 of 17", "93.184.216.34/32 port 443 of 6"}},
		{"pay.example.", []string{"93.184.216.34/32"},
			[]string{"93.184.216.34/32 port 443 of 17", "93.184.216.34/32 port 443 of 6"}},
		{"look.probe.example.", []string{"93.184.216.34/32"},
			[]string{"93.184.216.34/32 port 443 of 17", "93.184.216.34/32 port 443 of 6", "93.184.216.34/32 shut"}},
		{"alias.probe.example.", []string{"93.184.216.34/32", "93.184.216.36/32"},
			[]string{"93.184.216.34/32 port 443 of 17", "93.184.216.34/32 port 443 of 6", "93.184.216.34/32 shut",
				"93.184.216.36/32 shut"}},
	} {
		if r := ask(t, s, "udp", query(c.name, miekg.TypeA)); r.Rcode != miekg.RcodeSuccess {
			t.Errorf("%s: %v", c.name, r)
		}
		if got := d.list(); !slices.Equal(got, c.open) {
			t.Errorf("after %s open are %v", c.name, got)
		}
		if got := slices.Sorted(maps.Keys(d.parts)); !slices.Equal(got, c.parts) {
			t.Errorf("after %s there are %v", c.name, got)
		}
	}
}

package routeradv

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mdlayher/ndp"
)

// faults are changes of an advertisement, and what Check says of each.
var faults = []struct {
	want   string
	change func(*Advertisement)
}{
	{"router lifetime", func(a *Advertisement) { a.RouterLifetime = 65536 * time.Second }},
	{"router lifetime", func(a *Advertisement) { a.RouterLifetime = -1 }},
	{"preference 2 of the router", func(a *Advertisement) { a.Preference = 2 }},
	{"reachable time", func(a *Advertisement) { a.Reachable = 2 * time.Hour }},
	{"retransmit time", func(a *Advertisement) { a.Retransmit = -time.Second }},
	{"MTU 1279", func(a *Advertisement) { a.MTU = 1279 }},
	{"MTU 65536", func(a *Advertisement) { a.MTU = 65536 }},
	{"is no IPv6 prefix", prefix(func(p *Prefix) { p.Prefix = netip.MustParsePrefix("10.1.0.0/16") })},
	{"is no IPv6 prefix", prefix(func(p *Prefix) { p.Prefix = netip.Prefix{} })},
	{"bits behind its length", prefix(func(p *Prefix) { p.Prefix = netip.MustParsePrefix("2001:db8::1/64") })},
	{"whole Internet", prefix(func(p *Prefix) { p.Prefix = netip.MustParsePrefix("::/0") })},
	{"hosts ignore link-local", prefix(func(p *Prefix) { p.Prefix = netip.MustParsePrefix("fe80::/64") })},
	{"is not /64", prefix(func(p *Prefix) { p.Prefix = netip.MustParsePrefix("2001:db8::/63") })},
	{"longer than valid", prefix(func(p *Prefix) { p.Valid = time.Minute })},
	{"after it has ceased", prefix(func(p *Prefix) {
		p.ValidUntil = time.Now()
		p.PreferredUntil = p.ValidUntil.Add(1)
	})},
	{"valid lifetime", prefix(func(p *Prefix) { p.Valid = Infinity + 1 })},
	{"prefix 2001:db8:2::/56 stands twice", func(a *Advertisement) { a.Prefixes = append(a.Prefixes, a.Prefixes[1]) }},
	{"route 2001:db8:ff00::/40 stands twice", func(a *Advertisement) { a.Routes = append(a.Routes, a.Routes[0]) }},
	{"preference 9 of the route", func(a *Advertisement) { a.Routes[0].Preference = 9 }},
	{"lifetime", func(a *Advertisement) { a.Routes[0].Lifetime = -1 }},
	{"DNS server 10.1.0.1", func(a *Advertisement) { a.DNSServers[0] = netip.MustParseAddr("10.1.0.1") }},
	{"DNS server ::", func(a *Advertisement) { a.DNSServers[0] = netip.IPv6Unspecified() }},
	{"DNS servers are more", func(a *Advertisement) { a.DNSServers = make([]netip.Addr, maxServers+1) }},
	{"lifetime of DNS", func(a *Advertisement) { a.DNSLifetime = -1 }},
	{`search domain ""`, func(a *Advertisement) { a.SearchDomains[0] = "" }},
	{`search domain "a..b"`, func(a *Advertisement) { a.SearchDomains[0] = "a..b" }},
	{"search domain", func(a *Advertisement) { a.SearchDomains[0] = "gäste.example" }},
	{"search domain", func(a *Advertisement) { a.SearchDomains[0] = strings.Repeat("x", 64) + ".example" }},
	{"search domains take", func(a *Advertisement) { a.SearchDomains[0] = strings.Repeat("x.", 119) + "example" }},
	{"none of https", func(a *Advertisement) { a.CaptivePortal = "http://portal.example/api" }},
	{"none of https", func(a *Advertisement) { a.CaptivePortal = "https:///api" }},
	{"spaces", func(a *Advertisement) { a.CaptivePortal = "https://portal.example/a b" }},
	{"URI has 300 bytes", func(a *Advertisement) { a.CaptivePortal = "https://h/" + strings.Repeat("x", 290) }},
	{"NAT64 prefix 64:ff9b::1/96: it has bits", func(a *Advertisement) {
		a.NAT64Prefix = netip.MustParsePrefix("64:ff9b::1/96")
	}},
	{"none of the lengths", func(a *Advertisement) { a.NAT64Prefix = netip.MustParsePrefix("64:ff9b::/80") }},
	{"lifetime of the NAT64", func(a *Advertisement) { a.NAT64PrefixExpiry = 65529 * time.Second }},
	{"shorten its lists", func(a *Advertisement) { a.Prefixes = manyPrefixes(30) }},
}

// prefix changes the first prefix.
func prefix(change func(*Prefix)) func(*Advertisement) {
	return func(a *Advertisement) { change(&a.Prefixes[0]) }
}

// TestCheckNamesFaults: each fault alone is found.
func TestCheckNamesFaults(t *testing.T) {
	if err := everything().Check(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range faults {
		a := everything().clone()
		tt.change(&a)
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, not %q", err, tt.want)
		}
		if b, err := Message(a); err == nil {
			t.Errorf("%q makes a message: %x", tt.want, b)
		}
	}
}

// manyPrefixes are n that differ.
func manyPrefixes(n int) []Prefix {
	list := make([]Prefix, n)
	for i := range list {
		addr := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 1, byte(i)})
		list[i] = Prefix{Prefix: netip.PrefixFrom(addr, 64), Preferred: time.Hour, Valid: time.Hour, Autonomous: true}
	}
	return list
}

// TestLongestOptions: what Check lets through can be written and read.
func TestLongestOptions(t *testing.T) {
	a := everything()
	a.CaptivePortal = "https://h/" + strings.Repeat("x", maxURI-10)
	a.SearchDomains = []string{strings.Repeat("x.", 115) + "example"}
	for range maxServers - 2 {
		a.DNSServers = append(a.DNSServers, a.DNSServers[0])
	}
	message, err := Message(a)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ndp.ParseMessage(message)
	if err != nil {
		t.Fatal(err)
	}
	want := []ndp.Option{
		&ndp.RecursiveDNSServer{Lifetime: a.DNSLifetime, Servers: a.DNSServers},
		&ndp.DNSSearchList{Lifetime: a.DNSLifetime, DomainNames: a.SearchDomains},
		&ndp.CaptivePortal{URI: a.CaptivePortal},
		&ndp.PREF64{Lifetime: 608 * time.Second, Prefix: a.NAT64Prefix},
	}
	got := m.(*ndp.RouterAdvertisement).Options
	if diff := cmp.Diff(want, got[len(got)-4:], cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}

// TestDeadlines: what is advertised never goes beyond a deadline, and a lifetime that is not over is not advertised as
// over.
func TestDeadlines(t *testing.T) {
	now := time.Now()
	p := Prefix{Prefix: netip.MustParsePrefix("2001:db8:1::/64"), Preferred: time.Hour, Valid: 2 * time.Hour,
		PreferredUntil: now.Add(30 * time.Minute), ValidUntil: now.Add(90 * time.Minute)}
	r := Route{Prefix: p.Prefix, Lifetime: 75 * time.Minute, Until: p.ValidUntil}
	for _, tt := range []struct{ after, preferred, valid time.Duration }{
		{0, 30 * time.Minute, 90 * time.Minute},
		{20 * time.Minute, 10 * time.Minute, 70 * time.Minute},
		{40 * time.Minute, 0, 50 * time.Minute},
		{90*time.Minute - time.Millisecond, 0, time.Second},
		{100 * time.Minute, 0, 0},
	} {
		message, err := encode(Advertisement{Prefixes: []Prefix{p}, Routes: []Route{r}}, now.Add(tt.after))
		if err != nil {
			t.Fatal(err)
		}
		m, err := ndp.ParseMessage(message)
		if err != nil {
			t.Fatal(err)
		}
		got := m.(*ndp.RouterAdvertisement).Options[0].(*ndp.PrefixInformation)
		if got.PreferredLifetime != tt.preferred || got.ValidLifetime != tt.valid {
			t.Errorf("after %s: %s, %s", tt.after, got.PreferredLifetime, got.ValidLifetime)
		}
		route := m.(*ndp.RouterAdvertisement).Options[1].(*ndp.RouteInformation)
		if route.RouteLifetime != min(r.Lifetime, tt.valid) {
			t.Errorf("after %s the route is told for %s", tt.after, route.RouteLifetime)
		}
	}
}

// TestFinal: a router that goes takes back all but the addresses.
func TestFinal(t *testing.T) {
	a := everything()
	final := a.Final()
	if final.RouterLifetime != 0 || final.DNSLifetime != 0 || final.NAT64PrefixExpiry != 0 ||
		final.Routes[0].Lifetime != 0 || a.Routes[0].Lifetime == 0 || final.Prefixes[0] != a.Prefixes[0] {
		t.Errorf("%+v", final)
	}
	message, err := Message(final)
	if err != nil {
		t.Fatal(err)
	}
	if message[5]&0x18 != 0 {
		t.Errorf("flags %#x: a router that is none has a preference", message[5])
	}
}

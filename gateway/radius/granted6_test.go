// Tests of IPv6 addresses and prefixes that a server gives to a session or a request names. newClient makes a Client,
// and newDynamic a Dynamic (the server of CoA and Disconnect requests) with a table of one session (oneSession).

package radius

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"layeh.com/radius"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc3162"
	"layeh.com/radius/rfc3576"
	"layeh.com/radius/rfc4818"
	"layeh.com/radius/rfc6911"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// prefixesOf and addrsOf parse lists of test data.
func prefixesOf(all ...string) (out []netip.Prefix) {
	for _, s := range all {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrsOf(all ...string) (out []netip.Addr) {
	for _, s := range all {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// TestGrantedIPv6: every IPv6 attribute of an Access-Accept, as FreeRADIUS sends it, several values too.
func TestGrantedIPv6(t *testing.T) {
	f := startFreeRADIUS(t)
	login, err := newClient(t, Config{Servers: []Server{f.server()}}).Authenticate(
		t.Context(), credentials("sixth", "correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	want := &session.Grant6{
		Prefixes: prefixesOf("2001:db8:100:7::/64", "2001:db8:200::/64"), Addrs: addrsOf("2001:db8:1::7"),
		Delegated: prefixesOf("2001:db8:7000::/56", "2001:db8:8000::/48"), Routes: prefixesOf("2001:db8:9000::/48"),
		Told: prefixesOf("2001:db8:a000::/36"), DNS: addrsOf("2001:db8:9::2", "2001:db8:9::3"),
		InterfaceID: 0x020000fffe000007, Pool: "gold", DelegatedPool: "homes", AddressPool: "desks",
	}
	if diff := cmp.Diff(want, login.IPv6, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Error(diff)
	}
}

// TestRefusedIPv6: what a client could not use as it is given is refused, with the reason.
func TestRefusedIPv6(t *testing.T) {
	c := newClient(t, Config{Servers: []Server{{Address: loopbackPort(), Secret: "x"}}})
	prefix := func(s string) []byte { return prefixValue6(netip.MustParsePrefix(s)) }
	for _, tt := range []struct {
		kind  radius.Type
		value []byte
		want  string
	}{
		{rfc3162.FramedIPv6Prefix_Type, prefix("2001:db8::/65"), "Prefix 2001:db8::/65, which is longer than /64"},
		{rfc4818.DelegatedIPv6Prefix_Type, prefix("2001:db8::/80"), "Delegated-IPv6-Prefix 2001:db8::/80, which is longer"},
		{rfc3162.FramedIPv6Prefix_Type, prefix("2001:db8::1/64"), "has bits beyond its length"},
		{rfc3162.FramedIPv6Prefix_Type, prefix("fe80::/64"), "has addresses that no host has"},
		{rfc3162.FramedIPv6Prefix_Type, prefix("ff00::/8"), "has addresses that no host has"},
		{rfc3162.FramedIPv6Prefix_Type, prefix("::/0"), "has addresses that no host has"},
		{rfc3162.FramedIPv6Prefix_Type, []byte{0, 64, 0x20, 1}, "004020" + "01, whose bytes are no prefix"},
		{rfc3162.FramedIPv6Prefix_Type, []byte{0, 129, 19: 0}, "whose bytes are no prefix"},
		{rfc3162.FramedIPv6Prefix_Type, nil, "whose bytes are no prefix"},
		{rfc6911.FramedIPv6Address_Type, make([]byte, 16), "no address of a host"},
		{rfc6911.DNSServerIPv6Address_Type, make([]byte, 4), "no address of a host"},
		{rfc3162.FramedInterfaceID_Type, make([]byte, 7), "Framed-Interface-Id of 7 bytes, instead of 8"},
		{rfc3162.FramedIPv6Route_Type, []byte("10.0.0.0/8 0.0.0.0 1"), "does not begin with an IPv6 network"},
		{rfc3162.FramedIPv6Route_Type, []byte(" "), "which is empty"},
		{rfc6911.RouteIPv6Information_Type, []byte{0, 1, 2}, "Route-IPv6-Information 2"},
	} {
		p := &radius.Packet{Code: radius.CodeAccessAccept}
		p.Add(tt.kind, tt.value)
		_, err := c.decide(credentials("ann", "x"), p)
		if !errors.Is(err, session.ErrUnfit) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%d %x: %v; want %q", tt.kind, tt.value, err, tt.want)
		}
	}
	var many radius.Packet
	for i := range most6 + 1 {
		many.Add(rfc3162.FramedIPv6Prefix_Type, []byte{0, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, byte(i)})
	}
	if _, err := granted6(&many); err == nil || !strings.Contains(err.Error(), "more than 8 of Framed-IPv6-Prefix") {
		t.Errorf("too many: %v", err)
	}
}

// TestDynamicByPrefix: a request finds the session that has all prefixes and the interface identifier that it names,
// and what cannot be changed is refused. Long: most lines are the table of cases.
func TestDynamicByPrefix(t *testing.T) {
	d, o := newDynamic(t)
	o.s.FurtherAddrs = testFurther
	own, delegated := prefixesOf("2001:db8:1::/64", "2001:db8:2::/64"), prefixesOf("2001:db8:7000::/56")
	routed := prefixesOf("2001:db8:9000::/48")
	d.cfg.Prefixes = func(session.Session) Prefixes { return Prefixes{own, delegated, routed} }
	coa := func(fill func(builder)) rfc3576.ErrorCause {
		_, cause := d.carryOut(packet(t, func(p builder) {
			p.Code = radius.CodeCoARequest
			p.vendor(vendorWISPr, wisprMaxUp, []byte{0, 0, 1, 0})
			fill(p)
		}))
		return cause
	}
	const notFound = rfc3576.ErrorCause_Value_SessionContextNotFound
	const unsupported = rfc3576.ErrorCause_Value_UnsupportedAttribute
	for name, tt := range map[string]struct {
		fill func(builder)
		want rfc3576.ErrorCause
	}{
		"its own prefix": {func(p builder) { p.Add(rfc3162.FramedIPv6Prefix_Type, prefixValue6(own[1])) }, 0},
		"its prefix in few bytes": {
			func(p builder) { p.Add(rfc3162.FramedIPv6Prefix_Type, prefixValue6(own[1])[:2+8]) }, 0},
		"all of its prefixes": {func(p builder) {
			p.Add(rfc3162.FramedIPv6Prefix_Type, prefixValue6(own[0]))
			p.Add(rfc4818.DelegatedIPv6Prefix_Type, prefixValue6(delegated[0]))
			p.Add(rfc3162.FramedInterfaceID_Type, []byte{7: 5})
		}, 0},
		"a delegated prefix as its own": {
			func(p builder) { p.Add(rfc3162.FramedIPv6Prefix_Type, prefixValue6(delegated[0])) }, notFound},
		"another's prefix besides": {func(p builder) {
			p.Add(rfc3162.FramedIPv6Prefix_Type, prefixValue6(own[0]))
			p.Add(rfc3162.FramedIPv6Prefix_Type, prefixValue6(netip.MustParsePrefix("2001:db8:3::/64")))
		}, notFound},
		"a part of its prefix": {func(p builder) {
			p.Add(rfc4818.DelegatedIPv6Prefix_Type, prefixValue6(netip.MustParsePrefix("2001:db8:7000::/57")))
		}, notFound},
		"no prefix":          {func(p builder) { p.Add(rfc3162.FramedIPv6Prefix_Type, []byte{0}) }, notFound},
		"an identifier":      {func(p builder) { p.Add(rfc3162.FramedInterfaceID_Type, []byte{7: 5}) }, 0},
		"another identifier": {func(p builder) { p.Add(rfc3162.FramedInterfaceID_Type, []byte{7: 6}) }, notFound},
		"no identifier":      {func(p builder) { p.Add(rfc3162.FramedInterfaceID_Type, []byte{5}) }, notFound},
		"other DNS servers": {
			func(p builder) { p.Add(rfc6911.DNSServerIPv6Address_Type, testFurther[1].AsSlice()) }, unsupported},
		"another pool":           {func(p builder) { p.text(rfc3162.FramedIPv6Pool_Type, "gold") }, unsupported},
		"another delegated pool": {func(p builder) { p.text(rfc6911.DelegatedIPv6PrefixPool_Type, "gold") }, unsupported},
		"another address pool":   {func(p builder) { p.text(rfc6911.StatefulIPv6AddressPool_Type, "gold") }, unsupported},
		"another route":          {func(p builder) { p.text(rfc3162.FramedIPv6Route_Type, "2001:db8::/48") }, unsupported},
		"a route to be told": {
			func(p builder) { p.Add(rfc6911.RouteIPv6Information_Type, prefixValue6(own[0])) }, unsupported},
	} {
		changed := o.changed
		got := coa(func(p builder) {
			if tt.want == unsupported {
				p.text(rfc2866.AcctSessionID_Type, o.s.ID)
			}
			tt.fill(p)
		})
		if got != tt.want || (o.changed > changed) != (tt.want == 0) {
			t.Errorf("%s: Error-Cause %d, want %d; %d changes", name, got, tt.want, o.changed-changed)
		}
	}
	if o.s.Limits.UpBps != 256 {
		t.Errorf("its rate is %d", o.s.Limits.UpBps)
	}
}

// FuzzGranted6: whatever a server sends, what a client is given can be used, and can be told as it came.
func FuzzGranted6(f *testing.F) {
	for _, kind := range []radius.Type{rfc3162.FramedIPv6Prefix_Type, rfc4818.DelegatedIPv6Prefix_Type} {
		f.Add(append([]byte{byte(kind), 20}, prefixValue6(netip.MustParsePrefix("2001:db8:7000::/56"))...))
	}
	f.Add([]byte("\x63\x182001:db8:9000::/48 :: 1"))
	f.Add(append([]byte{byte(rfc6911.DNSServerIPv6Address_Type), 18}, testFurther[1].AsSlice()...))
	f.Fuzz(func(t *testing.T, attributes []byte) {
		all, err := radius.ParseAttributes(attributes)
		if err != nil {
			return
		}
		g, err := granted6(&radius.Packet{Attributes: all})
		if err != nil || g == nil {
			return
		}
		for _, set := range [][]netip.Prefix{g.Prefixes, g.Delegated, g.Routes, g.Told} {
			if len(set) > most6 {
				t.Errorf("%d of one attribute", len(set))
			}
			for _, p := range set {
				if again, wrong := prefix6(prefixValue6(p)); wrong != "" || again != p || !p.Addr().IsGlobalUnicast() {
					t.Errorf("%s is given, and told as %s %s", p, again, wrong)
				}
			}
		}
		for _, p := range append(g.Prefixes, g.Delegated...) {
			if p.Bits() > longest6 {
				t.Errorf("%s is given, of which no host makes addresses", p)
			}
		}
		for _, a := range append(g.Addrs, g.DNS...) {
			if !isAddress6(a) {
				t.Errorf("%s is given", a)
			}
		}
	})
}

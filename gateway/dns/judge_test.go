// Tests of what the server takes from an answer: which names are in the walled garden (the names that clients reach
// without login), and which addresses may be opened for them.

package dns

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	miekg "github.com/miekg/dns"
)

func testPolicy(t testing.TB) *policy {
	t.Helper()
	p, err := newPolicy(Config{
		Garden:    []string{"example.org", "*.example.org", "*.deep.example.net"},
		Open:      []netip.Prefix{netip.MustParsePrefix("93.184.217.0/24")},
		NeverOpen: []netip.Prefix{netip.MustParsePrefix("93.184.218.0/24")},
		Local:     map[string]netip.Addr{"portal.lan": netip.MustParseAddr("10.1.0.1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGardenHas(t *testing.T) {
	g := testPolicy(t).garden
	for name, want := range map[string]bool{
		"example.org.": true, "a.example.org.": true, "a.b.c.example.org.": true,
		"deep.example.net.": false, "x.deep.example.net.": true, "example.net.": false,
		"badexample.org.": false, "org.": false, ".": false, "example.org.evil.": false,
		`a\.example.org.`:                          false, // the label "a.example", below org
		`a\.b.example.org.`:                        true,
		strings.Repeat("a.", 120) + "example.org.": true,
	} {
		if got := g.contains(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestOpenable(t *testing.T) {
	p := testPolicy(t)
	for addr, want := range map[string]bool{
		"93.184.216.34": true, "1.1.1.1": true, "223.255.255.254": true,
		"10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "127.0.0.1": false, "169.254.169.254": false,
		"0.0.0.0": false, "0.1.2.3": false, "100.64.0.1": false, "192.0.0.8": false, "198.18.0.1": false,
		"224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"93.184.217.5":          false, // open already
		"93.184.218.5":          false, // the gateway's
		"2606:2800:21f:cb07::1": false, "::ffff:93.184.216.34": false,
	} {
		if got := p.openable(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

// records parses resource records from lines like "name CNAME target".
func records(t testing.TB, lines ...string) (list []miekg.RR) {
	t.Helper()
	for _, l := range lines {
		name, rest, _ := strings.Cut(l, " ")
		rr, err := miekg.NewRR(name + " 300 IN " + rest)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, rr)
	}
	return list
}

func TestLearn(t *testing.T) {
	chain := []string{}
	for i := range maxChain + 1 {
		chain = append(chain, fmt.Sprintf("c%d.example.org. CNAME c%d.example.org.", i, i+1))
	}
	for _, tt := range []struct {
		name   string
		asked  string
		answer []string
		want   []string
	}{
		{"its addresses", "example.org.", []string{"example.org. A 1.1.1.1", "example.org. A 1.1.1.2"},
			[]string{"1.1.1.1", "1.1.1.2"}},
		{"a chain, in any order and case", "WWW.example.org.",
			[]string{"Cdn.NET. A 1.1.1.1", "www.example.org. CNAME cdn.net."}, []string{"1.1.1.1"}},
		{"others beside it", "example.org.",
			[]string{"evil.net. A 6.6.6.6", "example.org. A 1.1.1.1", "x.example.org. A 6.6.6.7"}, []string{"1.1.1.1"}},
		{"a question elsewhere that leads here", "evil.net.",
			[]string{"evil.net. CNAME example.org.", "example.org. A 6.6.6.6"}, nil},
		{"nothing but others", "example.org.", []string{"evil.net. A 6.6.6.6"}, nil},
		{"a loop", "a.example.org.", []string{"a.example.org. CNAME b.example.org.", "b.example.org. CNAME a.example.org."},
			nil},
		{"a chain too long", "c0.example.org.",
			append(slices.Clone(chain), fmt.Sprintf("c%d.example.org. A 1.1.1.1", maxChain+1)), nil},
		{"private ones", "example.org.", []string{"example.org. A 10.1.1.1", "example.org. A 1.1.1.1"}, []string{"1.1.1.1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := miekg.Question{Name: tt.asked, Qtype: miekg.TypeA, Qclass: miekg.ClassINET}
			var got []string
			for _, o := range testPolicy(t).learn(q, records(t, tt.answer...)) {
				got = append(got, o.addr.String())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("opens %v, want %v", got, tt.want)
			}
		})
	}
}

// TestReplyIsMadeAnew: only the client's question reaches an upstream, and DNSSEC's bits pass both ways.
func TestReplyIsMadeAnew(t *testing.T) {
	q := query("example.net.", miekg.TypeA).SetEdns0(900, true)
	q.CheckingDisabled, q.AuthenticatedData = true, true
	q.IsEdns0().Option = []miekg.EDNS0{&miekg.EDNS0_COOKIE{Code: miekg.EDNS0COOKIE, Cookie: "24a5ac1223344556"}}
	f := forward(q, 7, true)
	if opt := f.IsEdns0(); f.Id != 7 || !f.CheckingDisabled || !f.AuthenticatedData || !opt.Do() || len(opt.Option) != 0 ||
		opt.UDPSize() != udpBytes {
		t.Errorf("forwarded as %v", f)
	}
	answer := new(miekg.Msg).SetReply(f)
	answer.AuthenticatedData, answer.RecursionAvailable = true, true
	answer.Answer = records(t, "example.net. A 1.1.1.1")
	answer.SetEdns0(4096, true)
	answer.Extra = append(answer.Extra, records(t, "ns.example.net. A 1.1.1.2")...)
	r, open := testPolicy(t).replyFor(q, answer)
	if opt := r.IsEdns0(); r.Id != q.Id || !r.AuthenticatedData || !r.CheckingDisabled || !opt.Do() ||
		opt.UDPSize() != udpBytes || len(r.Extra) != 2 || len(open) != 0 {
		t.Errorf("answered as %v, opening %v", r, open)
	}
	if replySize(q) != 900 || replySize(query("example.net.", miekg.TypeA)) != 512 ||
		replySize(query("a.", 1).SetEdns0(1, false)) != 512 || replySize(query("a.", 1).SetEdns0(65535, false)) != udpBytes {
		t.Error("reply sizes are not the client's within bounds")
	}
}

// FuzzJudge gives the policy any query and any answer. Long: it states the rules for every kind of answer.
func FuzzJudge(f *testing.F) {
	add := func(q, answer *miekg.Msg) {
		a, err1 := q.Pack()
		b, err2 := answer.Pack()
		if err1 != nil || err2 != nil {
			f.Fatal(err1, err2)
		}
		f.Add(a, b)
	}
	q := query("www.example.org.", miekg.TypeA).SetEdns0(1232, true)
	answer := new(miekg.Msg).SetReply(q)
	answer.Answer = records(
		f, "www.example.org. CNAME cdn.net.", "cdn.net. A 1.1.1.1", "cdn.net. A 10.1.1.1", "evil.net. A 6.6.6.6")
	add(q, answer)
	add(query("evil.net.", miekg.TypeA), answer)
	add(query("portal.lan.", miekg.TypeA), new(miekg.Msg))
	p := testPolicy(f)
	f.Fuzz(func(t *testing.T, query, upstream []byte) {
		q, r := p.screen(query)
		var open []opening
		answer := new(miekg.Msg)
		size := miekg.MinMsgSize
		if q != nil {
			if answer.Unpack(upstream) != nil {
				return
			}
			r, open = p.replyFor(q, answer)
			size = replySize(q)
		}
		if r == nil {
			return
		}
		for _, o := range open {
			if !names(answer, o.addr) || !p.openable(o.addr) || !p.garden.contains(miekg.CanonicalName(q.Question[0].Name)) {
				t.Errorf("%v opened %s", q.Question, o.addr)
			}
		}
		raw, err := pack(r, size)
		if err != nil {
			return // answered with SERVFAIL
		}
		if len(raw) > size {
			t.Errorf("%d bytes, more than %d", len(raw), size)
		}
		again := new(miekg.Msg)
		if err := again.Unpack(raw); err != nil || !again.Response || again.Id != r.Id {
			t.Errorf("%v: %v", again, err)
		}
	})
}

// names reports whether an answer contains an address.
func names(m *miekg.Msg, addr netip.Addr) bool {
	return slices.ContainsFunc(m.Answer, func(rr miekg.RR) bool {
		a, ok := rr.(*miekg.A)
		return ok && a.A.Equal(net.IP(addr.AsSlice()))
	})
}

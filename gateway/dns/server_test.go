// Tests of the server for clients that have not logged in: it opens the addresses of the names in the walled garden
// before it answers. main_test.go has the helpers: start runs the server, whose recorder notes which addresses it
// opens; dnsmasq is an upstream resolver; ask sends a query over "udp" or "tcp", query makes one, and values lists the
// data of the answer.

package dns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
)

// walledGarden is a resolver with names in and around the garden.
func walledGarden(t testing.TB) netip.AddrPort {
	return dnsmasq(t,
		"--host-record=pay.example,93.184.216.34,2606:2800:21f:cb07::1,300",
		"--host-record=cdn.other.example,93.184.216.35,300",
		"--host-record=hour.example,93.184.216.36,86400",
		"--cname=www.pay.example,shop.other.example", "--cname=shop.other.example,cdn.other.example",
		"--host-record=inside.pay.example,10.1.0.7", "--host-record=loop.pay.example,127.0.0.1",
		"--host-record=gateway.pay.example,93.184.216.99", "--host-record=named.pay.example,93.184.217.1",
		"--host-record=evil.example,6.6.6.6", "--cname=lure.example,pay.example",
		"--txt-record=pay.example,hello")
}

var gardenNames = []string{"pay.example", "*.PAY.example", "hour.example"}

func TestOpensTheGarden(t *testing.T) {
	upstream := walledGarden(t)
	for _, tt := range []struct {
		name string
		kind uint16
		want []string // answered
		open []string
	}{
		{"pay.example.", miekg.TypeA, []string{"A 93.184.216.34"}, []string{"93.184.216.34/32"}},
		{"PaY.eXaMpLe.", miekg.TypeA, []string{"A 93.184.216.34"}, []string{"93.184.216.34/32"}},
		{"www.pay.example.", miekg.TypeA,
			[]string{"A 93.184.216.35", "CNAME cdn.other.example.", "CNAME shop.other.example."}, []string{"93.184.216.35/32"}},
		{"www.pay.example.", miekg.TypeCNAME, []string{"CNAME shop.other.example."}, nil},
		{"cdn.other.example.", miekg.TypeA, []string{"A 93.184.216.35"}, nil},
		{"inside.pay.example.", miekg.TypeA, []string{"A 10.1.0.7"}, nil},
		{"loop.pay.example.", miekg.TypeA, []string{"A 127.0.0.1"}, nil},
		{"gateway.pay.example.", miekg.TypeA, []string{"A 93.184.216.99"}, nil},
		{"named.pay.example.", miekg.TypeA, []string{"A 93.184.217.1"}, nil}, // open by its prefix
		{"evil.example.", miekg.TypeA, []string{"A 6.6.6.6"}, nil},
		{"lure.example.", miekg.TypeA, []string{"A 93.184.216.34", "CNAME pay.example."}, nil},
		{"pay.example.evil.example.", miekg.TypeA, []string{}, nil},
		{"pay.example.", miekg.TypeTXT, []string{`TXT "hello"`}, nil},
		{"pay.example.", miekg.TypeAAAA, []string{}, nil},
		{"pay.example.", miekg.TypeHTTPS, []string{}, nil},
	} {
		for _, network := range []string{"udp", "tcp"} {
			t.Run(fmt.Sprint(tt.name, miekg.TypeToString[tt.kind], "/", network), func(t *testing.T) {
				d := &recorder{}
				s := start(t, d, []netip.AddrPort{upstream}, func(c *Config) {
					c.Garden = gardenNames
					c.NeverOpen = []netip.Prefix{netip.MustParsePrefix("93.184.216.99/32")}
					c.Open = []netip.Prefix{netip.MustParsePrefix("93.184.217.0/24")}
				})
				r := ask(t, s, network, query(tt.name, tt.kind))
				if got := values(r); !slices.Equal(got, tt.want) {
					t.Errorf("answered %q, want %q", got, tt.want)
				}
				if got := d.list(); !slices.Equal(got, tt.open) {
					t.Errorf("open %v, want %v", got, tt.open)
				}
				if r.Question[0].Name != tt.name || !r.RecursionAvailable {
					t.Errorf("%v", r)
				}
			})
		}
	}
}

// TestOpensBeforeAnswering: a client connects as soon as it has the answer, also one that asked for the same name at
// the same time.
func TestOpensBeforeAnswering(t *testing.T) {
	d := &recorder{hold: make(chan struct{})}
	s := start(t, d, []netip.AddrPort{walledGarden(t)}, func(c *Config) { c.Garden = gardenNames })
	answers := make(chan error)
	for range 2 {
		go func() {
			_, err := miekg.Exchange(query("pay.example.", miekg.TypeA), s.Addr().String())
			answers <- err
		}()
	}
	await(t, "both to be resolved", func() bool { return s.Stats().Forwarded == 2 })
	select {
	case err := <-answers:
		t.Errorf("answered before the address was open: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(d.hold)
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if n := d.count(); n != 1 {
		t.Errorf("opened %d times, want once", n)
	}
}

func TestOpenAsLongAsTheName(t *testing.T) {
	now := time.Unix(1e9, 0)
	for ttl, want := range map[time.Duration]time.Duration{
		0: 2 * time.Minute, 30 * time.Second: 2 * time.Minute, 5 * time.Minute: 6 * time.Minute,
		24 * time.Hour: 61 * time.Minute, 1<<31*time.Second - 1: 61 * time.Minute,
	} {
		if got := (opening{ttl: ttl}).closesAt(now).Sub(now); got != want {
			t.Errorf("TTL %s: open for %s, want %s", ttl, got, want)
		}
	}
	d := &recorder{}
	s := start(t, d, []netip.AddrPort{walledGarden(t)}, func(c *Config) { c.Garden = gardenNames })
	ask(t, s, "udp", query("pay.example.", miekg.TypeA))
	ask(t, s, "udp", query("hour.example.", miekg.TypeA))
	five, hour := time.Until(d.until("93.184.216.34/32")), time.Until(d.until("93.184.216.36/32"))
	if five > 6*time.Minute || five < 5*time.Minute || hour > 61*time.Minute || hour < 60*time.Minute {
		t.Errorf("open for %s and %s", five, hour)
	}
	// Asked again, the address is open long enough; after an error it is opened again.
	ask(t, s, "udp", query("pay.example.", miekg.TypeA))
	d.failWith(errors.New("data path is full"))
	ask(t, s, "udp", query("www.pay.example.", miekg.TypeA))
	d.failWith(nil)
	ask(t, s, "udp", query("www.pay.example.", miekg.TypeA))
	if st, n := s.Stats(), d.count(); n != 4 || st.Opened != 3 || st.OpenErrors != 1 {
		t.Errorf("%d calls, stats %+v", n, st)
	}
}

// TestOpenedAddressesAreBounded: a wildcard garden with changing addresses fills neither memory nor the data path.
func TestOpenedAddressesAreBounded(t *testing.T) {
	d := &recorder{}
	s := start(t, d, []netip.AddrPort{freePort(t)}, nil)
	address := netip.MustParseAddr("93.0.0.1")
	for range maxOpened + 10 {
		s.open(opening{addr: address}, "x.example.")
		address = address.Next()
	}
	if st := s.Stats(); d.count() != maxOpened || st.OpenRefused != 10 {
		t.Errorf("opened %d, stats %+v", d.count(), st)
	}
	// Expired addresses free their places.
	s.mu.Lock()
	s.opened[openPlace{addr: netip.MustParseAddr("93.0.0.1")}] = time.Now().Add(-time.Second)
	s.mu.Unlock()
	s.open(opening{addr: address}, "x.example.")
	if d.count() != maxOpened+1 || len(s.opened) != maxOpened {
		t.Errorf("opened %d, %d noted", d.count(), len(s.opened))
	}
}

// TestLocalAnswers: queries that the gateway answers itself. Long: most lines are the table of cases.
func TestLocalAnswers(t *testing.T) {
	upstream := walledGarden(t)
	s := start(t, &recorder{}, []netip.AddrPort{upstream}, func(c *Config) {
		c.Local = map[string]netip.Addr{"portal.example": netip.MustParseAddr("10.1.0.1")}
	})
	six := start(t, &recorder{}, []netip.AddrPort{upstream}, func(c *Config) { c.IPv6 = true })
	edns := func(q *miekg.Msg, version uint8) *miekg.Msg {
		q.SetEdns0(4096, false)
		q.IsEdns0().SetVersion(version)
		return q
	}
	chaos := query("version.bind.", miekg.TypeTXT)
	chaos.Question[0].Qclass = miekg.ClassCHAOS
	update := query("pay.example.", miekg.TypeSOA)
	update.Opcode = miekg.OpcodeUpdate
	stuffed := query("pay.example.", miekg.TypeA)
	stuffed.Answer = []miekg.RR{&miekg.A{Hdr: miekg.RR_Header{Name: "pay.example.", Rrtype: miekg.TypeA,
		Class: miekg.ClassINET}, A: net.IP{6, 6, 6, 6}}}
	for _, tt := range []struct {
		name   string
		server *Server
		q      *miekg.Msg
		rcode  int
		want   []string
	}{
		{"local name", s, query("Portal.Example.", miekg.TypeA), miekg.RcodeSuccess, []string{"A 10.1.0.1"}},
		{"local name, AAAA", s, query("portal.example.", miekg.TypeAAAA), miekg.RcodeSuccess, []string{}},
		{"AAAA", s, query("pay.example.", miekg.TypeAAAA), miekg.RcodeSuccess, []string{}},
		{"AAAA with IPv6", six, query("pay.example.", miekg.TypeAAAA), miekg.RcodeSuccess,
			[]string{"AAAA 2606:2800:21f:cb07::1"}},
		{"ANY", s, query("pay.example.", miekg.TypeANY), miekg.RcodeRefused, []string{}},
		{"zone transfer", s, query("pay.example.", miekg.TypeAXFR), miekg.RcodeRefused, []string{}},
		{"incremental zone transfer", s, query("pay.example.", miekg.TypeIXFR), miekg.RcodeRefused, []string{}},
		{"type 0", s, query("pay.example.", miekg.TypeNone), miekg.RcodeRefused, []string{}},
		{"another class", s, chaos, miekg.RcodeRefused, []string{}},
		{"update", s, update, miekg.RcodeNotImplemented, []string{}},
		{"answer in a query", s, stuffed, miekg.RcodeFormatError, []string{}},
		{"no question", s, new(miekg.Msg), miekg.RcodeFormatError, []string{}},
		{"EDNS of the future", s, edns(query("pay.example.", miekg.TypeA), 7), miekg.RcodeBadVers, []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(t, tt.server, "tcp", tt.q)
			if got := values(r); r.Rcode != tt.rcode || !slices.Equal(got, tt.want) {
				t.Errorf("%s %q, want %s %q", miekg.RcodeToString[r.Rcode], got, miekg.RcodeToString[tt.rcode], tt.want)
			}
		})
	}
	if st := s.Stats(); st.Forwarded != 0 {
		t.Errorf("upstreams were asked: %+v", st)
	}
}

// TestLargeAnswers: truncated answers are fetched over TCP, and all of their addresses are opened even if the client
// gets fewer.
func TestLargeAnswers(t *testing.T) {
	args := []string{}
	for i := range 120 {
		args = append(args, fmt.Sprintf("--host-record=big.example,93.184.1.%d", i+1))
	}
	d := &recorder{}
	s := start(t, d, []netip.AddrPort{dnsmasq(t, args...)}, func(c *Config) { c.Garden = []string{"big.example"} })
	small := ask(t, s, "udp", query("big.example.", miekg.TypeA))
	small.Compress = true
	if raw, err := small.Pack(); err != nil || !small.Truncated || len(raw) > 512 {
		t.Errorf("over UDP: %d bytes, truncated %v, %v", len(raw), small.Truncated, err)
	}
	if n := len(d.list()); n != 120 {
		t.Errorf("%d addresses are open, want 120", n)
	}
	larger := query("big.example.", miekg.TypeA).SetEdns0(4096, true)
	medium := ask(t, s, "udp", larger)
	if opt := medium.IsEdns0(); !medium.Truncated || len(medium.Answer) <= len(small.Answer) || opt == nil || !opt.Do() ||
		opt.UDPSize() != udpBytes {
		t.Errorf("over UDP with EDNS: %d answers, %d without; %v", len(medium.Answer), len(small.Answer), opt)
	}
	if whole := ask(t, s, "tcp", query("big.example.", miekg.TypeA)); whole.Truncated || len(whole.Answer) != 120 {
		t.Errorf("over TCP: %d answers, truncated %v", len(whole.Answer), whole.Truncated)
	}
}

func TestGarbageGetsNoAnswer(t *testing.T) {
	s := start(t, &recorder{}, []netip.AddrPort{walledGarden(t)}, nil)
	conn, err := net.Dial("udp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	response := query("pay.example.", miekg.TypeA)
	response.Response = true
	raw, err := response.Pack()
	if err != nil {
		t.Fatal(err)
	}
	good, err := query("pay.example.", miekg.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	garbage := [][]byte{
		{}, {0}, raw[:11], raw, append(good[:len(good)-5:len(good)-5], 0xc0), []byte(strings.Repeat("x", 4000))}
	for _, g := range garbage {
		if _, err := conn.Write(g); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the garbage", func() bool { return s.Stats().Garbage == uint64(len(garbage)) })
	if _, err := conn.Write(good); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	n, err := conn.Read(buf)
	first := new(miekg.Msg)
	if err != nil || first.Unpack(buf[:n]) != nil || len(first.Answer) != 1 {
		t.Errorf("the first thing to come back: %v, %v", first, err)
	}
}

func TestForeignSourcesIgnored(t *testing.T) {
	s := start(t, &recorder{}, []netip.AddrPort{walledGarden(t)}, func(c *Config) {
		c.Clients = []netip.Prefix{netip.MustParsePrefix("127.0.1.0/24")}
		c.Interface = "lo"
	})
	raw, _ := query("pay.example.", miekg.TypeA).Pack()
	conn, err := net.Dial("udp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Write(raw)
	await(t, "the foreign query", func() bool { return s.Stats().Foreign == 1 })
	local := miekg.Client{
		Timeout: 20 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IP{127, 0, 1, 5}}}}
	if _, _, err := local.Exchange(query("pay.example.", miekg.TypeA), s.Addr().String()); err != nil {
		t.Error(err)
	}
	if st := s.Stats(); st.Queries != 1 {
		t.Errorf("stats %+v", st)
	}
}

func TestConfigErrors(t *testing.T) {
	good := Config{Listen: netip.MustParseAddrPort("127.0.0.1:0"),
		Upstreams: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.2:53")}}
	for want, edit := range map[string]func(*Config){
		"no address":          func(c *Config) { c.Listen = netip.AddrPort{} },
		"no upstream":         func(c *Config) { c.Upstreams = nil },
		"upstream 0.0.0.0:53": func(c *Config) { c.Upstreams = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:53")} },
		"upstream 127.0.0.1:53": func(c *Config) {
			c.Listen = netip.MustParseAddrPort("127.0.0.1:53")
			c.Upstreams = []netip.AddrPort{c.Listen}
		},
		"must be positive":      func(c *Config) { c.PerClient = -1 },
		`"*" is neither`:        func(c *Config) { c.Garden = []string{"*"} },
		`"a.*.b" is neither`:    func(c *Config) { c.Garden = []string{"a.*.b"} },
		`"*." is neither`:       func(c *Config) { c.Garden = []string{"*."} },
		`".example" is neither`: func(c *Config) { c.Garden = []string{".example"} },
		`"a b" is neither`:      func(c *Config) { c.Garden = []string{"a b"} },
		`local name "portal"`:   func(c *Config) { c.Local = map[string]netip.Addr{"portal": netip.MustParseAddr("::1")} },
		"no such device":        func(c *Config) { c.Interface = "none0" },
	} {
		cfg := good
		edit(&cfg)
		if s, err := New(cfg, &recorder{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v, %v", want, s, err)
		}
	}
	s := start(t, &recorder{}, good.Upstreams, nil)
	taken := good
	taken.Listen = s.Addr()
	if _, err := New(taken, &recorder{}); err == nil || !strings.Contains(err.Error(), "another DNS server has the port") {
		t.Errorf("%v", err)
	}
}

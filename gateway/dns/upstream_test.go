// Tests of upstream resolvers that fail, keep silent or are forged. main_test.go has the helpers: start runs the server
// that is tested, whose recorder notes which addresses it opens; dnsmasq is an upstream resolver; ask sends a query
// over "udp" or "tcp", query makes one, and values lists the data of the answer. walledGarden is an upstream resolver
// that knows gardenNames (server_test.go).

package dns

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	miekg "github.com/miekg/dns"

	"github.com/gateweigh/gateweigh/internal/logtest"
)

// silentUpstream is an upstream that receives queries and never answers. Its datagrams arrive on the channel.
func silentUpstream(t testing.TB) (netip.AddrPort, net.PacketConn) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return netip.MustParseAddrPort(conn.LocalAddr().String()), conn
}

func TestFailover(t *testing.T) {
	good := walledGarden(t)
	dead := freePort(t)
	mute, _ := silentUpstream(t)
	refusing := dnsmasq(t) // knows nothing, and has nobody to ask
	for name, list := range map[string][]netip.AddrPort{
		"refused by the kernel": {dead, good},
		"no answer":             {mute, good},
		"refused by DNS":        {refusing, good},
		"all of them":           {dead, mute, refusing, good},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, &recorder{}, list, func(c *Config) { c.Timeout = time.Second })
			for range 3 {
				if r := ask(t, s, "udp", query("pay.example.", miekg.TypeA)); !slices.Equal(
					values(r), []string{"A 93.184.216.34"}) {
					t.Errorf("%v", r)
				}
			}
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		t.Parallel()
		s := start(t, &recorder{}, []netip.AddrPort{dead, mute}, func(c *Config) { c.Timeout = 50 * time.Millisecond })
		if r := ask(t, s, "udp", query("pay.example.", miekg.TypeA)); r.Rcode != miekg.RcodeServerFailure ||
			s.Stats().Failed != 1 {
			t.Errorf("%v, stats %+v", r, s.Stats())
		}
	})
	t.Run("everybody refuses", func(t *testing.T) {
		t.Parallel()
		s := start(t, &recorder{}, []netip.AddrPort{refusing}, nil)
		if r := ask(t, s, "udp", query("pay.example.", miekg.TypeA)); r.Rcode != miekg.RcodeRefused {
			t.Errorf("%v", r)
		}
	})
}

func TestUpstreamThatFailedIsAskedLast(t *testing.T) {
	us := upstreams{{addr: netip.MustParseAddrPort("10.0.0.1:53")}, {addr: netip.MustParseAddrPort("10.0.0.2:53")}, {
		addr: netip.MustParseAddrPort("10.0.0.3:53")}}
	now := time.Now()
	us[0].down.Store(now.Add(downTime).UnixNano())
	order := func(instant time.Time) (list []string) {
		for _, u := range us.order(instant) {
			list = append(list, u.addr.Addr().String())
		}
		return list
	}
	if got := order(now); !slices.Equal(got, []string{"10.0.0.2", "10.0.0.3", "10.0.0.1"}) {
		t.Errorf("%v", got)
	}
	if got := order(now.Add(downTime)); !slices.Equal(got, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
		t.Errorf("%v after its time", got)
	}
}

// TestSilentUpstreamIsLogged: an upstream is logged once when it has answered nothing for a while, and once when it
// answers again.
func TestSilentUpstreamIsLogged(t *testing.T) {
	var logged logtest.Log
	u := &upstream{addr: netip.MustParseAddrPort("192.0.2.53:53"), log: logged.Logger()}
	begin := time.Now()
	for i, step := range []struct {
		after time.Duration
		err   error
		want  int // lines so far
	}{
		{0, errStrays, 0}, {time.Second, errStrays, 0}, {2 * time.Second, errStrays, 0}, // not for long enough
		{3 * time.Second, nil, 0}, {14 * time.Second, errStrays, 0}, {15 * time.Second, errStrays, 0}, // too few
		{16 * time.Second, errStrays, 1}, {40 * time.Second, errStrays, 1},
		{50 * time.Second, nil, 2}, {51 * time.Second, nil, 2},
	} {
		u.countOutcome(step.err, begin.Add(step.after))
		if n := logged.Count("192.0.2.53:53"); n != step.want {
			t.Fatalf("after step %d %d lines are logged, want %d:\n%s", i, n, step.want, &logged)
		}
	}
}

// TestForgedAnswers: wrong answers are not accepted, and queries are hard to guess.
func TestForgedAnswers(t *testing.T) {
	addr, conn := silentUpstream(t)
	d := &recorder{}
	s := start(t, d, []netip.AddrPort{addr}, func(c *Config) { c.Garden = gardenNames; c.Timeout = 20 * time.Second })
	ids, ports := map[uint16]bool{}, map[string]bool{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			q := new(miekg.Msg)
			if q.Unpack(buf[:n]) != nil {
				continue
			}
			ids[q.Id], ports[from.String()] = true, true
			for _, raw := range forgeries(q) {
				conn.WriteTo(raw, from)
			}
		}
	}()
	const n = 50
	for i := range n {
		r := ask(t, s, "udp", query("pay.example.", miekg.TypeA))
		if got := values(r); !slices.Equal(got, []string{"A 93.184.216.34"}) {
			t.Fatalf("query %d: %v", i, got)
		}
	}
	if got := d.list(); !slices.Equal(got, []string{"93.184.216.34/32"}) {
		t.Errorf("open %v", got)
	}
	s.Close()
	conn.Close()
	<-done
	if len(ids) < n-3 || len(ports) < n-3 {
		t.Errorf("%d queries had %d identifiers and %d ports", n, len(ids), len(ports))
	}
}

// forgeries returns wrong answers to a query, followed by the right one.
func forgeries(q *miekg.Msg) (list [][]byte) {
	answer := func(ip net.IP, edit func(*miekg.Msg)) {
		r := new(miekg.Msg).SetReply(q)
		r.Answer = []miekg.RR{&miekg.A{Hdr: miekg.RR_Header{Name: q.Question[0].Name, Rrtype: miekg.TypeA,
			Class: miekg.ClassINET, Ttl: 60}, A: ip}}
		edit(r)
		raw, err := r.Pack()
		if err == nil {
			list = append(list, raw)
		}
	}
	evil := net.IP{6, 6, 6, 6}
	answer(evil, func(r *miekg.Msg) { r.Id++ })
	answer(evil, func(r *miekg.Msg) { r.Response = false })
	answer(evil, func(r *miekg.Msg) { r.Question[0].Name = "other.example." })
	answer(evil, func(r *miekg.Msg) { r.Question[0].Qtype = miekg.TypeTXT })
	answer(evil, func(r *miekg.Msg) { r.Question = nil })
	answer(evil, func(r *miekg.Msg) { r.Opcode = miekg.OpcodeNotify })
	list = append(list, []byte("garbage"))
	answer(net.IP{93, 184, 216, 34}, func(*miekg.Msg) {})
	return list
}

// TestLimits: one client's flood does not affect others' answers.
func TestLimits(t *testing.T) {
	mute, _ := silentUpstream(t)
	s := start(t, &recorder{}, []netip.AddrPort{mute}, func(c *Config) {
		c.PerClient, c.Total = 5, 8
		c.Local = map[string]netip.Addr{"portal.example": netip.MustParseAddr("10.1.0.1")}
		c.Timeout = 20 * time.Second
	})
	raw, err := query("pay.example.", miekg.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	flood := func(from string) {
		conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, net.UDPAddrFromAddrPort(s.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		for range 20 {
			conn.Write(raw)
		}
	}
	flood("127.0.5.1")
	await(t, "the flood", func() bool { return s.Stats().Busy == 16 })
	other := miekg.Client{
		Timeout: 20 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IP{127, 0, 5, 2}}}}
	if _, _, err := other.Exchange(query("portal.example.", miekg.TypeA), s.Addr().String()); err != nil {
		t.Errorf("another client: %v", err)
	}
	await(t, "the end of the other client's query", func() bool { return s.Stats().InFlight == 4 })
	flood("127.0.5.3") // while half of all are in use, a client has one
	await(t, "the second flood", func() bool { return s.Stats().Busy == 35 })
	if st := s.Stats(); st.InFlight != 5 || len(s.queries.clients) != 2 {
		t.Errorf("stats %+v", st)
	}
}

// TestConnectionLimits: silent connections do not accumulate.
func TestConnectionLimits(t *testing.T) {
	s := start(t, &recorder{}, []netip.AddrPort{freePort(t)}, nil)
	for range perClientConns + 3 {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	await(t, "the limit", func() bool { return s.Stats().Busy == 3 })
}

// BenchmarkForward measures queries a second to dnsmasq through the server, from 16 clients at once.
func BenchmarkForward(b *testing.B) {
	s := start(b, &recorder{}, []netip.AddrPort{walledGarden(b)}, func(c *Config) { c.Garden = gardenNames })
	var wg sync.WaitGroup
	work := make(chan struct{}, b.N)
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	b.ResetTimer()
	for range 16 {
		wg.Go(func() {
			for range work {
				if _, err := miekg.Exchange(query("pay.example.", miekg.TypeA), s.Addr().String()); err != nil {
					b.Error(fmt.Errorf("query: %w", err))
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
}

// FuzzUpstream gives a query any answer, over UDP and TCP: only one to its question counts.
func FuzzUpstream(f *testing.F) {
	q := forward(query("www.example.org.", miekg.TypeA), 7, true)
	for _, change := range []func(*miekg.Msg){func(*miekg.Msg) {}, func(m *miekg.Msg) { m.Id++ }, func(m *miekg.Msg) {
		m.Response = false
	}, func(m *miekg.Msg) { m.Question = nil }} {
		m := new(miekg.Msg).SetReply(q)
		m.Answer = records(f, "www.example.org. A 1.1.1.1")
		change(m)
		raw, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for network, exchange := range map[string]func(net.Conn, *miekg.Msg, []byte) (*miekg.Msg, error){
			"udp": exchangeUDP, "tcp": exchangeTCP} {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				far.Read(make([]byte, 1024))
				if network == "tcp" {
					writeFrame(far, raw[:min(len(raw), 65535)])
				} else {
					far.Write(raw)
				}
			}()
			m, err := exchange(near, q, []byte("query"))
			near.Close()
			if err == nil && len(m.Question) == 0 && m.Id == q.Id && m.Response && m.Rcode > 0 && len(m.Answer) == 0 {
				continue // a refusal
			}
			if err == nil && (m.Id != q.Id || !m.Response || len(m.Question) != 1 || !strings.EqualFold(m.Question[0].Name,
				q.Question[0].Name) || m.Question[0].Qtype != miekg.TypeA) {
				t.Errorf("%s: %v is taken as the answer", network, m)
			}
		}
	})
}

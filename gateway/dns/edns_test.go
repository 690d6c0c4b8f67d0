// Tests of upstream resolvers that do not know EDNS. main_test.go has the helpers: start runs the server that is
// tested, whose recorder notes which addresses it opens; ask sends it a query over "udp" or "tcp", query makes one, and
// values lists the data of the answer.

package dns

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	miekg "github.com/miekg/dns"
)

// TestUpstreamsWithoutEDNS: an upstream that refuses EDNS, in whichever way, or drops such queries, is asked without,
// and after the first times at once. Long: the steps of one run, each of which needs the state that the one before
// left.
func TestUpstreamsWithoutEDNS(t *testing.T) {
	header := func(q *miekg.Msg, rcode int) *miekg.Msg {
		return &miekg.Msg{MsgHdr: miekg.MsgHdr{Id: q.Id, Response: true, RecursionDesired: true, Rcode: rcode}}
	}
	for name, refuse := range map[string]func(q *miekg.Msg) *miekg.Msg{
		"FORMERR, header only": func(q *miekg.Msg) *miekg.Msg { return header(q, miekg.RcodeFormatError) },
		"FORMERR":              func(q *miekg.Msg) *miekg.Msg { return new(miekg.Msg).SetRcode(q, miekg.RcodeFormatError) },
		"NOTIMP": func(q *miekg.Msg) *miekg.Msg {
			return new(miekg.Msg).SetRcode(q, miekg.RcodeNotImplemented)
		},
		"NOTIMP, header only": func(q *miekg.Msg) *miekg.Msg { return header(q, miekg.RcodeNotImplemented) },
		"BADVERS": func(q *miekg.Msg) *miekg.Msg {
			return new(miekg.Msg).SetRcode(q, miekg.RcodeBadVers).SetEdns0(512, false)
		},
		"SERVFAIL": func(q *miekg.Msg) *miekg.Msg {
			return new(miekg.Msg).SetRcode(q, miekg.RcodeServerFailure)
		},
		"SERVFAIL, header only": func(q *miekg.Msg) *miekg.Msg { return header(q, miekg.RcodeServerFailure) },
		"silence":               func(*miekg.Msg) *miekg.Msg { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var with, without atomic.Int64
			addr := serve(t, func(w miekg.ResponseWriter, q *miekg.Msg) {
				if q.IsEdns0() != nil {
					with.Add(1)
					if r := refuse(q); r != nil {
						w.WriteMsg(r)
					}
					return
				}
				without.Add(1)
				r := new(miekg.Msg).SetReply(q)
				r.Answer = records(t, "pay.example. A 93.184.216.34")
				if q.Question[0].Qtype == miekg.TypeTXT { // more than 512 bytes
					r.Answer = slices.Repeat(
						records(t, `pay.example. TXT "a text that is long enough to be one of many that do not fit"`), 20)
					r.Truncate(miekg.MinMsgSize)
					if w.RemoteAddr().Network() == "tcp" {
						r.Answer, r.Truncated = slices.Repeat(
							records(t, `pay.example. TXT "a text that is long enough to be one of many that do not fit"`), 20), false
					}
				}
				w.WriteMsg(r)
			})
			s := start(t, &recorder{}, []netip.AddrPort{addr}, func(c *Config) { c.Timeout = 200 * time.Millisecond })
			const n = 2 * silentMin
			for range n {
				if r := ask(t, s, "udp", query("pay.example.", miekg.TypeA)); !slices.Equal(
					values(r), []string{"A 93.184.216.34"}) {
					t.Fatalf("%v", r)
				}
			}
			if r := ask(t, s, "tcp", query("pay.example.", miekg.TypeTXT)); len(r.Answer) != 20 {
				t.Errorf("of a long answer %d records came", len(r.Answer))
			}
			if a, b := with.Load(), without.Load(); a > silentMin || b < n+2 {
				t.Errorf("asked %d times with EDNS, and %d times without", a, b)
			}
		})
	}
}

// serve runs a resolver over UDP and TCP until the test ends.
func serve(t *testing.T, answer miekg.HandlerFunc) netip.AddrPort {
	t.Helper()
	addr := freePort(t)
	for _, network := range []string{"udp", "tcp"} {
		ready := make(chan struct{})
		s := &miekg.Server{Addr: addr.String(), Net: network, Handler: answer, NotifyStartedFunc: func() { close(ready) }}
		ended := make(chan error, 1)
		go func() { ended <- s.ListenAndServe() }()
		select {
		case <-ready:
		case err := <-ended:
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Shutdown(); <-ended })
	}
	return addr
}

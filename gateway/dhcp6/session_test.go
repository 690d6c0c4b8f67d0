package dhcp6

import (
	"io"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/sys/unix"
)

// heardFrames is a source of frames as a data path has it.
type heardFrames struct {
	from chan []byte
	over chan struct{}
	end  func()
}

func (h *heardFrames) Read(b []byte) (int, error) {
	select {
	case frame := <-h.from:
		return copy(b, frame), nil
	case <-h.over:
		return 0, os.ErrClosed
	}
}

func (h *heardFrames) Close() error {
	h.end()
	return nil
}

// TestPrefixesInSessions: the clients of PPPoE sessions are delegated prefixes, and given no addresses but those
// that they are to have. Two sessions of
// one device are two clients. What a session has ends with it and not with the daemon, and its device gets the same
// prefix again. Who has no session gets no answer. Long: the steps of one run, each of which needs the state that the
// one before left.
func TestPrefixesInSessions(t *testing.T) {
	w := newWireOf(t, newLAN(t), unix.ETH_P_PPP_SES)
	w.heard = make(chan []byte)
	var mu sync.Mutex
	there := map[uint16]bool{7: true, 8: true}
	var wish Wish
	path := leasesFile(t)
	begin := func() *started {
		return start(t, path, func(cfg *Config) {
			cfg.Requests = func() (io.ReadCloser, error) {
				h := &heardFrames{from: w.heard, over: make(chan struct{})}
				h.end = sync.OnceFunc(func() { close(h.over) })
				return h, nil
			}
			cfg.Wanted = func(c Client, kind Kind) Wish {
				mu.Lock()
				defer mu.Unlock()
				if kind == Address {
					return wish
				}
				return Wish{}
			}
			cfg.InSession = func(c Client) bool {
				mu.Lock()
				defer mu.Unlock()
				return c.MAC == macOf(1) && there[c.Session]
			}
		})
	}
	s := begin()
	in := func(session uint16) station {
		st := stationOf(1)
		st.session = session
		return st
	}
	request := func(kind dhcpv6.MessageType, session uint16, had ...netip.Prefix) netip.Prefix {
		t.Helper()
		r, _ := w.ask(in(session), w.message(kind, in(session), iaPD(2, had...)))
		if got := prefixesOf(r); len(got) == 1 {
			return got[0]
		}
		t.Fatalf("session %d gets %s", session, r.LongString(0))
		return netip.Prefix{}
	}
	first := request(dhcpv6.MessageTypeRequest, 7)
	second := request(dhcpv6.MessageTypeRequest, 8)
	if first == second || !parcels.Contains(first.Addr()) || !parcels.Contains(second.Addr()) {
		t.Fatalf("the sessions have %s and %s", first, second)
	}
	r, _ := w.ask(in(7), w.message(dhcpv6.MessageTypeRequest, in(7), iaNA(1), iaPD(2, first)))
	if ia := r.Options.OneIANA(); ia.Options.Status().StatusCode != iana.StatusNoAddrsAvail || len(addrsOf(r)) > 0 ||
		!slices.Equal(prefixesOf(r), []netip.Prefix{first}) {
		t.Errorf("a session gets %s", r.LongString(0))
	}
	lost := w.message(dhcpv6.MessageTypeRequest, in(9), iaPD(2))
	w.send(in(9), lost)
	r, _ = w.ask(in(7), w.message(dhcpv6.MessageTypeInformationRequest, in(7)))
	if r.TransactionID == lost.TransactionID {
		t.Errorf("a client without a session gets %s", r.LongString(0))
	}

	own := pooled.Addr().Next()
	mu.Lock()
	wish = Wish{Prefixes: []netip.Prefix{netip.PrefixFrom(own, 128)}}
	mu.Unlock()
	r, _ = w.ask(in(7), w.message(dhcpv6.MessageTypeRequest, in(7), iaNA(1)))
	if got := addrsOf(r); !slices.Equal(got, []netip.Addr{own}) {
		t.Errorf("the session gets %v, want %s", got, own)
	}
	r, _ = w.ask(in(8), w.message(dhcpv6.MessageTypeRequest, in(8), iaNA(1)))
	if got := addrsOf(r); len(got) > 0 {
		t.Errorf("another session gets %v", got)
	}

	s.stop()
	s = begin()
	if got := request(dhcpv6.MessageTypeRenew, 7, first); got != first {
		t.Errorf("after a restart the session has %s, not %s", got, first)
	}
	for _, l := range s.Leases() {
		if l.Client() != (Client{MAC: macOf(1), Session: 7}) && l.Client() != (Client{MAC: macOf(1), Session: 8}) {
			t.Errorf("there is %+v", l)
		}
	}
	s.End(Client{MAC: macOf(1), Session: 7})
	s.End(Client{MAC: macOf(1)})
	await(t, "the leases' end", func() bool {
		return s.has("released "+hardware(macOf(1))+" "+first.String()) &&
			s.has("released "+hardware(macOf(1))+" "+own.String()+"/128")
	})
	if got := request(dhcpv6.MessageTypeRenew, 8, second); got != second || len(s.Leases()) != 1 {
		t.Errorf("the other session has %s, not %s: %+v", got, second, s.Leases())
	}
	mu.Lock()
	there = map[uint16]bool{8: true, 9: true}
	mu.Unlock()
	if got := request(dhcpv6.MessageTypeRequest, 9); got != first {
		t.Errorf("the next session of the device has %s, not %s", got, first)
	}
	released := w.message(dhcpv6.MessageTypeRelease, in(9), iaPD(2, first))
	w.ask(in(9), released)
	await(t, "a release", func() bool { return len(s.Leases()) == 1 })
	if end := s.Leases()[0].End; !end.After(time.Now()) {
		t.Errorf("the other lease ends at %s", end)
	}
}

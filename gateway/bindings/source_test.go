// Tests of a Server whose frames come from the test (source) and not from an interface. main_test.go has running, a
// server with what it has told.

package bindings

import (
	"io"
	"net/netip"
	"sync"
	"testing"

	"github.com/mdlayher/ndp"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// source is a source of frames: those that are put into it.
type source struct {
	frames chan []byte
	closed chan struct{}
	once   sync.Once
}

func (s *source) Read(b []byte) (int, error) {
	select {
	case frame := <-s.frames:
		return copy(b, frame), nil
	case <-s.closed:
		return 0, io.ErrClosedPipe
	}
}

func (s *source) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// run runs a server that takes its frames from the source.
func (s *source) run(t *testing.T, rules Rules) *running {
	newLAN(t, 0, false)
	return run(t, Config{Frames: func() (io.ReadCloser, error) { return s, nil }, Rules: rules})
}

func newSource() *source { return &source{frames: make(chan []byte), closed: make(chan struct{})} }

// put has the server read a frame.
func (s *source) put(t *testing.T, from sender, to netip.Addr, m ndp.Message) {
	t.Helper()
	frame, err := from.frame(Anchor{MAC: MAC{0x33, 0x33, 0xff}}, to, m)
	netnstest.Must(t, err)
	s.frames <- frame
}

// probe has a host probe the i-th address.
func (s *source) probe(t *testing.T, mac MAC, i int) {
	t.Helper()
	s.put(t, sender{mac, nobody}, solicitedNode(addrOf(i)), solicitation(addrOf(i)))
}

// TestBudgets: each MAC address has its budget, and known clients need not share that of new ones. What the gateway has
// sent itself, and a bridge returns, is nobody's.
func TestBudgets(t *testing.T) {
	const firstKnown, manyKnown = 900_000, 1000
	known := map[Anchor]bool{}
	for i := range manyKnown {
		known[anchorOf(firstKnown+i)] = true
	}
	frames := newSource()
	s := frames.run(t, Rules{Known: func(a Anchor) bool { return known[a] }})
	for i := range 2 * messages.AtOnce {
		frames.probe(t, anchorOf(500).MAC, i)
	}
	throttled := s.Stats().Throttled
	if throttled == 0 || throttled > uint64(messages.AtOnce) {
		t.Errorf("%d of %d frames of one MAC address are throttled", throttled, 2*messages.AtOnce)
	}
	for i := 0; s.Stats().Throttled == throttled; i++ {
		if i > 20*maxSenders {
			t.Fatalf("no frame of %d new MAC addresses is throttled: %+v", i, s.Stats())
		}
		frames.probe(t, anchorOf(1000+i).MAC, 1000+i)
	}
	throttled = s.Stats().Throttled
	frames.probe(t, gatewayMAC, firstKnown-1)
	for i := range manyKnown {
		frames.probe(t, anchorOf(firstKnown+i).MAC, firstKnown+i)
	}
	last := firstKnown + manyKnown - 1
	s.awaitBound(addrOf(last).String(), anchorOf(last))
	if got := s.Stats().Throttled; got > throttled+1 { // the last unknown one may have been counted since
		t.Errorf("%d frames of known clients are throttled", got-throttled)
	}
	if owner, has := s.Owner(addrOf(firstKnown - 1)); has {
		t.Errorf("%s has what the gateway probed", owner)
	}
}

// TestBudgetOfAll: when the budget of all is spent, known clients wait too.
func TestBudgetOfAll(t *testing.T) {
	frames := newSource()
	s := frames.run(t, Rules{Known: func(Anchor) bool { return true }})
	s.all.Charge(everybody, 1000*everybody.AtOnce, budget.Now())
	frames.probe(t, anchorOf(500).MAC, 1)
	netnstest.Until(t, "a throttled frame", func() bool { return s.Stats().Throttled == 1 })
}

// TestAnswersAreFree: a host whose budget is spent is heard when it answers the gateway.
func TestAnswersAreFree(t *testing.T) {
	frames := newSource()
	s := frames.run(t, Rules{})
	host, addr := anchorOf(500), netip.MustParseAddr("fe80::5")
	for try := 1; !s.hasAnswered(host); try++ {
		if try > 5 { // the first one may have come too late for its question
			t.Fatalf("the answers of a host whose budget is spent are not heard: %+v", s.Stats())
		}
		for range 2 * messages.AtOnce {
			frames.put(t, sender{host.MAC, addr}, allNodes, &ndp.RouterSolicitation{})
		}
		frames.put(t, sender{host.MAC, addr}, gateway, advertisement(addr, true))
		frames.put(t, sender{host.MAC, addr}, gateway, advertisement(addr, true)) // the first one has been handled
	}
}

func (r *running) hasAnswered(a Anchor) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.table.HasAnswered(a)
}

// TestDataPathTells: an address is bound by a packet, and goes to whom it is assigned.
func TestDataPathTells(t *testing.T) {
	s := newSource().run(t, Rules{})
	addr := netip.MustParseAddr("2001:db8::a")
	s.Used(alice, addr)
	s.awaitBound("2001:db8::a", alice)
	netnstest.Must(t, s.Assign(bob, addr))
	s.await("2001:db8::a", bob, Valid)
	s.Unassign(bob, addr)
	if owner, has := s.Owner(addr); has {
		t.Errorf("%s has an address that is assigned no longer", owner)
	}
}

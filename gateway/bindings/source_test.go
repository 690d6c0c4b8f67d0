package bindings

import (
	"io"
	"net/netip"
	"sync"
	"testing"

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

// TestSource: a server takes its frames from the source that it is given, with a budget for each MAC address, and knows
// what the data path tells it. Known clients need not share the budget of new ones.
func TestSource(t *testing.T) {
	newLAN(t, 0, false)
	frames := &source{frames: make(chan []byte), closed: make(chan struct{})}
	known := anchorOf(900_000)
	s := run(t, Config{
		Frames: func() (io.ReadCloser, error) { return frames, nil },
		Rules:  Rules{Known: func(a Anchor) bool { return a == known }},
	})
	probeOf := func(mac MAC, i int) []byte {
		frame, err := sender{mac, nobody}.frame(MAC{0x33, 0x33, 0xff}, solicitedNode(addrOf(i)), solicitation(addrOf(i)))
		netnstest.Must(t, err)
		return frame
	}
	for i := range 2 * messages.AtOnce {
		frames.frames <- probeOf(anchorOf(500).MAC, i)
	}
	throttled := s.Stats().Throttled
	if throttled == 0 || throttled > uint64(messages.AtOnce) {
		t.Errorf("%d of %d frames of one MAC address are throttled", throttled, 2*messages.AtOnce)
	}
	for i := 0; s.Stats().Throttled == throttled; i++ {
		if i > 20*maxSenders {
			t.Fatalf("no frame of %d new MAC addresses is throttled: %+v", i, s.Stats())
		}
		frames.frames <- probeOf(anchorOf(1000+i).MAC, 1000+i)
	}
	frames.frames <- probeOf(known.MAC, 900_000)
	s.awaitBound(addrOf(900_000).String(), known)

	s.Used(alice, netip.MustParseAddr("2001:db8::a"))
	s.awaitBound("2001:db8::a", alice)
	s.Unassign(alice, netip.MustParseAddr("2001:db8::a")) // it is not assigned
	netnstest.Must(t, s.Assign(bob, netip.MustParseAddr("2001:db8::a")))
	s.await("2001:db8::a", bob, Valid)
	s.Unassign(bob, netip.MustParseAddr("2001:db8::a"))
	if owner, has := s.Owner(netip.MustParseAddr("2001:db8::a")); has {
		t.Errorf("%s has an address that is assigned no longer", owner)
	}
}

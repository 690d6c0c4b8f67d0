package pppoe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/packet"

	"github.com/gateweigh/gateweigh/gateway/netnstest"
	"github.com/gateweigh/gateweigh/gateway/sockbuf"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// request asks for a session in the name of a MAC address, which has received an offer.
func (s *Server) request(mac pppoe.MAC) {
	s.receive((&pppoe.Frame{To: s.mac, From: mac, Code: pppoe.PADR, Tags: []pppoe.Tag{
		{Type: pppoe.ServiceName}, {Type: pppoe.ACCookie, Value: s.cookie.of(mac, time.Now())},
	}}).Append(nil))
}

// has reports whether a MAC address has a session.
func (s *Server) has(mac pppoe.MAC) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byMAC[mac]) > 0
}

// forge requests sessions for n invented addresses.
func (s *Server) forge(n int) {
	for i := range n {
		s.request(pppoe.MAC{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)})
	}
}

// sends has a session's client send a PPP frame.
func (s *Server) sends(mac pppoe.MAC, frame []byte) {
	s.receive((&pppoe.Frame{To: s.mac, From: mac, Session: s.byMAC[mac][0].id, PPP: frame}).Append(nil))
}

// TestForgedRequests: invented MAC addresses that can receive offers have no more sessions than the bound
// of those that have not logged in, and displace each other, not a client that goes on, nor one that has logged in.
func TestForgedRequests(t *testing.T) {
	s := newServer(t, "forge0")
	s.cfg.Waiting = 50
	in, honest := pppoe.MAC{2, 0, 0, 0, 0, 1}, pppoe.MAC{2, 0, 0, 0, 0, 2}
	if err := s.Restore(in, 7, ppp.State{PeerMRU: 1492, Grant: ppp.Grant{Addr: netip.MustParseAddr("10.1.0.9")}}); err != nil {
		t.Fatal(err)
	}
	s.request(honest)
	s.sends(honest, []byte{0xc0, 0x21, 1, 1, 0, 4}) // a Configure-Request
	s.forge(4000)
	n := s.Counts()
	if n.Begun < 3000 || n.Displaced != n.Begun-50 {
		t.Errorf("%+v", n)
	}
	if s.Sessions() != 51 || len(s.byMAC) != 51 || len(s.dues) != 51 || s.waiting.count() != 50 {
		t.Errorf("%d sessions of %d devices, %d timers, %d wait", s.Sessions(), len(s.byMAC), len(s.dues), s.waiting.count())
	}
	if !s.has(in) || !s.has(honest) {
		t.Error("a client that is there lost its session")
	}
	s.due(time.Now().Add(loginTime))
	if s.Sessions() != 1 || s.waiting.count() != 0 {
		t.Errorf("in the end %d sessions, %d wait", s.Sessions(), s.waiting.count())
	}
}

// TestForgedRequestsOfAll: the same where the bound of all sessions is the smaller one.
func TestForgedRequestsOfAll(t *testing.T) {
	s := newServer(t, "forge1")
	s.cfg.Most = 20
	s.forge(100)
	last := pppoe.MAC{2, 0, 0, 0, 0, 2}
	s.request(last)
	if s.Sessions() != 20 || !s.has(last) {
		t.Errorf("%d sessions, the last device has one: %v", s.Sessions(), s.has(last))
	}
}

// slow decides about no login until it is told.
type slow struct{ decide chan struct{} }

func (a slow) Login(ctx context.Context, _ Request) (ppp.Grant, error) {
	<-a.decide
	return ppp.Grant{}, context.Canceled
}
func (slow) Logout([6]byte, uint16, netip.Addr, error) {}

// TestLoginsUnderWayStay: a session whose login is being checked is not displaced.
func TestLoginsUnderWayStay(t *testing.T) {
	s := newServer(t, "forge2")
	a := slow{make(chan struct{})}
	s.access, s.cfg.Waiting = a, 3
	for i := range 3 {
		mac := pppoe.MAC{2, 0, 0, 0, 0, byte(i)}
		s.request(mac)
		s.mu.Lock()
		s.byMAC[mac][0].Authenticate(ppp.Credentials{Method: ppp.MethodPAP, User: "ann"})
		s.mu.Unlock()
	}
	s.forge(10)
	if n := s.Counts(); n.Begun != 3 || n.Refused != 10 || n.Displaced != 0 {
		t.Errorf("%+v", n)
	}
	close(a.decide)
}

// turns says which session's login it was asked for, and accepts when it is told.
type turns struct {
	asked  chan uint16
	decide chan struct{}
}

func (a turns) Login(ctx context.Context, r Request) (ppp.Grant, error) {
	a.asked <- r.Session
	<-a.decide
	return ppp.Grant{Addr: netip.AddrFrom4([4]byte{10, 1, 1, byte(r.Session)})}, nil
}
func (turns) Logout([6]byte, uint16, netip.Addr, error) {}

// TestLoginsTakeTurns: no more logins than allowed are checked at once, the others in the order of their passwords, and a
// session that has ended is passed over.
func TestLoginsTakeTurns(t *testing.T) {
	s := newServer(t, "turns0")
	a := turns{make(chan uint16, 10), make(chan struct{})}
	s.access, s.cfg.Logins = a, 1
	for i := range 4 {
		mac := pppoe.MAC{2, 0, 0, 0, 0, byte(i)}
		s.request(mac)
		s.mu.Lock()
		s.byMAC[mac][0].Authenticate(ppp.Credentials{Method: ppp.MethodPAP, User: "ann"})
		s.mu.Unlock()
	}
	s.receive((&pppoe.Frame{To: s.mac, From: pppoe.MAC{2, 0, 0, 0, 0, 1}, Code: pppoe.PADT, Session: 2}).Append(nil))
	for _, want := range []uint16{1, 3, 4} {
		if got := <-a.asked; got != want {
			t.Errorf("session %d is asked for, want %d", got, want)
		}
		if n := len(a.asked); n != 0 {
			t.Errorf("%d more are asked for at once", n)
		}
		a.decide <- struct{}{}
	}
	netnstest.Await(t, "all to be logged in", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if left := s.logins + s.waiting.count(); left > 0 {
			return fmt.Errorf("%d wait", left)
		}
		return nil
	})
	if s.Sessions() != 3 {
		t.Errorf("%d sessions", s.Sessions())
	}
}

// broadcast returns a function that has as many clients more send a PADI.
func broadcast(t *testing.T, s *Server) func(n int) {
	peer, err := net.InterfaceByName(s.cfg.Interface + "p")
	if err != nil {
		t.Fatal(err)
	}
	c, err := packet.Listen(peer, packet.Raw, pppoe.Discovery, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	sent := 0
	return func(n int) {
		for range n {
			sent++
			frame := padi(pppoe.MAC{2, 1, 0, 0, byte(sent >> 8), byte(sent)})
			if _, err := c.WriteTo(frame.Append(nil), &packet.Addr{HardwareAddr: frame.To[:]}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestBurstIsHeld: what comes before the concentrator reads waits for it.
func TestBurstIsHeld(t *testing.T) {
	s := newServer(t, "burst0")
	send := broadcast(t, s)
	const few = 200 // the kernel's backlog of a CPU has room for them
	var came packet.Stats
	for want := few; want <= 4000; want += few {
		send(few)
		netnstest.Await(t, "the frames to arrive", func() error {
			now, err := s.wire.found.Stats() // since the last call
			if err != nil {
				return err
			}
			came.Packets, came.Drops = came.Packets+now.Packets, came.Drops+now.Drops
			if int(came.Packets) < want {
				return fmt.Errorf("%d of %d have", came.Packets, want)
			}
			return nil
		})
	}
	if came.Drops != 0 {
		t.Errorf("%d of %d frames were dropped", came.Drops, came.Packets)
	}
}

// TestLostFramesAreCounted: what the socket has no room for is told of, and stays told of.
func TestLostFramesAreCounted(t *testing.T) {
	s := newServer(t, "lost0")
	if err := sockbuf.Receive(s.wire.found, 1); err != nil { // as little as there can be
		t.Fatal(err)
	}
	broadcast(t, s)(100)
	var lost uint64
	netnstest.Await(t, "lost frames", func() error {
		if lost = s.Counts().Lost; lost < 50 {
			return fmt.Errorf("%d are", lost)
		}
		return nil
	})
	if again := s.Counts().Lost; again < lost || again > 100 {
		t.Errorf("%d are lost, and then %d of 100", lost, again)
	}
}

package pppoe

import (
	"context"
	"net/netip"
	"testing"
	"time"

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

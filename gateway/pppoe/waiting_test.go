// Tests of sessions that have not logged in yet. newServer makes a concentrator on a virtual link, and padi the packet
// by which a client looks for one (discovery_test.go); a peer is a client's end of the link (tags_test.go).

package pppoe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/mdlayher/packet"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/sockbuf"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// request asks for a session in the name of a MAC address, which has received an offer.
func (s *Server) request(mac pppoe.MAC) {
	s.receive((&pppoe.Frame{To: s.mac, From: mac, Code: pppoe.PADR, Tags: []pppoe.Tag{
		{Type: pppoe.ServiceName}, {Type: pppoe.ACCookie, Value: s.cookie.current(mac, time.Now())},
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

// TestForgedRequests: made-up MAC addresses that answer offers have at most cfg.Waiting sessions together. They
// displace each other, and neither a client that goes on with its login nor one that has logged in.
func TestForgedRequests(t *testing.T) {
	s := newServer(t, "forge0")
	s.cfg.Waiting = 50
	in, honest := pppoe.MAC{2, 0, 0, 0, 0, 1}, pppoe.MAC{2, 0, 0, 0, 0, 2}
	if err := s.Restore(
		in, 7, ppp.State{PeerMRU: 1492, Grant: ppp.Grant{Addr: netip.MustParseAddr("10.1.0.9")}}); err != nil {
		t.Fatal(err)
	}
	s.request(honest)
	s.sends(honest, []byte{0xc0, 0x21, 1, 1, 0, 4}) // a Configure-Request
	s.forge(4000)
	n := s.Counts()
	if n.Begun < 3000 || n.Displaced != n.Begun-50 {
		t.Errorf("%+v", n)
	}
	if s.Sessions() != 51 || len(s.byMAC) != 51 || s.dues.Len() != 51 || s.waiting.count() != 50 {
		t.Errorf("%d sessions of %d devices, %d timers, %d wait", s.Sessions(), len(s.byMAC), s.dues.Len(), s.waiting.count())
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
	s.cfg.MaxSessions = 20
	s.forge(100)
	last := pppoe.MAC{2, 0, 0, 0, 0, 2}
	s.request(last)
	if s.Sessions() != 20 || !s.has(last) {
		t.Errorf("%d sessions, the last device has one: %v", s.Sessions(), s.has(last))
	}
}

// presents has a client begin a session and send its password.
func (s *Server) presents(mac pppoe.MAC) { s.presentsAs(mac, "ann") }

func (s *Server) presentsAs(mac pppoe.MAC, user string) {
	s.request(mac)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byMAC[mac][0].Authenticate(ppp.Credentials{Method: ppp.MethodPAP, User: user})
}

// manualAccess reports each login that it is asked about, and accepts it when the test says so.
type manualAccess struct {
	asked  chan uint16
	decide chan struct{}
}

func newManualAccess() manualAccess { return manualAccess{make(chan uint16, 10), make(chan struct{})} }

func (a manualAccess) Login(ctx context.Context, r Request) (ppp.Grant, error) {
	a.asked <- r.Session
	select {
	case <-a.decide:
		return ppp.Grant{Addr: netip.AddrFrom4([4]byte{10, 1, 1, byte(r.Session)})}, nil
	case <-ctx.Done():
		return ppp.Grant{}, ctx.Err()
	}
}
func (manualAccess) Logout([6]byte, uint16, netip.Addr, error) {}

// waitingFor returns a concentrator that checks one login at a time, to which so many clients have sent their
// passwords.
func waitingFor(t *testing.T, name string, clients int) (*Server, manualAccess) {
	s, a := newServer(t, name, func(c *Config) { c.Logins = 1 }), newManualAccess()
	s.access = a
	for i := range clients {
		s.presents(pppoe.MAC{2, 0, 0, 0, 0, byte(i)})
	}
	return s, a
}

// asks waits until a login is asked for.
func (a manualAccess) asks(t *testing.T) uint16 {
	t.Helper()
	select {
	case session := <-a.asked:
		return session
	case <-time.After(time.Minute):
		t.Fatal("no login is asked for")
		return 0
	}
}

// TestLoginsKeepTheirPlace: a session whose login is being checked, or waits for that, is not displaced.
func TestLoginsKeepTheirPlace(t *testing.T) {
	s := newServer(t, "forge2", func(c *Config) { c.Logins, c.Waiting = 1, 3 })
	s.access = newManualAccess()
	for i := range 3 {
		s.presents(pppoe.MAC{2, 0, 0, 0, 0, byte(i)})
	}
	s.forge(10)
	if n := s.Counts(); n.Begun != 3 || n.Refused != 10 || n.Displaced != 0 {
		t.Errorf("%+v", n)
	}
}

// TestRefusedClientsDisplaced: clients that were refused, and do not answer that, give way to other clients, and to a
// new request of the same MAC address.
func TestRefusedClientsDisplaced(t *testing.T) {
	s := newServer(t, "forge3", func(c *Config) { c.Waiting = 3 })
	for i := range 3 {
		s.presents(pppoe.MAC{2, 0, 0, 0, 0, byte(i)})
	}
	netnstest.Await(t, "all to be refused", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.waiting[terminating].Len(); n < 3 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	honest := pppoe.MAC{2, 0, 0, 0, 0, 9}
	if s.request(honest); !s.has(honest) {
		t.Errorf("a new client has no place: %+v", s.Counts())
	}
	again := pppoe.MAC{2, 0, 0, 0, 0, 2}
	if !s.has(again) { // it was the oldest
		again = pppoe.MAC{2, 0, 0, 0, 0, 1}
	}
	before := s.byMAC[again][0].id
	if s.request(again); len(s.byMAC[again]) != 1 || s.byMAC[again][0].id == before {
		t.Errorf("one that has rebooted is told of its old session: %+v", s.Counts())
	}
}

// TestLoginsTakeTurns: no more logins than allowed are checked at once, the others in the order of their passwords. A
// session that ends gives its turn up, and one that has ended gets none.
func TestLoginsTakeTurns(t *testing.T) {
	s, a := waitingFor(t, "turns0", 5)
	leaves := func(session byte) {
		s.receive((&pppoe.Frame{
			To: s.mac, From: pppoe.MAC{2, 0, 0, 0, 0, session - 1}, Code: pppoe.PADT, Session: uint16(session)}).Append(nil))
	}
	for _, want := range []uint16{1, 3, 4, 5} {
		if got := a.asks(t); got != want {
			t.Errorf("session %d is asked for, want %d", got, want)
		}
		if n := len(a.asked); n != 0 {
			t.Errorf("%d more are asked for at once", n)
		}
		switch want {
		case 1:
			leaves(2) // which waits
			a.decide <- struct{}{}
		case 3:
			leaves(3) // whose login is being checked
		default:
			a.decide <- struct{}{}
		}
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

// TestEndedBeforeItsLogin: a session that its owner ends before it has logged in is not admitted.
func TestEndedBeforeItsLogin(t *testing.T) {
	s, a := waitingFor(t, "turns1", 2)
	a.asks(t)
	s.End(pppoe.MAC{2, 0, 0, 0, 0, 1}, 2)
	s.End(pppoe.MAC{2, 0, 0, 0, 0, 0}, 1)
	netnstest.Await(t, "the login to be cancelled", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.logins > 0 {
			return fmt.Errorf("%d are under way", s.logins)
		}
		return nil
	})
	for _, n := range s.sessions {
		if n.admitted.IsValid() {
			t.Errorf("session %d is admitted", n.id)
		}
	}
	if n := len(a.asked); n != 0 {
		t.Errorf("%d more were asked for", n)
	}
}

// silentCarrier is a Carrier, which takes session frames from the kernel in place of the server's socket. It never
// receives one.
type silentCarrier struct{}

func (silentCarrier) Carry([6]byte, uint16) error { return nil }
func (silentCarrier) Release([6]byte, uint16)     {}
func (silentCarrier) Frames(ctx context.Context, _ func([6]byte, uint16, []byte)) error {
	<-ctx.Done()
	return nil
}

// TestCarrierFramesCount: a client whose frames a carrier has goes on while others displace each other.
func TestCarrierFramesCount(t *testing.T) {
	s := newServer(t, "forge4", func(c *Config) { c.Waiting, c.Carrier = 50, silentCarrier{} })
	honest := pppoe.MAC{2, 0, 0, 0, 0, 2}
	s.request(honest)
	s.handleCarried(honest, s.byMAC[honest][0].id, []byte{0xc0, 0x21, 1, 1, 0, 4}) // a Configure-Request
	s.forge(60)
	if !s.has(honest) {
		t.Error("a client that is there lost its session")
	}
}

// TestManyLoginsAtOnce: 10,000 clients that come at once need not ask twice.
func TestManyLoginsAtOnce(t *testing.T) {
	s := newServer(t, "outage0")
	const all = 10_000
	for i := range all {
		mac := pppoe.MAC{2, 2, 0, 0, byte(i >> 8), byte(i)}
		s.receive(padi(mac).Append(nil))
		s.request(mac)
	}
	if n := s.Counts(); n.Offered != all || n.Begun != all || n.Throttled+n.Refused+n.Displaced != 0 {
		t.Errorf("%+v", n)
	}
}

// sending returns a function that has as many clients more send a frame to a concentrator that does not read.
func sending(t *testing.T, s *Server, kind int, frame func(pppoe.MAC) *pppoe.Frame) func(n int) {
	peer, err := net.InterfaceByName(s.cfg.Interface + "p")
	if err != nil {
		t.Fatal(err)
	}
	c, err := packet.Listen(peer, packet.Raw, kind, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	sent := 0
	return func(n int) {
		for range n {
			sent++
			f := frame(pppoe.MAC{2, 1, 0, 0, byte(sent >> 8), byte(sent)})
			if _, err := c.WriteTo(f.Append(nil), &packet.Addr{HardwareAddr: f.To[:]}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSocketBuffersBurst: frames that arrive before the concentrator reads wait in the socket.
func TestSocketBuffersBurst(t *testing.T) {
	s := newServer(t, "burst0")
	for name, c := range map[string]struct {
		kind   int
		socket *packet.Conn
		frame  func(pppoe.MAC) *pppoe.Frame
	}{
		"discovery": {pppoe.Discovery, s.wire.discoveryConn, padi},
		"sessions": {pppoe.Session, s.wire.sessionConn, func(mac pppoe.MAC) *pppoe.Frame {
			return &pppoe.Frame{To: s.mac, From: mac, Session: 1, PPP: []byte{0xc0, 0x21, 1, 1, 0, 4}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			send := sending(t, s, c.kind, c.frame)
			const few = 200 // the kernel's backlog of a CPU has room for them
			var came packet.Stats
			for want := few; want <= 10_000; want += few {
				send(few)
				netnstest.Await(t, "the frames to arrive", func() error {
					now, err := c.socket.Stats() // since the last call
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
		})
	}
}

// TestLostFramesAreCounted: frames for which the socket has no room are counted, and the count stays.
func TestLostFramesAreCounted(t *testing.T) {
	s := newServer(t, "lost0")
	if err := sockbuf.ReceiveOn(s.wire.discoveryConn, 1); err != nil { // as little as there can be
		t.Fatal(err)
	}
	sending(t, s, pppoe.Discovery, padi)(100)
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

// Tests of PPPoE discovery (RFC 2516). newServer makes a concentrator on a virtual link; newManualAccess is an
// authenticator whose logins wait for the test's decision (waiting_test.go).

package pppoe

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// refusesAll is an Access that refuses all logins.
type refusesAll struct{}

func (refusesAll) Login(context.Context, Request) (ppp.Grant, error) {
	return ppp.Grant{}, os.ErrPermission
}
func (refusesAll) Logout([6]byte, uint16, netip.Addr, error) {}

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

// newServer makes a concentrator on a virtual link of the test's own.
func newServer(t testing.TB, name string, change ...func(*Config)) *Server {
	t.Helper()
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(link); err != nil {
			t.Error(err)
		}
	})
	for _, n := range []string{name, name + "p"} {
		dev, err := netlink.LinkByName(n)
		if err == nil {
			err = netlink.LinkSetUp(dev)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Interface: name, Address: netip.MustParseAddr("10.1.0.1")}
	for _, f := range change {
		f(&cfg)
	}
	s, err := New(cfg, refusesAll{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func padi(mac pppoe.MAC) *pppoe.Frame {
	return &pppoe.Frame{To: pppoe.Broadcast, From: mac, Code: pppoe.PADI, Tags: []pppoe.Tag{{Type: pppoe.ServiceName}}}
}

// TestPADIFlood: 100,000 devices that ask for an offer cost no memory, and get few offers; a session that is there
// stays.
func TestPADIFlood(t *testing.T) {
	s := newServer(t, "flood0")
	mac := pppoe.MAC{2, 0, 0, 0, 0, 1}
	if err := s.Restore(
		mac, 7, ppp.State{PeerMRU: 1492, Grant: ppp.Grant{Addr: netip.MustParseAddr("10.1.0.9")}}); err != nil {
		t.Fatal(err)
	}
	for i := range 100_000 {
		s.receive(padi(pppoe.MAC{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)}).Append(nil))
	}
	n := s.Counts()
	if n.PADI != 100_000 || n.Offered+n.Throttled != n.PADI || n.Throttled < n.PADI/2 {
		t.Errorf("%+v", n)
	}
	if s.Sessions() != 1 || len(s.byMAC) != 1 {
		t.Errorf("%d sessions, %d devices", s.Sessions(), len(s.byMAC))
	}
}

// TestRequests: only who was offered a session gets one, and no more than allowed.
func TestRequests(t *testing.T) {
	s := newServer(t, "req0")
	mac := pppoe.MAC{2, 0, 0, 0, 0, 1}
	request := func(mac pppoe.MAC, cookie, uniq []byte) {
		s.receive((&pppoe.Frame{To: s.mac, From: mac, Code: pppoe.PADR, Tags: []pppoe.Tag{
			{Type: pppoe.ServiceName}, {Type: pppoe.ACCookie, Value: cookie}, {Type: pppoe.HostUniq, Value: uniq},
		}}).Append(nil))
	}
	now := time.Now()
	cookie := s.cookie.current(mac, now)
	request(mac, nil, nil)
	request(pppoe.MAC{2, 0, 0, 0, 0, 2}, cookie, nil)
	request(mac, s.cookie.current(mac, now.Add(-2*cookieTime)), nil)
	if s.Sessions() != 0 {
		t.Fatalf("%d sessions without a right cookie", s.Sessions())
	}
	request(mac, cookie, []byte("a"))
	request(mac, cookie, []byte("a")) // the PADS was lost
	if s.Sessions() != 1 {
		t.Fatalf("%d sessions after a repeated request", s.Sessions())
	}
	first := s.lastID
	request(mac, cookie, []byte("b"))
	if s.Sessions() != 1 || s.sessions[first] != nil {
		t.Errorf("%d sessions that have not logged in, of one device that has begun anew", s.Sessions())
	}
	s.receive((&pppoe.Frame{To: s.mac, From: pppoe.MAC{2, 0, 0, 0, 0, 2}, Code: pppoe.PADT, Session: s.lastID}).Append(
		nil))
	if s.Sessions() != 1 {
		t.Error("another device ended the session")
	}
	s.receive((&pppoe.Frame{To: s.mac, From: mac, Code: pppoe.PADT, Session: s.lastID}).Append(nil))
	if s.Sessions() != 0 || s.dues.Len() != 0 || len(s.byMAC) != 0 {
		t.Errorf("after PADT %d sessions, %d timers, %d devices", s.Sessions(), s.dues.Len(), len(s.byMAC))
	}
}

// TestLateLogin: a session that does not log in in time ends.
func TestLateLogin(t *testing.T) {
	s := newServer(t, "late0")
	mac := pppoe.MAC{2, 0, 0, 0, 0, 1}
	s.receive((&pppoe.Frame{To: s.mac, From: mac, Code: pppoe.PADR, Tags: []pppoe.Tag{
		{Type: pppoe.ServiceName}, {Type: pppoe.ACCookie, Value: s.cookie.current(mac, time.Now())},
	}}).Append(nil))
	if s.Sessions() != 1 {
		t.Fatalf("%d sessions", s.Sessions())
	}
	s.due(time.Now().Add(loginTime))
	if s.Sessions() != 0 || s.dues.Len() != 0 {
		t.Errorf("%d sessions, %d timers", s.Sessions(), s.dues.Len())
	}
}

// FuzzReceive: no frame ends the concentrator, or gets a session without a cookie.
func FuzzReceive(f *testing.F) {
	s := newServer(f, fmt.Sprint("fuzz", os.Getpid()%100_000)) // workers are processes of their own
	f.Add(padi(pppoe.MAC{2, 0, 0, 0, 0, 1}).Append(nil))
	f.Add((&pppoe.Frame{To: s.mac, From: pppoe.MAC{2}, Code: pppoe.PADR, Tags: []pppoe.Tag{{Type: pppoe.ServiceName}, {
		Type: pppoe.VendorSpecific, Value: []byte{0, 0, 13, 233, 1, 2, 'a', 'b'}}}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= 6 {
			copy(b, s.mac[:])
		}
		s.receive(b)
		if s.Sessions() != 0 {
			t.Fatal("a session")
		}
		if frame, err := pppoe.Parse(b); err == nil {
			line(&frame)
		}
	})
}

// TestServeEnds: Serve ends with its context, with sessions that are there, a login under way, which is cancelled, and
// one that waits for its turn, which is not begun. No client is told that it was refused.
func TestServeEnds(t *testing.T) {
	s := newServer(t, "ends0", func(c *Config) { c.Logins = 1 })
	if err := s.Restore(pppoe.MAC{2, 0, 0, 0, 0, 1}, 7, ppp.State{PeerMRU: 1492}); err != nil {
		t.Fatal(err)
	}
	a := newManualAccess()
	s.access = a
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	for range 10 {
		s.receive(padi(pppoe.MAC{2, 0, 0, 0, 0, 2}).Append(nil))
	}
	for i := range 2 {
		s.presents(pppoe.MAC{2, 0, 0, 0, 1, byte(i)})
	}
	a.asks(t)
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Serve goes on")
	}
	if n, wait := len(a.asked), s.waiting.count(); n != 0 || wait != 2 {
		t.Errorf("%d more logins were asked for, %d sessions have not logged in", n, wait)
	}
}

package pppoe

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"

	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// peer is a client's end of the server's link, with the time at which frames came.
type peer struct {
	t    *testing.T
	s    *Server
	conn *packet.Conn
	mac  pppoe.MAC
}

// newPeer serves, and opens the other end of the link.
func newPeer(t *testing.T, s *Server) *peer {
	t.Helper()
	dev, err := net.InterfaceByName(s.dev.Name + "p")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, s: s, mac: pppoe.MAC(dev.HardwareAddr)}
	if p.conn, err = packet.Listen(dev, packet.Raw, pppoe.Discovery, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-served; p.conn.Close() })
	return p
}

// exchange sends a frame until one with a code comes back.
func (p *peer) exchange(f *pppoe.Frame, code pppoe.Code) *pppoe.Frame {
	p.t.Helper()
	f.From = p.mac
	b := make([]byte, 2048)
	for range 60 {
		if _, err := p.conn.WriteTo(f.Append(nil), &packet.Addr{HardwareAddr: f.To[:]}); err != nil {
			p.t.Fatal(err)
		}
		p.conn.SetReadDeadline(time.Now().Add(time.Second))
		for {
			n, _, err := p.conn.ReadFrom(b)
			if err != nil {
				break
			}
			if got, err := pppoe.Parse(b[:n]); err == nil && got.Code == code && got.To == p.mac {
				return &got
			}
		}
	}
	p.t.Fatalf("no %s", code)
	return nil
}

// TestTags: offers and confirmations repeat what a client or a relay set, and grant what may be; what an access node says
// of the line is the session's.
func TestTags(t *testing.T) {
	s := newServer(t, "tags0")
	s.cfg.Services, s.cfg.MaxPayload = []string{"internet", "voice"}, 1500
	p := newPeer(t, s)
	line := []byte{0, 0, 13, 233, 1, 4, 'e', 't', 'h', '7', 2, 3, 'b', 'o', 'b'}
	asked := []pppoe.Tag{
		{Type: pppoe.ServiceName, Value: []byte("voice")}, {Type: pppoe.HostUniq, Value: []byte{0, 1, 2}}, {Type: pppoe.RelaySessionID, Value: []byte("relay")},
		{Type: pppoe.PPPMaxPayload, Value: []byte{5, 220}}, {Type: pppoe.VendorSpecific, Value: line},
	}
	check := func(f *pppoe.Frame, want ...pppoe.Tag) {
		t.Helper()
		for _, w := range want {
			same := func(is pppoe.Tag) bool { return is.Type == w.Type && string(is.Value) == string(w.Value) }
			if !slices.ContainsFunc(f.Tags, same) {
				t.Errorf("%s has no %v: %v", f.Code, w, f.Tags)
			}
		}
	}
	offer := p.exchange(&pppoe.Frame{To: pppoe.Broadcast, Code: pppoe.PADI, Tags: asked}, pppoe.PADO)
	check(offer, asked[:4]...)
	check(offer, pppoe.Tag{Type: pppoe.ACName, Value: []byte("gatewayd")}, pppoe.Tag{Type: pppoe.ServiceName, Value: []byte("internet")})
	cookie, _ := offer.Tag(pppoe.ACCookie)
	confirmed := p.exchange(&pppoe.Frame{To: s.mac, Code: pppoe.PADR, Tags: append(asked, pppoe.Tag{Type: pppoe.ACCookie, Value: cookie})}, pppoe.PADS)
	check(confirmed, asked[:4]...)
	s.mu.Lock()
	n := s.sessions[confirmed.Session]
	if n == nil || n.circuit != "eth7" || n.remote != "bob" || n.payload != 1500 {
		t.Errorf("the session is %+v", n)
	}
	s.mu.Unlock()
	refused := p.exchange(&pppoe.Frame{To: s.mac, Code: pppoe.PADR, Tags: []pppoe.Tag{
		{Type: pppoe.ServiceName, Value: []byte("none")}, {Type: pppoe.HostUniq, Value: []byte("other")}, {Type: pppoe.ACCookie, Value: cookie},
	}}, pppoe.PADS)
	if _, there := refused.Tag(pppoe.ServiceNameError); !there || refused.Session != 0 {
		t.Errorf("an unknown service is answered by %+v", refused)
	}
}

// TestDelayedOffer: offers wait for as long as is configured.
func TestDelayedOffer(t *testing.T) {
	s := newServer(t, "delay0")
	s.cfg.Delay = 100 * time.Millisecond
	p := newPeer(t, s)
	began := time.Now()
	p.exchange(padi(p.mac), pppoe.PADO)
	if waited := time.Since(began); waited < s.cfg.Delay {
		t.Errorf("an offer came after %v", waited)
	}
}

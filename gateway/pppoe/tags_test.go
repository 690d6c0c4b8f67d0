// Tests of the tags of discovery packets. newServer makes a concentrator on a virtual link, and padi the packet by
// which a client looks for one (discovery_test.go).

package pppoe

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// peer is a client's end of the concentrator's link. It records when frames arrive.
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

// exchange sends a frame, with more bytes of payload, until one with a code comes back.
func (p *peer) exchange(f *pppoe.Frame, code pppoe.Code, more ...byte) *pppoe.Frame {
	p.t.Helper()
	f.From = p.mac
	out := append(f.Append(nil), more...)
	binary.BigEndian.PutUint16(out[18:], uint16(len(out)-20))
	b := make([]byte, 2048)
	for range 60 {
		if _, err := p.conn.WriteTo(out, &packet.Addr{HardwareAddr: f.To[:]}); err != nil {
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

// TestTags: offers and confirmations repeat the tags that a client or a relay set, and grant the requests that can be
// granted. The session has the line's name that an access node added.
func TestTags(t *testing.T) {
	s := newServer(t, "tags0")
	s.cfg.Services, s.cfg.MaxPayload = []string{"internet", "voice"}, 1500
	p := newPeer(t, s)
	setMTU(t, s, 1508)
	line := []byte{0, 0, 13, 233, 1, 4, 'e', 't', 'h', '7', 2, 3, 'b', 'o', 'b'}
	asked := []pppoe.Tag{
		{Type: pppoe.ServiceName, Value: []byte("voice")}, {Type: pppoe.HostUniq, Value: []byte{0, 1, 2}},
		{Type: pppoe.RelaySessionID, Value: []byte("relay")},
		{Type: pppoe.PPPMaxPayload, Value: []byte{5, 220}}, {Type: pppoe.VendorSpecific, Value: line},
	}
	check := func(f *pppoe.Frame, want ...pppoe.Tag) {
		t.Helper()
		for _, w := range want {
			same := func(current pppoe.Tag) bool {
				return current.Type == w.Type && string(current.Value) == string(w.Value)
			}
			if !slices.ContainsFunc(f.Tags, same) {
				t.Errorf("%s has no %v: %v", f.Code, w, f.Tags)
			}
		}
	}
	offer := p.exchange(&pppoe.Frame{To: pppoe.Broadcast, Code: pppoe.PADI, Tags: asked}, pppoe.PADO)
	check(offer, asked[:4]...)
	check(offer, pppoe.Tag{Type: pppoe.ACName, Value: []byte("gatewayd")},
		pppoe.Tag{Type: pppoe.ServiceName, Value: []byte("internet")})
	cookie, _ := offer.Tag(pppoe.ACCookie)
	confirmed := p.exchange(&pppoe.Frame{To: s.mac, Code: pppoe.PADR, Tags: append(asked, pppoe.Tag{Type: pppoe.ACCookie,
		Value: cookie})}, pppoe.PADS)
	check(confirmed, asked[:4]...)
	s.mu.Lock()
	n := s.sessions[confirmed.Session]
	if n == nil || n.circuit != "eth7" || n.remote != "bob" || n.payload != 1500 {
		t.Errorf("the session is %+v", n)
	}
	s.mu.Unlock()
	refused := p.exchange(&pppoe.Frame{To: s.mac, Code: pppoe.PADR, Tags: []pppoe.Tag{
		{Type: pppoe.ServiceName, Value: []byte("none")}, {Type: pppoe.HostUniq, Value: []byte("other")},
		{Type: pppoe.ACCookie, Value: cookie},
	}}, pppoe.PADS)
	if _, found := refused.Tag(pppoe.ServiceNameError); !found || refused.Session != 0 {
		t.Errorf("an unknown service is answered by %+v", refused)
	}
}

// setMTU sets the MTU of the concentrator's interface, bytes.
func setMTU(t *testing.T, s *Server, mtu int) {
	t.Helper()
	dev, err := netlink.LinkByName(s.dev.Name)
	if err == nil {
		err = netlink.LinkSetMTU(dev, mtu)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestGrantedPayload: no more is granted than the interface carries at the time, whatever a client asks for, nor is
// more asked of it.
func TestGrantedPayload(t *testing.T) {
	s := newServer(t, "grant0")
	s.cfg.MaxPayload = 1500
	p := newPeer(t, s)
	for i, c := range []struct{ mtu, asked, granted, confirmed int }{
		{1500, 1500, 1492, 0}, {1504, 1500, 1496, 1496}, {1508, 1500, 1500, 1500}, {1508, 9000, 1500, 1500},
		{1508, 1494, 1494, 1494},
		{1508, 0, 1492, 0}, {1450, 1500, 1442, 0}, {1450, 0, 1442, 0},
	} {
		setMTU(t, s, c.mtu)
		tags := []pppoe.Tag{{Type: pppoe.ServiceName}, {Type: pppoe.HostUniq, Value: []byte{byte(i)}}}
		if c.asked > 0 {
			tags = append(tags, pppoe.Tag{Type: pppoe.PPPMaxPayload, Value: binary.BigEndian.AppendUint16(nil, uint16(c.asked))})
		}
		cookie := s.cookie.current(p.mac, time.Now())
		pads := p.exchange(&pppoe.Frame{To: s.mac, Code: pppoe.PADR, Tags: append(tags, pppoe.Tag{Type: pppoe.ACCookie,
			Value: cookie})}, pppoe.PADS)
		got, found := pads.Tag(pppoe.PPPMaxPayload)
		if found != (c.confirmed > 0) || found && int(binary.BigEndian.Uint16(got)) != c.confirmed {
			t.Errorf("%+v: confirmed are % x", c, got)
		}
		s.mu.Lock()
		if n := s.sessions[pads.Session]; n == nil || n.payload != c.granted {
			t.Errorf("%+v: the session is %+v", c, n)
		}
		s.mu.Unlock()
	}
}

// TestOddDiscovery: a client that leaves out what may be guessed, or sends more than there should be, is answered.
func TestOddDiscovery(t *testing.T) {
	s := newServer(t, "odd0")
	s.senders.Rate.AtOnce = 100
	p := newPeer(t, s)
	uniq := pppoe.Tag{Type: pppoe.HostUniq, Value: []byte("u")}
	for name, c := range map[string]struct {
		tags []pppoe.Tag
		end  []byte // after the tags
	}{
		"no Service-Name":    {[]pppoe.Tag{uniq}, nil},
		"no tags":            {nil, nil},
		"an empty Host-Uniq": {[]pppoe.Tag{{Type: pppoe.ServiceName}, {Type: pppoe.HostUniq}}, nil},
		"an unknown tag":     {[]pppoe.Tag{{Type: 0x0fff, Value: []byte("x")}, {Type: pppoe.ServiceName}, uniq}, nil},
		"an end, and more": {
			[]pppoe.Tag{{Type: pppoe.ServiceName}, uniq, {Type: pppoe.EndOfList}}, []byte{1, 1, 255, 255}},
		"a tag that is cut":      {[]pppoe.Tag{{Type: pppoe.ServiceName}, uniq}, []byte{1, 5, 0, 9, 'a'}},
		"a byte that is no tag":  {[]pppoe.Tag{{Type: pppoe.ServiceName}, uniq}, []byte{1}},
		"a payload of no length": {[]pppoe.Tag{{Type: pppoe.ServiceName}, uniq, {Type: pppoe.PPPMaxPayload}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p.t = t
			ask := func(to pppoe.MAC, code, want pppoe.Code, more ...pppoe.Tag) *pppoe.Frame {
				return p.exchange(&pppoe.Frame{To: to, Code: code, Tags: append(more, c.tags...)}, want, c.end...)
			}
			offer := ask(pppoe.Broadcast, pppoe.PADI, pppoe.PADO)
			cookie, _ := offer.Tag(pppoe.ACCookie)
			pads := ask(s.mac, pppoe.PADR, pppoe.PADS, pppoe.Tag{Type: pppoe.ACCookie, Value: cookie})
			if _, found := pads.Tag(pppoe.ServiceName); !found || pads.Session == 0 {
				t.Errorf("confirmed by %+v", pads)
			}
		})
	}
}

// TestLongHostUniq: a request whose tags are too long for an answer gets none, and does not count as an offer. Tags
// that fit are repeated.
func TestLongHostUniq(t *testing.T) {
	s := newServer(t, "long0")
	p := newPeer(t, s)
	for _, delay := range []time.Duration{0, time.Millisecond} {
		s.mu.Lock()
		s.cfg.Delay = delay
		s.mu.Unlock()
		before := s.Counts()
		for _, length := range []int{1450, 1400} { // answers come in the order of the questions
			uniq := pppoe.Tag{Type: pppoe.HostUniq, Value: bytes.Repeat([]byte{byte(length)}, length)}
			f := padi(p.mac)
			f.Tags = append(f.Tags, uniq)
			if length == 1450 {
				s.receive(f.Append(nil))
				continue
			}
			if got, _ := p.exchange(f, pppoe.PADO).Tag(pppoe.HostUniq); !bytes.Equal(got, uniq.Value) {
				t.Errorf("a Host-Uniq of %d bytes is repeated with %d", length, len(got))
			}
		}
		after := s.Counts()
		if asked, offered := after.PADI-before.PADI, after.Offered-before.Offered; offered != asked-1 {
			t.Errorf("delay %s: of %d clients, one of which cannot be answered, %d count as offered", delay, asked, offered)
		}
	}
}

// TestDelayedOffer: offers wait for as long as is configured.
func TestDelayedOffer(t *testing.T) {
	s := newServer(t, "delay0")
	s.cfg.Delay = 100 * time.Millisecond
	p := newPeer(t, s)
	began := time.Now()
	if offer := p.exchange(padi(p.mac), pppoe.PADO); offer.From != s.mac {
		t.Errorf("an offer came from %x", offer.From)
	}
	if waited := time.Since(began); waited < s.cfg.Delay {
		t.Errorf("an offer came after %v", waited)
	}
}

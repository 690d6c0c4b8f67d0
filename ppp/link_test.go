// Tests of two ends of a link in virtual time: join makes them, run delivers their frames, and carry delivers only
// those that are on the wire.

package ppp

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// end is one end of a link. As the link's Handler it collects the frames for the other end.
type end struct {
	link   *Link
	out    [][]byte
	opened []Terms
	closed error
	asked  []Credentials
	// decide answers Authenticate; nil: later.
	decide  func(Credentials) (Grant, bool)
	now     *time.Time
	longest int // information of the frames sent, bytes
}

func (e *end) Send(frame []byte) {
	e.out = append(e.out, append([]byte(nil), frame...))
	e.longest = max(e.longest, len(frame)-protocolLen)
}
func (e *end) Authenticate(c Credentials) {
	e.asked = append(e.asked, c)
	if e.decide != nil {
		g, ok := e.decide(c)
		e.link.Decide(*e.now, ok, g)
	}
}
func (e *end) Opened(t Terms)      { e.opened = append(e.opened, t) }
func (e *end) Closed(reason error) { e.closed = errors.Join(errors.New("closed"), reason) }

// pair is two ends in virtual time.
type pair struct {
	now            time.Time
	server, client end
	given          [8]byte // the client's interface identifier; zero: it chooses one
}

var (
	gateway  = netip.MustParseAddr("10.1.0.1")
	assigned = netip.MustParseAddr("10.1.0.100")
	resolver = netip.MustParseAddr("192.0.2.53")
)

// join makes the two ends of a link. password is the one that the server knows.
func join(server, client Config, password string) *pair {
	p := &pair{now: time.Unix(1_700_000_000, 0)}
	server.Server, server.Address = true, gateway
	p.server.now, p.client.now = &p.now, &p.now
	p.server.link, p.client.link = New(server, &p.server), New(client, &p.client)
	p.server.decide = func(c Credentials) (Grant, bool) {
		proof, ok := c.Right(password)
		return Grant{Addr: assigned, DNS: [2]netip.Addr{resolver}, InterfaceID: p.given, Proof: proof}, ok
	}
	return p
}

// run delivers frames and lets time pass, until no timer is left or d is over. fate says how many times the next frame
// arrives: 0, once or more.
func (p *pair) run(d time.Duration, fate func() int) {
	p.server.link.Open(p.now)
	p.client.link.Open(p.now)
	for last := p.now.Add(d); ; {
		p.carry(fate)
		var next time.Time
		for _, e := range []*end{&p.server, &p.client} {
			if t := e.link.Next(); !t.IsZero() && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
		if next.IsZero() || next.After(last) {
			p.now = last
			return
		}
		if next.After(p.now) {
			p.now = next
		}
		p.server.link.Tick(p.now)
		p.client.link.Tick(p.now)
	}
}

// carry delivers the frames on the wire, and the answers to them, until none is left.
func (p *pair) carry(fate func() int) {
	for range 10_000 {
		up, down := p.client.out, p.server.out
		if len(up)+len(down) == 0 {
			return
		}
		p.client.out, p.server.out = nil, nil
		for _, f := range up {
			for range fate() {
				p.server.link.Receive(p.now, f)
			}
		}
		for _, f := range down {
			for range fate() {
				p.client.link.Receive(p.now, f)
			}
		}
	}
	panic("the two ends never stop to answer each other")
}

// once is the fate of a wire on which each frame arrives once.
func once() int { return 1 }

// TestLinkOpens: both ends agree, by each method.
func TestLinkOpens(t *testing.T) {
	for _, method := range Methods {
		p := join(Config{Methods: []Method{method}, IPv6: true},
			Config{User: "ann", Password: "right", AskDNS: true, IPv6: true}, "right")
		p.run(time.Minute, once)
		if len(p.server.opened) == 0 || len(p.client.opened) == 0 {
			t.Fatalf("%s: not open: %v, %v", method, p.server.closed, p.client.closed)
		}
		got := p.client.opened[len(p.client.opened)-1]
		if got.Local != assigned || got.Peer != gateway || got.DNS[0] != resolver || got.DNS[1].IsValid() || got.MTU != 1492 {
			t.Errorf("%s: the client has %+v", method, got)
		}
		other := p.server.opened[len(p.server.opened)-1]
		if other.Peer != assigned || other.LocalID != got.PeerID || other.PeerID != got.LocalID ||
			got.LocalID == ([8]byte{}) {
			t.Errorf("%s: the server has %+v, the client %+v", method, other, got)
		}
		if c := p.server.asked[0]; c.Method != method || c.User != "ann" || len(p.server.asked) != 1 {
			t.Errorf("%s: asked %+v", method, p.server.asked)
		}
	}
}

// TestInterfaceIDGiven: a client has the interface identifier that the server gives it.
func TestInterfaceIDGiven(t *testing.T) {
	p := join(Config{IPv6: true}, Config{User: "ann", Password: "right", IPv6: true}, "right")
	p.given = [8]byte{2: 5, 7: 0x77}
	p.run(time.Minute, once)
	if len(p.client.opened) == 0 || len(p.server.opened) == 0 {
		t.Fatal("not open")
	}
	got, other := p.client.opened[len(p.client.opened)-1], p.server.opened[len(p.server.opened)-1]
	if got.LocalID != p.given || other.PeerID != p.given {
		t.Errorf("the client has %+v, the server %+v", got, other)
	}
}

// TestLinkRefused: a wrong password ends both ends, by each method.
func TestLinkRefused(t *testing.T) {
	for _, method := range Methods {
		p := join(Config{Methods: []Method{method}}, Config{User: "ann", Password: "wrong"}, "right")
		p.run(time.Minute, once)
		if !errors.Is(p.client.closed, ErrRefused) || !errors.Is(p.server.closed, ErrRefused) || len(p.server.opened) > 0 {
			t.Errorf("%s: %v, %v", method, p.client.closed, p.server.closed)
		}
	}
}

// TestSlowServer: a challenge that is sent again, as while a server takes its time, does not change the answer that the
// server checks.
func TestSlowServer(t *testing.T) {
	for _, method := range Methods {
		p := join(Config{Methods: []Method{method}}, Config{User: "ann", Password: "right"}, "right")
		p.run(time.Minute, func() int { return 2 })
		if p.client.closed != nil || len(p.client.opened) == 0 {
			t.Errorf("%s: %v", method, p.client.closed)
		}
	}
}

// TestImpostor: a client of MS-CHAPv2 does not take a server that accepts it without knowing its password.
func TestImpostor(t *testing.T) {
	p := join(Config{Methods: []Method{MethodMSCHAPv2}}, Config{User: "ann", Password: "right"}, "")
	p.server.decide = func(Credentials) (Grant, bool) {
		return Grant{Addr: assigned, Proof: "S=0000000000000000000000000000000000000000"}, true
	}
	p.run(time.Minute, once)
	if !errors.Is(p.client.closed, ErrRefused) || len(p.client.opened) > 0 {
		t.Errorf("%v", p.client.closed)
	}
}

// TestMethodsAgreed: the server takes the client's method, if it allows that one.
func TestMethodsAgreed(t *testing.T) {
	p := join(Config{}, Config{User: "ann", Password: "right", Methods: []Method{MethodPAP}}, "right")
	p.run(time.Minute, once)
	if len(p.server.asked) != 1 || p.server.asked[0].Method != MethodPAP {
		t.Errorf("asked %+v", p.server.asked)
	}
	p = join(Config{Methods: []Method{MethodMSCHAPv2}},
		Config{User: "ann", Password: "right", Methods: []Method{MethodPAP}}, "right")
	p.run(time.Minute, once)
	if len(p.server.asked) != 0 || len(p.server.opened) > 0 || p.server.closed == nil {
		t.Errorf("asked %+v, %v", p.server.asked, p.server.closed)
	}
}

// TestLargerPayload: RFC 4638's MRU is agreed where both ends allow it.
func TestLargerPayload(t *testing.T) {
	for _, tt := range []struct{ server, client, want int }{{1500, 1500, 1500}, {1492, 1500, 1492}, {1500, 1492, 1492}} {
		p := join(Config{MRU: tt.server, MaxMRU: tt.server},
			Config{User: "ann", Password: "right", MRU: tt.client, MaxMRU: 1500}, "right")
		p.run(time.Minute, once)
		if len(p.server.opened) == 0 || p.server.opened[0].MTU != tt.want {
			t.Errorf("%+v: %+v, %v", tt, p.server.opened, p.server.closed)
		}
	}
}

// TestVanishedPeer: a server ends a link whose client answers no echo.
func TestVanishedPeer(t *testing.T) {
	p := join(Config{EchoInterval: 10 * time.Second, EchoFailures: 3}, Config{User: "ann", Password: "right"}, "right")
	p.run(5*time.Minute, once)
	if p.server.closed != nil {
		t.Fatalf("with a client that answers: %v", p.server.closed)
	}
	for range 60 {
		p.now = p.now.Add(time.Second)
		p.server.link.Tick(p.now)
		p.server.out = nil
	}
	if !errors.Is(p.server.closed, ErrSilent) {
		t.Errorf("%v", p.server.closed)
	}
}

// TestEnds: either end closes, and the other one is told.
func TestEnds(t *testing.T) {
	ownErr := errors.New("enough")
	for _, byServer := range []bool{true, false} {
		p := join(Config{}, Config{User: "ann", Password: "right"}, "right")
		p.run(time.Minute, once)
		one, other := &p.client, &p.server
		if byServer {
			one, other = other, one
		}
		one.link.Close(p.now, ownErr)
		p.carry(once)
		if !errors.Is(one.closed, ownErr) || !errors.Is(other.closed, ErrPeerClosed) || len(one.opened) != 1 {
			t.Errorf("by the server %v: %v, %v", byServer, one.closed, other.closed)
		}
	}
}

// TestRestored: another process takes over the server's end of an open link.
func TestRestored(t *testing.T) {
	cfg := Config{EchoInterval: 10 * time.Second, EchoFailures: 3}
	p := join(cfg, Config{User: "ann", Password: "right", EchoInterval: 7 * time.Second, EchoFailures: 2}, "right")
	p.run(time.Minute, once)
	state, open := p.server.link.State()
	if !open || state.Grant.Addr != assigned {
		t.Fatalf("%+v, %v", state, open)
	}
	cfg.Server, cfg.Address = true, gateway
	p.server = end{now: &p.now}
	p.server.link = Restore(cfg, &p.server, state, p.now)
	p.run(10*time.Minute, once)
	if p.client.closed != nil || p.server.closed != nil {
		t.Errorf("%v, %v", p.client.closed, p.server.closed)
	}
}

// TestLossyWire: frames are lost and repeated. In the end both ends are open, and the client has the address that the
// server gave it; or the client's end is closed.
func TestLossyWire(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		method := rapid.SampledFrom(Methods).Draw(r, "method")
		p := join(Config{Methods: []Method{method}}, Config{User: "ann", Password: "right", AskDNS: true}, "right")
		fates := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 1, 1, 2}), 0, 40).Draw(r, "fates")
		p.run(5*time.Minute, func() int {
			if len(fates) == 0 {
				return 1
			}
			f := fates[0]
			fates = fates[1:]
			return f
		})
		if len(p.client.opened) > 0 && p.client.opened[len(p.client.opened)-1].Local != assigned {
			r.Fatalf("the client has %+v", p.client.opened)
		}
		if p.client.closed == nil && (len(p.client.opened) == 0 || len(p.server.opened) == 0) {
			r.Fatalf("neither open nor ended: client %d, server %d times open, server: %v", len(p.client.opened),
				len(p.server.opened), p.server.closed)
		}
	})
}

// TestMSCHAPv2Vectors: the test vectors of RFC 2759, 9.2.
func TestMSCHAPv2Vectors(t *testing.T) {
	bytes := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	server, peer := bytes("5B5D7C7D7B3F2F3E3C2C602132262628"), bytes("21402324255E262A28295F2B3A337C7E")
	response := NTResponse(server, peer, "User", "clientPass")
	if want := bytes("82309ECD8D708B5EA08FAA3981CD83544233114A3D85D6DF"); string(response) != string(want) {
		t.Errorf("the response is %X", response)
	}
	if got, want := AuthenticatorResponse("clientPass", response, peer, server, "User"),
		"S=407A5589115FD0D6209F510FE9C04566932CDA56"; got != want {
		t.Errorf("the server's proof is %s", got)
	}
}

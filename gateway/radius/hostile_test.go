// Tests of forged and odd answers. newAttacker is a socket in place of a server, by which a test answers a Client
// (newClient in freeradius_test.go) itself: signed answers have a valid signature, others (answer) have none.

package radius

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// attacker answers in the place of a server. It knows the secret: an attacker without it is refused anyway.
type attacker struct {
	conn *net.UDPConn
	addr netip.AddrPort
}

func newAttacker(t testing.TB) *attacker {
	t.Helper()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(loopback(), 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &attacker{conn, conn.LocalAddr().(*net.UDPAddr).AddrPort()}
}

// server returns the client's configuration of it, for both purposes.
func (a *attacker) server() Server {
	return Server{Address: a.addr, AcctAddress: a.addr, Secret: testSecret}
}

// receivedRequest is a request that the attacker received, and its sender.
type receivedRequest struct {
	data []byte
	from netip.AddrPort
}

// receive waits for a request.
func (a *attacker) receive(t testing.TB) receivedRequest {
	buf := make([]byte, radius.MaxPacketLength)
	a.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	n, from, err := a.conn.ReadFromUDPAddrPort(buf)
	if err != nil || n < headerSize {
		t.Errorf("waiting for a request: %d bytes, %v", n, err)
		return receivedRequest{data: make([]byte, headerSize)}
	}
	return receivedRequest{buf[:n], from}
}

func (a *attacker) send(t testing.TB, to netip.AddrPort, data []byte) {
	if _, err := a.conn.WriteToUDPAddrPort(data, to); err != nil {
		t.Error(err)
	}
}

func attribute(kind radius.Type, value []byte) []byte {
	return append([]byte{byte(kind), byte(2 + len(value))}, value...)
}

// answer builds an unsigned answer.
func answer(request []byte, code radius.Code, attributes ...[]byte) []byte {
	data := append([]byte{byte(code), request[1], 0, 0}, request[4:headerSize]...)
	data = append(data, bytes.Join(attributes, nil)...)
	binary.BigEndian.PutUint16(data[2:], uint16(len(data)))
	return data
}

// seal sets the Response Authenticator.
func seal(request, data []byte) []byte {
	h := md5.New()
	h.Write(data[:4])
	h.Write(request[4:headerSize])
	h.Write(data[headerSize:])
	h.Write([]byte(testSecret))
	h.Sum(data[4:4])
	return data
}

// signed builds an answer like a correct server.
func signed(request []byte, code radius.Code, attributes ...[]byte) []byte {
	blank := attribute(rfc2869.MessageAuthenticator_Type, make([]byte, md5.Size))
	data := answer(request, code, append([][]byte{blank}, attributes...)...)
	mac := hmac.New(md5.New, []byte(testSecret))
	mac.Write(data)
	mac.Sum(data[signatureAt:signatureAt])
	return seal(request, data)
}

// flip changes one bit of a byte.
func flip(data []byte, i int) []byte {
	data[i] ^= 1
	return data
}

// TestForgeriesAreDropped: each forged Access-Accept is followed by the server's authentic Access-Reject, which must be
// the result. Long: most lines are the table of cases.
func TestForgeriesAreDropped(t *testing.T) {
	const accept = radius.CodeAccessAccept
	for _, tt := range []struct {
		name  string
		forge func(request []byte) []byte
		want  Stats // how the forgery is counted
	}{
		{"without Message-Authenticator", func(r []byte) []byte { return seal(r, answer(r, accept)) }, Stats{Unsigned: 1}},
		// The packet of BlastRADIUS: the collision makes the Response Authenticator of the server's reject that of an
		// accept, padded with Proxy-State. What looks like a Message-Authenticator is inside of one.
		{"BlastRADIUS", func(r []byte) []byte {
			gibberish := attribute(rfc2865.ProxyState_Type, bytes.Repeat([]byte{0xa5}, 200))
			hidden := attribute(rfc2865.ProxyState_Type, attribute(rfc2869.MessageAuthenticator_Type, make([]byte, md5.Size)))
			return seal(r, answer(r, accept, gibberish, hidden, gibberish))
		}, Stats{Unsigned: 1}},
		{"wrong Message-Authenticator", func(r []byte) []byte { return seal(r, flip(signed(r, accept), signatureAt)) },
			Stats{Forged: 1}},
		{"wrong Response Authenticator", func(r []byte) []byte { return flip(signed(r, accept), 4) }, Stats{Forged: 1}},
		{"changed attribute", func(r []byte) []byte {
			return flip(signed(r, accept, attribute(rfc2865.Class_Type, []byte("guest"))), signatureAt+md5.Size+2)
		}, Stats{Forged: 1}},
		{"reject made an accept", func(r []byte) []byte {
			data := signed(r, radius.CodeAccessReject)
			data[0] = byte(accept)
			return data
		}, Stats{Forged: 1}},
		{"answer to another request", func(r []byte) []byte { return signed(flip(slices.Clone(r), 10), accept) },
			Stats{Forged: 1}},
		{"two Message-Authenticators", func(r []byte) []byte {
			return signed(r, accept, attribute(rfc2869.MessageAuthenticator_Type, make([]byte, md5.Size)))
		}, Stats{Malformed: 1}},
		{"short Message-Authenticator", func(r []byte) []byte {
			return seal(r, answer(r, accept, attribute(rfc2869.MessageAuthenticator_Type, nil)))
		}, Stats{Malformed: 1}},
		{"attribute beyond the end", func(r []byte) []byte { return seal(r, answer(r, accept, []byte{1, 200, 0})) },
			Stats{Malformed: 1}},
		{"attribute without length", func(r []byte) []byte { return seal(r, answer(r, accept, []byte{1})) },
			Stats{Malformed: 1}},
		{"attribute of length 0", func(r []byte) []byte { return seal(r, answer(r, accept, []byte{1, 0})) },
			Stats{Malformed: 1}},
		{"other code", func(r []byte) []byte { return signed(r, radius.CodeAccountingResponse) }, Stats{Malformed: 1}},
		{"our own request", slices.Clone[[]byte], Stats{Malformed: 1}},
		{"longer than it is", func(r []byte) []byte { d := signed(r, accept); return d[:len(d)-1] }, Stats{Malformed: 1}},
		{"one byte", func([]byte) []byte { return []byte{2} }, Stats{Malformed: 1}},
		{"nothing", func([]byte) []byte { return nil }, Stats{Malformed: 1}},
		{"other identifier", func(r []byte) []byte { return signed(flip(slices.Clone(r), 1), accept) }, Stats{Unexpected: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAttacker(t)
			c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: time.Minute})
			go func() {
				r := a.receive(t)
				a.send(t, r.from, tt.forge(r.data))
				a.send(t, r.from,
					signed(r.data, radius.CodeAccessReject, attribute(rfc2865.ReplyMessage_Type, []byte("the truth"))))
			}()
			_, err := c.Authenticate(t.Context(), credentials("alice", "x"))
			var rejection *session.Rejection
			if !errors.As(err, &rejection) || rejection.Message != "the truth" {
				t.Errorf("%v, want the true answer", err)
			}
			tt.want.Server, tt.want.Asked, tt.want.Requests, tt.want.Answers = a.addr, true, 1, 1
			if diff := cmp.Diff(tt.want, c.Stats()[0], cmpAddrPort); diff != "" {
				t.Error(diff)
			}
		})
	}
}

var cmpAddrPort = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

// TestReplayedAnswers: the server's own answer to an earlier login, as somebody on the way has seen it, also with the
// identifier of a later login, does not let that login in.
func TestReplayedAnswers(t *testing.T) {
	a := newAttacker(t)
	c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: time.Minute})
	var seen []byte
	go func() {
		r := a.receive(t)
		seen = signed(r.data, radius.CodeAccessAccept)
		a.send(t, r.from, seen)
		r = a.receive(t)
		a.send(t, r.from, seen)
		renamed := slices.Clone(seen)
		renamed[1] = r.data[1]
		a.send(t, r.from, renamed)
		a.send(t, r.from, signed(r.data, radius.CodeAccessReject))
	}()
	if _, err := c.Authenticate(t.Context(), credentials("alice", "right")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Authenticate(t.Context(), credentials("alice", "wrong")); !errors.Is(err, session.ErrRejected) {
		t.Errorf("with a replayed answer: %v, want a rejection", err)
	}
	if s := c.Stats()[0]; s.Forged < 1 || s.Answers != 2 {
		t.Errorf("counted as %+v", s)
	}
}

// TestForgedAccounting: accounting counts as confirmed only by an answer with the server's authenticator.
func TestForgedAccounting(t *testing.T) {
	a := newAttacker(t)
	c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: time.Minute})
	forged := make(chan struct{})
	go func() {
		r := a.receive(t)
		a.send(t, r.from, flip(seal(r.data, answer(r.data, radius.CodeAccountingResponse)), 4))
		a.send(t, r.from, answer(r.data, radius.CodeAccountingResponse))
		a.send(t, r.from, seal(r.data, answer(r.data, radius.CodeAccessAccept)))
		close(forged)
		a.send(t, r.from, seal(r.data, answer(r.data, radius.CodeAccountingResponse)))
	}()
	if err := c.Account(t.Context(), session.Event{Kind: session.Started, At: time.Now()}); err != nil {
		t.Error(err)
	}
	<-forged
	if s := c.Stats()[1]; s.Forged != 2 || s.Malformed != 1 || s.Answers != 1 {
		t.Errorf("counted as %+v", s)
	}
}

// TestUnusualAnswersAccepted: unusual but valid answers.
func TestUnusualAnswersAccepted(t *testing.T) {
	with := func(code radius.Code, all ...[]byte) func([]byte) []byte {
		return func(request []byte) []byte { return signed(request, code, all...) }
	}
	number := func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
	class := attribute(rfc2865.Class_Type, make([]byte, maxValue))
	for _, tt := range []struct {
		name    string
		answer  func(request []byte) []byte
		want    error
		message string
	}{
		{"padding", func(r []byte) []byte { return append(signed(r, radius.CodeAccessAccept), 1, 2, 3) }, nil, ""},
		{"challenge", with(radius.CodeAccessChallenge, attribute(rfc2865.ReplyMessage_Type, []byte("Token?"))),
			session.ErrMoreAsked, "Token?"},
		{"service", with(radius.CodeAccessAccept, attribute(rfc2865.ServiceType_Type, number(5))), session.ErrUnfit,
			"Service-Type 5"},
		{"class", with(radius.CodeAccessAccept, slices.Repeat([][]byte{class}, 12)...), session.ErrUnfit,
			"3060 bytes of Class"},
		{"reject", with(radius.CodeAccessReject, attribute(rfc2865.ReplyMessage_Type, []byte("No."))), session.ErrRejected,
			"No."},
	} {
		a := newAttacker(t)
		c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: time.Minute})
		go func() {
			r := a.receive(t)
			a.send(t, r.from, tt.answer(r.data))
		}()
		_, err := c.Authenticate(t.Context(), credentials("alice", "x"))
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.message) ||
			errors.Is(err, session.ErrRejected) != (tt.want == session.ErrRejected) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

// TestRetransmissions: the same packet from the same port (RFC 5080, 2.2.1); an answer to either is accepted.
func TestRetransmissions(t *testing.T) {
	a := newAttacker(t)
	c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: 20 * time.Millisecond, Retries: 10})
	go func() {
		first, second := a.receive(t), a.receive(t)
		if !bytes.Equal(first.data, second.data) || first.from != second.from {
			t.Errorf("sent again as another packet:\n%x from %s\n%x from %s", first.data, first.from, second.data, second.from)
		}
		if k := radius.Type(first.data[headerSize]); k != rfc2869.MessageAuthenticator_Type {
			t.Errorf("first attribute is of type %d, want Message-Authenticator", k)
		}
		a.send(t, first.from, signed(first.data, radius.CodeAccessAccept))
	}()
	if _, err := c.Authenticate(t.Context(), credentials("alice", "x")); err != nil {
		t.Error(err)
	}
}

// TestAccountingRenewsItsPacket: once Acct-Delay-Time has changed, identifier and authenticator change too, and an
// answer to the old packet still counts.
func TestAccountingRenewsItsPacket(t *testing.T) {
	a := newAttacker(t)
	// The waits are longer than a second, so each transmission has another delay.
	c := newClient(t, Config{Servers: []Server{a.server()}, Timeout: 1200 * time.Millisecond, Retries: 5})
	go func() {
		first, second := a.receive(t), a.receive(t)
		for _, r := range []receivedRequest{first, second} {
			if !radius.IsAuthenticRequest(r.data, []byte(testSecret)) {
				t.Errorf("wrong Request Authenticator: %x", r.data)
			}
		}
		if first.data[1] == second.data[1] {
			t.Errorf("both have identifier %d", first.data[1])
		}
		if d1, d2 := delayOf(t, first), delayOf(t, second); d2 <= d1 || d1 < 30 {
			t.Errorf("Acct-Delay-Time %d, then %d", d1, d2)
		}
		a.send(t, first.from, seal(first.data, answer(first.data, radius.CodeAccountingResponse)))
	}()
	if err := c.Account(
		t.Context(), session.Event{Kind: session.Started, At: time.Now().Add(-30 * time.Second)}); err != nil {
		t.Error(err)
	}
	if s := c.Stats()[1]; !s.Accounting || s.Requests != 1 || s.Retransmits < 1 || s.Answers != 1 {
		t.Errorf("counted as %+v", s)
	}
}

// delayOf returns a packet's Acct-Delay-Time.
func delayOf(t testing.TB, r receivedRequest) rfc2866.AcctDelayTime {
	p, err := radius.Parse(r.data, []byte(testSecret))
	if err != nil {
		t.Error(err)
		return 0
	}
	return rfc2866.AcctDelayTime_Get(p)
}

// TestMoreThanOneSocketFullInFlight: more requests than the 256 identifiers of a port. Long: the steps of one run, each
// of which needs the state that the one before left.
func TestMoreThanOneSocketFullInFlight(t *testing.T) {
	const n = 700
	a := newAttacker(t)
	c := newClient(t, Config{Servers: []Server{a.server()}, InFlight: n, Retries: 10})
	outcomes := make(chan error)
	for range n {
		go func() {
			_, err := c.Authenticate(t.Context(), credentials("alice", "x"))
			outcomes <- err
		}()
	}
	type id struct {
		from netip.AddrPort
		id   byte
	}
	requests := map[id]receivedRequest{}
	ports := map[uint16]bool{}
	for len(requests) < n && !t.Failed() {
		r := a.receive(t) // also those sent again because this socket was full
		key := id{r.from, r.data[1]}
		if old, twice := requests[key]; twice && !bytes.Equal(old.data, r.data) {
			t.Fatalf("%v is two requests at once", key)
		}
		requests[key] = r
		ports[r.from.Port()] = true
	}
	for _, r := range requests {
		a.send(t, r.from, signed(r.data, radius.CodeAccessAccept))
	}
	// Answers are lost too: a repeated request is answered again.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			buf := make([]byte, radius.MaxPacketLength)
			size, from, err := a.conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			a.conn.WriteToUDPAddrPort(signed(buf[:size], radius.CodeAccessAccept), from)
		}
	}()
	for range n {
		if err := <-outcomes; err != nil {
			t.Error(err)
		}
	}
	a.conn.Close()
	<-done
	if len(ports) != 3 {
		t.Errorf("%d ports for %d requests, want 3", len(ports), n)
	}
	for _, s := range c.auth.endpoints[0].sockets {
		if s.inUse != 0 {
			t.Errorf("%d identifiers are still held", s.inUse)
		}
	}
}

func TestInFlightIsBounded(t *testing.T) {
	a := newAttacker(t)
	c := newClient(t, Config{Servers: []Server{a.server()}, InFlight: 3, Waiting: 3, Timeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	outcomes := make(chan error)
	for range 10 {
		go func() {
			_, err := c.Authenticate(ctx, credentials("alice", "x"))
			outcomes <- err
		}()
	}
	for range 5 {
		if err := <-outcomes; !errors.Is(err, session.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
	}
	a.receive(t)
	a.receive(t)
	if n := c.Stats()[0].Requests; n != 2 {
		t.Errorf("%d requests in flight, want 2 of one way", n)
	}
	cancel()
	for range 5 {
		if err := <-outcomes; !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the context's error", err)
		}
	}
}

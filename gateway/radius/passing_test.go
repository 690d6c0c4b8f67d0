package radius

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc3576"
)

// TestPassedRequest: a request about a session that is not here is carried out elsewhere once, however often the server
// sends it, and its answer says what was answered there. Long: the cases are a table, and each needs all of the steps.
func TestPassedRequest(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	from := server.LocalAddr().(*net.UDPAddr).AddrPort()
	there, o := newDynamic(t)
	for id, c := range map[byte]struct {
		session string
		err     error
		code    radius.Code
		cause   rfc3576.ErrorCause
	}{
		1: {session: o.s.ID, code: radius.CodeDisconnectACK},
		2: {session: "other", code: radius.CodeDisconnectNAK, cause: rfc3576.ErrorCause_Value_SessionContextNotFound},
		3: {session: "other", err: ErrNotThere, code: radius.CodeDisconnectNAK,
			cause: rfc3576.ErrorCause_Value_SessionContextNotFound},
		4: {session: "other", err: errors.New("away"), code: radius.CodeDisconnectNAK,
			cause: rfc3576.ErrorCause_Value_ProxyRequestNotRoutable},
	} {
		d, here := newDynamic(t)
		here.s.ID = "here"
		asked, answers := 0, make(chan struct{})
		d.cfg.Others = func(_ context.Context, request []byte) ([]byte, error) {
			asked++
			<-answers
			if c.err != nil {
				return nil, c.err
			}
			return there.CarryOut(request)
		}
		request := d.request(t, radius.CodeDisconnectRequest, id, testSecret, func(b builder) {
			b.Add(rfc2866.AcctSessionID_Type, radius.Attribute(c.session))
		})
		for range 3 {
			if a := d.receive(from, request, time.Now()); a != nil {
				t.Errorf("%d: it is answered before others were asked", id)
			}
		}
		close(answers)
		b := make([]byte, radius.MaxPacketLength)
		server.SetReadDeadline(time.Now().Add(time.Minute))
		n, _, err := server.ReadFromUDPAddrPort(b)
		if err != nil {
			t.Fatal(err)
		}
		p, err := radius.Parse(b[:n], []byte(testSecret))
		if err != nil || p.Code != c.code || rfc3576.ErrorCause_Get(p) != c.cause || asked != 1 {
			t.Errorf("%d: answered %+v, %v; asked %d times", id, p, err, asked)
		}
		again := d.receive(from, request, time.Now())
		if string(again) != string(b[:n]) {
			t.Errorf("%d: the repeated request is answered %x", id, again)
		}
	}
	if o.kicked != 1 {
		t.Errorf("the session was ended %d times", o.kicked)
	}
}

// TestTooManyPassedRequests: beyond a number of requests that other gateways are asked about, a server is told to come
// again.
func TestTooManyPassedRequests(t *testing.T) {
	d, _ := newDynamic(t)
	forever := make(chan struct{})
	defer close(forever)
	d.cfg.Others = func(context.Context, []byte) ([]byte, error) { <-forever; return nil, ErrNotThere }
	refused := 0
	for id := range passedAtOnce + 1 {
		request := d.request(t, radius.CodeDisconnectRequest, byte(id), testSecret, func(b builder) {
			b.Add(rfc2866.AcctSessionID_Type, radius.Attribute("other"))
		})
		if d.receive(netip.MustParseAddrPort("127.0.0.1:40000"), request, time.Now()) != nil {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d of %d requests are refused", refused, passedAtOnce+1)
	}
}

// Tests of Dynamic, which takes requests that end or change a session: Disconnect and CoA (RFC 5176). newDynamic makes
// one with a table of one session (oneSession), which counts what is done to it.

package radius

import (
	"crypto/hmac"
	"crypto/md5"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"
	"layeh.com/radius/rfc3162"
	"layeh.com/radius/rfc3576"
	"layeh.com/radius/rfc4818"

	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/logtest"
)

// oneSession is a table with one session. It counts what is done to it.
type oneSession struct {
	s               session.Session
	kicked, changed int
	late            error // of Kick, of a session that has ended
}

func (o *oneSession) Get(a netip.Addr) (session.Session, bool) {
	return o.s, a == o.s.Addr || slices.Contains(o.s.FurtherAddrs, a)
}
func (o *oneSession) Each(f func(session.Session) bool)            { f(o.s) }
func (o *oneSession) Kick(netip.Addr, string, session.Cause) error { o.kicked++; return o.late }
func (o *oneSession) Alter(_ netip.Addr, _ string, edit func(*session.Limits)) error {
	o.changed++
	edit(&o.s.Limits)
	return nil
}

// newDynamic listens for Disconnect and CoA requests about the one session of its table.
func newDynamic(t testing.TB) (*Dynamic, *oneSession) {
	t.Helper()
	o := &oneSession{s: session.Session{
		Key: session.Key{MAC: [6]byte{2, 0, 0, 0, 0, 1}, Addr: netip.MustParseAddr("10.1.0.9")}, State: session.Authenticated,
		ID: "5f3c", Login: session.Login{User: "ann"},
	}}
	cfg := Config{NASIdentifier: "here",
		Servers: []Server{{Address: netip.MustParseAddrPort("127.0.0.1:1812"), Secret: testSecret}}}
	d, err := ListenDynamic(cfg, netip.MustParseAddrPort("127.0.0.1:0"), o, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, o
}

// dynamicServer is the address from which the requests of the tests come.
var dynamicServer = netip.MustParseAddrPort("127.0.0.1:40000")

// request encodes a request with an identifier; fill adds its attributes.
func (d *Dynamic) request(t testing.TB, code radius.Code, id byte, secret string, fill func(builder)) []byte {
	t.Helper()
	p := builder{radius.New(code, []byte(secret))}
	p.Identifier = id
	fill(p)
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDynamicOnlyOnce: a repeated request gets the same answer and does nothing; an old one, one of a stranger and
// one with a wrong signature get none.
func TestDynamicOnlyOnce(t *testing.T) {
	d, o := newDynamic(t)
	var log logtest.Log
	d.log = log.Logger()
	o.late = session.ErrLater // as on a full disk
	now := time.Now().Truncate(time.Second)
	who := func(p builder) { p.text(rfc2866.AcctSessionID_Type, "5f3c") }
	request := d.request(t, radius.CodeDisconnectRequest, 1, testSecret, who)
	first, again := d.receive(dynamicServer, request, now), d.receive(dynamicServer, request, now)
	if o.kicked != 1 || string(first) != string(again) ||
		!radius.IsAuthenticResponse(first, request, []byte(testSecret)) || radius.Code(first[0]) != radius.CodeDisconnectACK {
		t.Errorf("%d sessions ended by one request, answered %x and %x", o.kicked, first, again)
	}
	old := d.request(t, radius.CodeDisconnectRequest, 2, testSecret, func(p builder) {
		who(p)
		p.number(rfc2869.EventTimestamp_Type, uint32(now.Add(-time.Hour).Unix()))
	})
	forged := d.request(t, radius.CodeDisconnectRequest, 3, "another secret", who)
	unsigned := d.request(t, radius.CodeDisconnectRequest, 4, testSecret, func(p builder) {
		p.Add(rfc2869.MessageAuthenticator_Type, make(radius.Attribute, md5.Size))
		who(p)
	})
	for name, b := range map[string][]byte{"old": old, "forged": forged, "with a wrong signature": unsigned,
		"an Access-Request": {1, 1, 0, 20, 19: 0}, "short": {40, 1}} {
		if a := d.receive(dynamicServer, b, now); a != nil {
			t.Errorf("what is %s is answered: %x", name, a)
		}
	}
	if a := d.receive(netip.MustParseAddrPort("127.0.0.9:40000"), request, now); a != nil || o.kicked != 1 {
		t.Errorf("a stranger is answered: %x", a)
	}
	if n := d.Stats(); n.Disconnects != 1 || n.Repeated != 1 || n.Forged != 2 || n.Malformed != 2 || n.Unauthentic != 1 ||
		n.Outdated != 1 {
		t.Errorf("%+v", n)
	}
	for _, want := range []string{
		`sender=127.0.0.1 why="Event-Timestamp is 3600 s off, behind this clock: is the clock`,
		`sender=127.0.0.1 why="its signature is wrong: is the secret right?"`,
		`sender=127.0.0.1 why="it is no Disconnect- or CoA-Request`,
		`sender=127.0.0.9 why="it is not from radius.primary or radius.secondary"`,
	} {
		if n := log.Count(want); n != 1 { // of two, one a minute
			t.Errorf("said %d times, want once: %s\n%s", n, want, log.String())
		}
	}
}

// TestDynamicIsLogged: the log says who asked, about whom, and in words why a request is refused.
func TestDynamicIsLogged(t *testing.T) {
	d, _ := newDynamic(t)
	var log logtest.Log
	d.log = log.Logger()
	for id, fill := range []func(builder){
		func(p builder) { p.text(rfc2866.AcctSessionID_Type, "5f3c") },
		func(p builder) {
			p.text(rfc2865.UserName_Type, "bob")
			p.text(rfc2866.AcctSessionID_Type, "77")
			p.text(rfc2865.CallingStationID_Type, "02-00-00-00-00-09")
		},
		func(p builder) {
			p.text(rfc2865.UserName_Type, "ann")
			p.text(rfc2865.NASIdentifier_Type, "there")
		},
	} {
		d.receive(dynamicServer, d.request(t, radius.CodeDisconnectRequest, byte(id), testSecret, fill), time.Now())
	}
	for _, want := range []string{
		"server=127.0.0.1 code=Disconnect-Request answer=Disconnect-ACK " +
			`user=ann client=02:00:00:00:00:01/10.1.0.9 session=5f3c` + "\n",
		`answer=Disconnect-NAK user=bob client=02-00-00-00-00-09 session=77 error-cause=503 why="no session is as it says"`,
		`user=ann client="" session="" error-cause=403 why="it is for another gateway`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("not said: %s\n%s", want, log.String())
		}
	}
}

// TestDynamicWithoutTimestamp: the same request without Event-Timestamp, later than a server sends one again,
// may be meant anew: it is refused, and logged, also by the next daemon. One with a time is a repetition.
func TestDynamicWithoutTimestamp(t *testing.T) {
	d, o := newDynamic(t)
	var logs logtest.Log
	d.log = logs.Logger()
	path := filepath.Join(t.TempDir(), "requests")
	now := time.Now()
	again := func(request []byte, after time.Duration, want radius.Code, warned int) {
		t.Helper()
		b := d.receive(dynamicServer, request, now.Add(after))
		if b == nil || radius.Code(b[0]) != want || !radius.IsAuthenticResponse(b, request, []byte(testSecret)) {
			t.Errorf("after %s answered by %x, want %s", after, b, want)
		}
		if n := logs.Count("without Event-Timestamp"); n != warned {
			t.Errorf("after %s warned %d times, want %d", after, n, warned)
		}
	}
	d.repeats = openRepeats(path, now, d.log)
	untimed := d.request(
		t, radius.CodeDisconnectRequest, 1, testSecret, func(p builder) { p.text(rfc2865.UserName_Type, "ann") })
	again(untimed, 0, radius.CodeDisconnectACK, 0)
	again(untimed, 29*time.Second, radius.CodeDisconnectACK, 0)
	again(untimed, 31*time.Second, radius.CodeDisconnectNAK, 1)
	again(untimed, time.Hour, radius.CodeDisconnectNAK, 1) // a recorded one that is sent again and again fills no log
	timed := d.request(t, radius.CodeDisconnectRequest, 2, testSecret, func(p builder) {
		p.text(rfc2865.UserName_Type, "ann")
		p.number(rfc2869.EventTimestamp_Type, uint32(now.Unix()))
	})
	again(timed, 0, radius.CodeDisconnectACK, 1)
	again(timed, time.Minute, radius.CodeDisconnectACK, 1)
	d.repeats = openRepeats(path, now, d.log)
	again(untimed, 2*time.Hour, radius.CodeDisconnectNAK, 2)
	if o.kicked != 2 {
		t.Errorf("two requests were carried out %d times", o.kicked)
	}
}

// TestDynamicIsNotReplayed: a recorded request is not carried out again, from whatever port of the server, for as long
// as its Event-Timestamp is accepted, or for a day without one, however many others come, and also by the next daemon.
// Long: the steps of one run, each of which needs the state that the one before left.
func TestDynamicIsNotReplayed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "requests")
	d, o := newDynamic(t)
	began := time.Now().Truncate(time.Second)
	d.repeats = openRepeats(path, began, d.log)
	ask := func(code radius.Code, id byte, stamp time.Duration) []byte {
		return d.request(t, code, id, testSecret, func(p builder) {
			p.text(rfc2865.UserName_Type, "ann")
			if code == radius.CodeCoARequest {
				p.number(rfc2865.SessionTimeout_Type, 60)
			}
			if stamp != 0 {
				p.number(rfc2869.EventTimestamp_Type, uint32(began.Add(stamp).Unix()))
			}
		})
	}
	requests := [][]byte{
		ask(radius.CodeDisconnectRequest, 1, time.Second), ask(radius.CodeCoARequest, 1, time.Second),
		ask(radius.CodeDisconnectRequest, 2, 299*time.Second),
		ask(radius.CodeDisconnectRequest, 3, 0),
	}
	port := uint16(0)
	replay := func(instant time.Duration) {
		t.Helper()
		for i, r := range requests {
			port++
			if b := d.receive(netip.AddrPortFrom(dynamicServer.Addr(), port), r, began.Add(instant)); b != nil &&
				!radius.IsAuthenticResponse(b, r, []byte(testSecret)) {
				t.Errorf("request %d is answered by %x", i, b)
			}
		}
		if n := o.kicked + o.changed; n != len(requests) {
			t.Fatalf("after %s %d requests were carried out %d times", instant, len(requests), n)
		}
	}
	replay(0)
	for _, instant := range []time.Duration{
		0, 31 * time.Second, 300 * time.Second, 598 * time.Second, 24*time.Hour - time.Second} {
		replay(instant)
	}
	for i := range 5000 {
		d.receive(dynamicServer, d.request(t, radius.CodeDisconnectRequest, byte(i), testSecret, func(p builder) {
			p.text(rfc2865.UserName_Type, fmt.Sprint("nobody", i))
		}), began)
	}
	replay(299 * time.Second)
	// The next daemon, also where the last record was cut off.
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.Write([]byte("half a record"))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	d.repeats = openRepeats(path, began.Add(299*time.Second), d.log)
	replay(300 * time.Second)
}

// TestDynamicHasNoRoom: where all that is remembered could be repeated, further requests are refused; otherwise those
// without Event-Timestamp go first, the oldest of them.
func TestDynamicHasNoRoom(t *testing.T) {
	d, o := newDynamic(t)
	now := time.Now()
	for i := range rememberN {
		q := requestID{from: dynamicServer.Addr(), authenticator: [16]byte{byte(i), byte(i >> 8), byte(i >> 16)}}
		d.repeats.answered[q] = answeredRequest{forgetAt: now.Add(time.Duration(i+1) * time.Second), timed: i >= 8}
	}
	who := func(p builder) { p.text(rfc2866.AcctSessionID_Type, "5f3c") }
	for id := range byte(9) {
		d.receive(dynamicServer, d.request(t, radius.CodeDisconnectRequest, id, testSecret, func(p builder) {
			who(p)
			p.number(rfc2869.EventTimestamp_Type, uint32(now.Unix()))
		}), now)
	}
	if n := d.Stats(); o.kicked != 8 || n.Refused != 1 || len(d.repeats.answered) != rememberN {
		t.Errorf("%d ended, %d refused, %d remembered", o.kicked, n.Refused, len(d.repeats.answered))
	}
}

// TestDynamicForgets: requests that are refused because of their Event-Timestamp are not kept, in memory or in the
// file, however many there were. Requests that would be accepted are still carried out only once.
func TestDynamicForgets(t *testing.T) {
	d, o := newDynamic(t)
	path, began := filepath.Join(t.TempDir(), "requests"), time.Now()
	d.repeats = openRepeats(path, began, d.log)
	const n = 10 * lookN
	var all [n][]byte
	for i := range all { // one a second
		now := began.Add(time.Duration(i) * time.Second)
		all[i] = d.request(t, radius.CodeDisconnectRequest, byte(i), testSecret, func(p builder) {
			p.text(rfc2865.UserName_Type, "ann")
			p.number(rfc2869.EventTimestamp_Type, uint32(now.Unix()))
		})
		d.receive(dynamicServer, all[i], now)
	}
	for _, again := range all {
		d.receive(dynamicServer, again, began.Add((n-1)*time.Second))
	}
	if o.kicked != n {
		t.Errorf("%d requests were carried out %d times", n, o.kicked)
	}
	file, err := os.Stat(path)
	if err != nil || file.Size() > 2*lookN*recordSize || len(d.repeats.answered) > lookN {
		t.Errorf("%d of %d requests are remembered, %d bytes in the file, %v", len(d.repeats.answered), n, file.Size(), err)
	}
}

// TestDynamicSigned: a signed request gets a signed answer with its Proxy-State, and a reason.
func TestDynamicSigned(t *testing.T) {
	d, o := newDynamic(t)
	p := builder{radius.New(radius.CodeCoARequest, []byte(testSecret))}
	p.Add(rfc2869.MessageAuthenticator_Type, make(radius.Attribute, md5.Size))
	p.text(rfc2865.UserName_Type, "bob")
	p.number(rfc2865.SessionTimeout_Type, 60)
	p.text(rfc2865.ProxyState_Type, "state")
	p.Authenticator = [16]byte{}
	plain, err := p.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(md5.New, []byte(testSecret))
	mac.Write(plain)
	copy(p.Attributes[0].Attribute, mac.Sum(nil))
	request, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b := d.receive(dynamicServer, request, time.Now())
	signature, err := findSignature(b)
	if err != nil || signature == 0 || !signatureHolds(b, signature, []byte(testSecret), [16]byte(request[4:])) {
		t.Fatalf("the answer is not signed: %x, %v", b, err)
	}
	answer, err := radius.Parse(b, []byte(testSecret))
	if err != nil || o.changed != 0 {
		t.Fatalf("%v, %d changes", err, o.changed)
	}
	cause, _ := numericAttr(answer, rfc3576.ErrorCause_Type)
	if answer.Code != radius.CodeCoANAK || rfc3576.ErrorCause(cause) != rfc3576.ErrorCause_Value_SessionContextNotFound ||
		string(answer.Get(rfc2865.ProxyState_Type)) != "state" {
		t.Errorf("answered by %v", answer)
	}
}

// FuzzDynamic: only authentic requests that name the session do anything to it. Long: the seeds and one property.
func FuzzDynamic(f *testing.F) {
	d, o := newDynamic(f)
	o.s.FurtherAddrs = testFurther
	d.cfg.Prefixes = testPrefixes
	all := testPrefixes(o.s)
	f.Add(d.request(f, radius.CodeDisconnectRequest, 3, testSecret, func(p builder) {
		p.addresses6(testFurther...)
	})[headerSize:], false)
	f.Add(d.request(f, radius.CodeDisconnectRequest, 1, testSecret, func(p builder) {
		p.text(rfc2865.UserName_Type,
			"ann")
	})[headerSize:], false)
	f.Add(d.request(f, radius.CodeCoARequest, 2, testSecret, func(p builder) {
		p.text(rfc2866.AcctSessionID_Type, "5f3c")
		p.number(rfc2865.SessionTimeout_Type, 60)
		p.vendor(vendorWISPr, wisprMaxUp, []byte{0, 0, 1, 0})
	})[headerSize:], true)
	f.Add(d.request(f, radius.CodeCoARequest, 4, testSecret, func(p builder) {
		p.Add(rfc3162.FramedIPv6Prefix_Type, prefixValue6(all.Own[1]))
		p.Add(rfc4818.DelegatedIPv6Prefix_Type, prefixValue6(all.Delegated[0]))
		p.Add(rfc3162.FramedInterfaceID_Type, testFurther[1].AsSlice()[8:])
		p.number(rfc2865.IdleTimeout_Type, 60)
	})[headerSize:], true)
	f.Add([]byte("\x01\x05Ann"), false) // the same user
	var id byte
	f.Fuzz(func(t *testing.T, attributes []byte, coa bool) {
		attributes = attributes[:min(len(attributes), radius.MaxPacketLength-headerSize)]
		code := radius.CodeDisconnectRequest
		if coa {
			code = radius.CodeCoARequest
		}
		attrs, err := radius.ParseAttributes(attributes)
		if err != nil {
			return
		}
		id++
		before := *o
		request := d.request(t, code, id, testSecret, func(p builder) { p.Attributes = attrs })
		now := time.Now()
		b := d.receive(dynamicServer, request, now)
		if b != nil && !radius.IsAuthenticResponse(b, request, []byte(testSecret)) {
			t.Fatalf("answered by %x", b)
		}
		done := o.kicked + o.changed - before.kicked - before.changed
		if acked := b != nil && (radius.Code(b[0]) == radius.CodeDisconnectACK || radius.Code(
			b[0]) == radius.CodeCoAACK); acked != (done == 1) && done != 0 {
			t.Fatalf("%d done, answered by %x", done, b)
		}
		p := &radius.Packet{Attributes: attrs}
		named := string(p.Get(rfc2866.AcctSessionID_Type)) == o.s.ID ||
			session.SameUser(string(p.Get(rfc2865.UserName_Type)), o.s.User) || framedAddress(p) == o.s.Addr ||
			slices.Contains(o.s.FurtherAddrs, framedAddress6(p)) || p.Get(rfc2865.CallingStationID_Type) != nil ||
			hasPrefix6(all.Own, p.Get(rfc3162.FramedIPv6Prefix_Type)) ||
			hasPrefix6(all.Delegated, p.Get(rfc4818.DelegatedIPv6Prefix_Type)) ||
			hasInterfaceID(o.s, p.Get(rfc3162.FramedInterfaceID_Type))
		if done > 0 && !named {
			t.Fatalf("done by %x", attributes)
		}
		request[4]++
		if d.receive(dynamicServer, request, now) != nil {
			t.Fatal("a forged request is answered")
		}
	})
}

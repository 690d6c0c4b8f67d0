// Disconnect- and CoA-Requests, which servers send to the gateway (RFC 5176).

package radius

import (
	"context"
	"crypto/hmac"
	"crypto/md5"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2869"
	"layeh.com/radius/rfc3576"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// Sessions is the table of sessions that servers may change. For a session that has ended it fails with
// session.ErrNoSession.
type Sessions interface {
	// Get returns the client that has an address, and Each all of them.
	Get(netip.Addr) (session.Session, bool)
	Each(func(session.Session) bool)
	// Kick ends the session of an address with an ID, also with session.ErrLater, and Alter changes its limits.
	Kick(addr netip.Addr, id string, cause session.Cause) error
	Alter(addr netip.Addr, id string, how func(*session.Limits)) error
}

// DynamicStats count requests since the start.
type DynamicStats struct {
	Disconnects, Changes, Refused uint64 // carried out; answered with a NAK
	Forged, Malformed, Repeated   uint64 // dropped, dropped, answered once more
	Unauthentic, Outdated         uint64 // dropped: not from a server; Event-Timestamp too old, or ahead
}

// Dynamic carries out what servers ask of sessions (RFC 5176): Disconnect-Requests end them, and
// CoA-Requests change their limits. It listens to the configured servers alone.
type Dynamic struct {
	cfg      Config
	sessions Sessions
	log      *slog.Logger
	conn     *net.UDPConn
	secrets  map[netip.Addr][]byte

	mu      sync.Mutex    // guards repeats
	passing chan struct{} // has an element for each request that other gateways are asked to carry out
	repeats *requestMemory
	older   budget.OncePerMinute // to log requests that may have been carried out before

	stats struct{ disconnects, changes, refused, repeated atomic.Uint64 }
	// requests without an answer, by why
	unauthentic, forged, malformed, outdated dropped
	once                                     sync.Once
}

// ListenDynamic opens the port. Nothing is answered before Serve. The file at path, which may be missing, has
// the requests that were carried out, so that none is carried out again; empty: there is none. While it cannot be
// written they are kept in memory.
func ListenDynamic(cfg Config, addr netip.AddrPort, sessions Sessions, path string, log *slog.Logger) (
	*Dynamic, error) {
	cfg = cfg.withDefaults()
	d := &Dynamic{cfg: cfg, sessions: sessions, log: log, secrets: map[netip.Addr][]byte{},
		passing: make(chan struct{}, passedAtOnce)}
	for _, s := range cfg.Servers {
		d.secrets[s.Address.Addr().Unmap()] = []byte(s.Secret)
		if a := s.AcctAddress.Addr().Unmap(); d.secrets[a] == nil {
			d.secrets[a] = []byte(s.Secret)
		}
	}
	var err error
	d.repeats = openRepeats(path, time.Now(), log)
	if d.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr)); err != nil {
		d.repeats.close()
		return nil, fmt.Errorf("radius: listening for requests of servers (radius.dynamic): %w", err)
	}
	return d, nil
}

// Close ends Serve. Twice is no error.
func (d *Dynamic) Close() (err error) {
	d.once.Do(func() {
		err = d.conn.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.repeats.close()
	})
	return err
}

// Stats returns the counts.
func (d *Dynamic) Stats() DynamicStats {
	s := &d.stats
	return DynamicStats{
		Disconnects: s.disconnects.Load(), Changes: s.changes.Load(), Refused: s.refused.Load(), Repeated: s.repeated.Load(),
		Forged: d.forged.n.Load(), Malformed: d.malformed.n.Load(), Unauthentic: d.unauthentic.n.Load(),
		Outdated: d.outdated.n.Load(),
	}
}

// Serve answers until ctx ends.
func (d *Dynamic) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = d.Close() })
	defer stop()
	for b := make([]byte, radius.MaxPacketLength+1); ; {
		d.mu.Lock()
		d.repeats.retry(time.Now())
		var until time.Time
		if d.repeats.unwritten() {
			until = time.Now().Add(tryAgain)
		}
		d.mu.Unlock()
		_ = d.conn.SetReadDeadline(until)
		n, from, err := d.conn.ReadFromUDPAddrPort(b)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // an ICMP error about an answer
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if answer := d.receive(from, b[:n], time.Now()); answer != nil {
			_, _ = d.conn.WriteToUDPAddrPort(answer, from)
		}
	}
}

// receive returns the answer to a packet; nil: it gets none, or later, when other gateways were asked.
func (d *Dynamic) receive(from netip.AddrPort, data []byte, now time.Time) []byte {
	p := d.authentic(from, data, now)
	if p == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	q := requestID{from.Addr(), p.Identifier, p.Authenticator}
	if before, present := d.repeats.answerTo(q, now); present {
		d.stats.repeated.Add(1)
		if before.late || before.fresh(now) {
			return before.packet
		}
		d.log.Warn("radius: a request without Event-Timestamp was carried out before and is refused: have the server add "+
			"one, so that each request differs",
			"server", from.Addr().String(), "code", p.Code.String())
		answer := d.answer(p, q.from, nil, rfc3576.ErrorCause_Value_InvalidRequest)
		d.repeats.answer(q, answer, true)
		return answer
	}
	if !d.repeats.add(q, p, now) {
		return d.answer(p, q.from, nil, rfc3576.ErrorCause_Value_ResourcesUnavailable)
	}
	if d.repeats.mayBeRepeat(p, now) {
		d.older.Do(func() {
			d.log.Warn("radius: a request that may have been carried out before is refused: the file of those is not complete, "+
				"and this one is older than the gateway's start or without Event-Timestamp; "+
				"send it anew, with Event-Timestamp",
				"server", from.Addr().String(), "code", p.Code.String())
		})
		answer := d.answer(p, q.from, nil, rfc3576.ErrorCause_Value_InvalidRequest)
		d.repeats.answer(q, answer, true)
		return answer
	}
	found, cause := d.carryOut(p)
	if d.mayBeElsewhere(cause) {
		if d.pass(p, cause, func(cause rfc3576.ErrorCause) { d.answerLater(p, q, from, cause) }) {
			return nil
		}
		cause = rfc3576.ErrorCause_Value_ResourcesUnavailable
	}
	answer := d.answer(p, q.from, found, cause)
	d.repeats.answer(q, answer, false)
	return answer
}

// answerLater answers a request that other gateways were asked to carry out.
func (d *Dynamic) answerLater(p *radius.Packet, q requestID, from netip.AddrPort, cause rfc3576.ErrorCause) {
	answer := d.answer(p, q.from, nil, cause)
	d.mu.Lock()
	d.repeats.answer(q, answer, false)
	d.mu.Unlock()
	_, _ = d.conn.WriteToUDPAddrPort(answer, from)
}

// authentic decodes a packet that is a recent request, signed by a configured server. It counts any other packet and
// returns nil.
func (d *Dynamic) authentic(from netip.AddrPort, data []byte, now time.Time) *radius.Packet {
	secret := d.secrets[from.Addr()]
	if secret == nil {
		return d.drop(&d.unauthentic, from, "it is not from radius.primary or radius.secondary")
	}
	p, err := openRequest(data, secret)
	if errors.Is(err, errMalformed) {
		return d.drop(&d.malformed, from, "it is no Disconnect- or CoA-Request, or damaged")
	}
	if err != nil {
		return d.drop(&d.forged, from, "its signature is wrong: is the secret right?")
	}
	if off := age(p, now); off.Abs() > clockWindow {
		way := "behind"
		if off < 0 {
			way = "ahead of"
		}
		return d.drop(&d.outdated, from,
			fmt.Sprintf("Event-Timestamp is %.0f s off, %s this clock: is the clock right, here and there?",
				off.Abs().Seconds(), way))
	}
	return p
}

// openRequest decodes an authentic request: signed as in accounting (RFC 5176, 2.3), and its
// Message-Authenticator, if it has one, is right.
func openRequest(data, secret []byte) (*radius.Packet, error) {
	if len(data) < headerSize {
		return nil, errMalformed
	}
	size := int(binary.BigEndian.Uint16(data[2:4]))
	if size < headerSize || size > len(data) || size > radius.MaxPacketLength {
		return nil, errMalformed
	}
	data = data[:size]
	code := radius.Code(data[0])
	signature, err := findSignature(data)
	if err != nil || code != radius.CodeDisconnectRequest && code != radius.CodeCoARequest {
		return nil, errMalformed
	}
	if !radius.IsAuthenticRequest(data, secret) || signature != 0 && !signatureHolds(data, signature, secret, [16]byte{}) {
		return nil, errForged
	}
	p, err := radius.Parse(data, secret)
	if err != nil {
		return nil, errMalformed
	}
	return p, nil
}

// age is how old a request is by its Event-Timestamp; 0: it has none. Somebody who recorded an old request may be
// sending it again.
func age(p *radius.Packet, now time.Time) time.Duration {
	at, found := numericAttr(p, rfc2869.EventTimestamp_Type)
	if !found {
		return 0
	}
	return now.Sub(time.Unix(int64(at), 0))
}

// dropped counts requests that get no answer for one reason, and logs one of them a minute.
type dropped struct {
	n   atomic.Uint64
	log budget.OncePerMinute
}

// drop counts a request that gets no answer, and returns nil instead of it.
func (d *Dynamic) drop(which *dropped, from netip.AddrPort, reason string) *radius.Packet {
	which.n.Add(1)
	which.log.Do(func() {
		d.log.Warn("radius: a request to end or change a session gets no answer", "sender", from.Addr().String(), "why",
			reason)
	})
	return nil
}

// answer encodes and logs the answer to an authentic request of a server about the sessions found; cause is why it was
// not carried out, 0: it was.
func (d *Dynamic) answer(
	p *radius.Packet, server netip.Addr, found []session.Session, cause rfc3576.ErrorCause,
) []byte {
	ack, nak, count := radius.CodeDisconnectACK, radius.CodeDisconnectNAK, &d.stats.disconnects
	if p.Code == radius.CodeCoARequest {
		ack, nak, count = radius.CodeCoAACK, radius.CodeCoANAK, &d.stats.changes
	}
	reply := builder{p.Response(ack)}
	if cause != 0 {
		reply.Code, count = nak, &d.stats.refused
		reply.number(rfc3576.ErrorCause_Type, uint32(cause))
	}
	count.Add(1)
	_, signed := p.Lookup(rfc2869.MessageAuthenticator_Type)
	if signed {
		reply.Attributes = append(
			radius.Attributes{{Type: rfc2869.MessageAuthenticator_Type, Attribute: make([]byte, md5.Size)}}, reply.Attributes...)
	}
	for _, a := range p.Attributes {
		if a.Type == rfc2865.ProxyState_Type {
			reply.Add(a.Type, a.Attribute)
		}
	}
	if signed {
		plain, err := reply.MarshalBinary() // with the request's authenticator
		if err != nil {
			return nil
		}
		mac := hmac.New(md5.New, p.Secret)
		mac.Write(plain)
		copy(reply.Attributes[0].Attribute, mac.Sum(nil))
	}
	b, err := reply.Encode()
	if err != nil {
		return nil
	}
	attrs := []any{"server", server.String(), "code", p.Code.String(), "answer", reply.Code.String()}
	attrs = append(attrs, logUsers(p, found)...)
	if cause != 0 {
		attrs = append(attrs, "error-cause", uint32(cause), "why", inWords(cause))
	}
	d.log.Info("radius: a server's request", attrs...)
	return b
}

// carryOut carries out a request. It returns the sessions that the request names, and why it did not; 0: it did.
func (d *Dynamic) carryOut(p *radius.Packet) ([]session.Session, rfc3576.ErrorCause) {
	if !d.addressed(p) {
		return nil, rfc3576.ErrorCause_Value_NASIdentificationMismatch
	}
	limits, cause := d.parseChange(p)
	if cause != 0 {
		return nil, cause
	}
	found, cause := d.identified(p)
	if cause != 0 {
		return nil, cause
	}
	for _, s := range found {
		var err error
		if p.Code == radius.CodeDisconnectRequest {
			err = d.sessions.Kick(s.Addr, s.ID, session.AdminReset)
		} else {
			err = d.sessions.Alter(s.Addr, s.ID, limits.change(s.Began))
		}
		if err != nil && !errors.Is(err, session.ErrNoSession) && !errors.Is(err, session.ErrLater) {
			d.log.Warn("radius: carrying out a server's request", "client", s.Key.String(), "session", s.ID, "err", err)
			return found, rfc3576.ErrorCause_Value_ResourcesUnavailable
		}
	}
	return found, 0
}

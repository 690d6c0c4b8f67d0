package persona

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// Session is a client's PPPoE session.
type Session struct {
	sessions *Sessions
	mac      MAC
	account  Account

	// Each channel is closed once: when a PADO came, when a PADS came, when IPCP is open, when IPCP and IPV6CP are, when a
	// router advertisement came, when the session is over.
	offered, confirmed, opened, opened6, advertised, closed chan struct{}

	mu           sync.Mutex // guards what follows, and link's methods
	concentrator SessionID
	tags         []pppoe.Tag // for the PADR: those of the PADO that the concentrator wants back
	link         *ppp.Link   // nil before the PADS
	early        [][]byte    // frames for link that were read before the PADS, which comes by another socket
	timer        *time.Timer // calls tick; nil before link
	terms        ppp.Terms
	prefix       netip.Prefix // a /64, as advertised
	router6      netip.Addr   // which advertised it
	endReason    error        // why the session is over
}

// maxEarly is the largest number of frames in Session.early.
const maxEarly = 4

var errNoSession = errors.New("the concentrator gives no session")

// dial carries out PPPoE's discovery and waits until the link is open.
func (s *Session) dial(ctx context.Context, tries *Tries) error {
	uniq := pppoe.Tag{Type: pppoe.HostUniq, Value: s.mac[:]}
	padi := &pppoe.Frame{
		To: pppoe.Broadcast, From: s.mac, Code: pppoe.PADI, Tags: []pppoe.Tag{{Type: pppoe.ServiceName}, uniq}}
	if err := s.ask(ctx, padi, s.offered, tries); err != nil {
		return fmt.Errorf("looking for a concentrator (PADI): %w", err)
	}
	s.mu.Lock()
	padr := &pppoe.Frame{To: s.concentrator.Concentrator, From: s.mac, Code: pppoe.PADR, Tags: append([]pppoe.Tag{{
		Type: pppoe.ServiceName}, uniq}, s.tags...)}
	s.mu.Unlock()
	if err := s.ask(ctx, padr, s.confirmed, tries); err != nil {
		return fmt.Errorf("asking for a session (PADR): %w", err)
	}
	err := s.await(ctx, s.opened, nil)
	if err == nil && s.sessions.net6.IsValid() {
		err = s.autoconfigure(ctx, tries)
	}
	if err != nil && !isClosed(s.closed) {
		s.mu.Lock()
		s.link.Abort(err)
		s.mu.Unlock()
		_ = s.terminate()
		err = fmt.Errorf("logging in: %w", err)
	}
	if err != nil {
		return fmt.Errorf("session %d: %w", s.concentrator.ID, err)
	}
	return nil
}

// await waits until a channel of the session is closed. It returns why that did not happen: the session's end, ctx's,
// or errLate when late, which may be nil, came first.
func (s *Session) await(ctx context.Context, reached <-chan struct{}, late <-chan time.Time) error {
	select {
	case <-reached:
		return nil
	case <-s.closed:
		return s.endReason
	case <-late:
		return errLate
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errLate = errors.New("not in time")

// ask sends a frame of discovery, repeatedly, until answered is closed.
func (s *Session) ask(ctx context.Context, f *pppoe.Frame, answered <-chan struct{}, tries *Tries) error {
	wait := firstWait
	for n := 1; ; n++ {
		if err := s.sessions.send(f); err != nil {
			return err
		}
		select {
		case <-answered:
			return nil
		case <-s.closed:
			return s.endReason
		case <-time.After(time.Duration(float64(wait) * (0.9 + 0.2*rand.Float64()))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := fmt.Errorf("no answer within %s", wait)
		if n == maxSends {
			return fmt.Errorf("sent %d times: %w", n, err)
		}
		tries.Add(Tries{1, err})
		wait = min(2*wait, lastWait)
	}
}

// isClosed reports whether a channel that carries no values is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// receive handles a frame of the concentrator.
func (s *Session) receive(f *pppoe.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case f.Code == pppoe.PADO && !isClosed(s.offered):
		s.concentrator.Concentrator = f.From
		for _, kind := range []pppoe.TagType{pppoe.ACCookie, pppoe.RelaySessionID} {
			if v, found := f.Tag(kind); found {
				s.tags = append(s.tags, pppoe.Tag{Type: kind, Value: append([]byte(nil), v...)})
			}
		}
		close(s.offered)
	case f.Code == pppoe.PADS && f.From == s.concentrator.Concentrator && !isClosed(s.confirmed) && !isClosed(s.closed):
		if f.Session == 0 {
			s.closeLocally(errNoSession)
			return
		}
		s.concentrator.ID = f.Session
		s.link = ppp.New(ppp.Config{User: s.account.User, Password: s.account.Password, IPv6: s.sessions.net6.IsValid()},
			(*pppHandler)(s))
		s.timer = time.AfterFunc(time.Hour, s.tick)
		s.link.Open(now)
		for _, frame := range s.early {
			s.link.Receive(now, frame)
		}
		s.early = nil
		s.setTimer(now)
		close(s.confirmed)
	case s.link == nil && f.PPP != nil && f.From == s.concentrator.Concentrator && len(s.early) < maxEarly:
		s.early = append(s.early, bytes.Clone(f.PPP))
	case s.link == nil || f.Session != s.concentrator.ID || f.From != s.concentrator.Concentrator:
	case f.Code == pppoe.PADT:
		s.link.Abort(ppp.ErrPeerClosed)
	case f.PPP != nil:
		s.hear6(f.PPP)
		s.link.Receive(now, f.PPP)
		s.setTimer(now)
	}
}

// tick has the link do what is due, such as repeating a message.
func (s *Session) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.link.Tick(now)
	s.setTimer(now)
}

// setTimer sets the timer to the time at which the link has something to do next. The caller holds mu.
func (s *Session) setTimer(now time.Time) {
	switch next := s.link.Next(); {
	case isClosed(s.closed), next.IsZero():
		s.timer.Stop()
	default:
		s.timer.Reset(next.Sub(now))
	}
}

// closeLocally marks the session as over, without a message to the concentrator. The caller holds mu.
func (s *Session) closeLocally(reason error) {
	if isClosed(s.closed) {
		return
	}
	s.endReason = reason
	close(s.closed)
}

// pppHandler is a Session as its link sees it. The link calls these methods while the session's mu is held.
type pppHandler Session

// Send implements ppp.Handler.
func (h *pppHandler) Send(frame []byte) {
	s := (*Session)(h)
	// A frame that cannot be sent counts as lost: the link sends it again.
	_ = s.sessions.send(&pppoe.Frame{To: s.concentrator.Concentrator, From: s.mac, Session: s.concentrator.ID, PPP: frame})
}

// Authenticate implements ppp.Handler. It is for concentrators, which check who logs in.
func (h *pppHandler) Authenticate(ppp.Credentials) {}

// Opened implements ppp.Handler.
func (h *pppHandler) Opened(t ppp.Terms) {
	h.terms = t
	if !isClosed(h.opened) {
		close(h.opened)
	}
	if t.PeerID != ([8]byte{}) && !isClosed(h.opened6) {
		close(h.opened6)
	}
}

// Closed implements ppp.Handler.
func (h *pppHandler) Closed(reason error) { (*Session)(h).closeLocally(reason) }

// Terms are what client and concentrator agreed on.
func (s *Session) Terms() ppp.Terms {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terms
}

// ID returns the session's number and its concentrator.
func (s *Session) ID() SessionID { return s.concentrator }

// Err returns why the session is over; nil while it is not.
func (s *Session) Err() error {
	if !isClosed(s.closed) {
		return nil
	}
	return s.endReason
}

// HangUp ends the session as PPP wants it: a Terminate-Request and its answer, then a PADT. It is no error when the
// session is over already.
func (s *Session) HangUp(ctx context.Context) error {
	s.mu.Lock()
	now := time.Now()
	ended := isClosed(s.closed)
	if !ended {
		s.link.Close(now, errHungUp)
		s.setTimer(now)
	}
	s.mu.Unlock()
	defer s.forget()
	if ended {
		return nil
	}
	select {
	case <-s.closed:
	case <-ctx.Done():
	}
	return s.terminate()
}

var errHungUp = errors.New("the client hung up")

// terminate sends a PADT, which ends the session at the concentrator.
func (s *Session) terminate() error {
	return s.sessions.send(
		&pppoe.Frame{To: s.concentrator.Concentrator, From: s.mac, Code: pppoe.PADT, Session: s.concentrator.ID})
}

// stop ends the timer.
func (s *Session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

// forget removes the session, so that its client can have another.
func (s *Session) forget() {
	s.stop()
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	if s.sessions.byClient[s.mac] == s {
		delete(s.sessions.byClient, s.mac)
	}
}

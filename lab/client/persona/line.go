package persona

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// Line is a client's PPPoE session.
type Line struct {
	lines   *Lines
	mac     MAC
	account Account

	// Each is closed once: a PADO came; a PADS; IPCP is open; the session is over.
	offered, confirmed, opened, closed chan struct{}

	mu           sync.Mutex // guards what follows, and link's methods
	concentrator Session
	tags         []pppoe.Tag // of the PADR
	link         *ppp.Link   // nil before the PADS
	early        [][]byte    // frames of the link that overtook the PADS, which has another socket
	timer        *time.Timer // calls tick; nil before link
	terms        ppp.Terms
	why          error // the session is over
}

// mostEarly bounds the frames kept of a link whose PADS has not been read.
const mostEarly = 4

var errNoSession = errors.New("the concentrator gives no session")

// dial carries discovery out and opens the link.
func (l *Line) dial(ctx context.Context, tries *Tries) error {
	uniq := pppoe.Tag{Type: pppoe.HostUniq, Value: l.mac[:]}
	padi := &pppoe.Frame{
		To: pppoe.Broadcast, From: l.mac, Code: pppoe.PADI, Tags: []pppoe.Tag{{Type: pppoe.ServiceName}, uniq}}
	if err := l.ask(ctx, padi, l.offered, tries); err != nil {
		return fmt.Errorf("looking for a concentrator (PADI): %w", err)
	}
	l.mu.Lock()
	padr := &pppoe.Frame{To: l.concentrator.Concentrator, From: l.mac, Code: pppoe.PADR, Tags: append([]pppoe.Tag{{
		Type: pppoe.ServiceName}, uniq}, l.tags...)}
	l.mu.Unlock()
	if err := l.ask(ctx, padr, l.confirmed, tries); err != nil {
		return fmt.Errorf("asking for a session (PADR): %w", err)
	}
	select {
	case <-l.opened:
		return nil
	case <-l.closed:
		return fmt.Errorf("session %d: %w", l.concentrator.ID, l.why)
	case <-ctx.Done():
		l.mu.Lock()
		l.link.Abort(context.Cause(ctx))
		l.mu.Unlock()
		_ = l.terminate()
		return fmt.Errorf("session %d: logging in: %w", l.concentrator.ID, context.Cause(ctx))
	}
}

// ask sends a frame of discovery, again and again, until there is an answer.
func (l *Line) ask(ctx context.Context, f *pppoe.Frame, answered <-chan struct{}, tries *Tries) error {
	wait := firstWait
	for n := 1; ; n++ {
		if err := l.lines.send(f); err != nil {
			return err
		}
		select {
		case <-answered:
			return nil
		case <-l.closed:
			return l.why
		case <-time.After(time.Duration(float64(wait) * (0.9 + 0.2*rand.Float64()))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := fmt.Errorf("no answer within %s", wait)
		if n == most {
			return fmt.Errorf("sent %d times: %w", n, err)
		}
		tries.Add(Tries{1, err})
		wait = min(2*wait, lastWait)
	}
}

// isClosed reports whether a channel that signals once has signalled.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// receive handles a frame of the concentrator.
func (l *Line) receive(f *pppoe.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case f.Code == pppoe.PADO && !isClosed(l.offered):
		l.concentrator.Concentrator = f.From
		for _, kind := range []pppoe.TagType{pppoe.ACCookie, pppoe.RelaySessionID} {
			if v, found := f.Tag(kind); found {
				l.tags = append(l.tags, pppoe.Tag{Type: kind, Value: append([]byte(nil), v...)})
			}
		}
		close(l.offered)
	case f.Code == pppoe.PADS && f.From == l.concentrator.Concentrator && !isClosed(l.confirmed) && !isClosed(l.closed):
		if f.Session == 0 {
			l.closeLocally(errNoSession)
			return
		}
		l.concentrator.ID = f.Session
		l.link = ppp.New(ppp.Config{User: l.account.User, Password: l.account.Password}, (*lineHandler)(l))
		l.timer = time.AfterFunc(time.Hour, l.tick)
		l.link.Open(now)
		for _, frame := range l.early {
			l.link.Receive(now, frame)
		}
		l.early = nil
		l.setTimer(now)
		close(l.confirmed)
	case l.link == nil && f.PPP != nil && f.From == l.concentrator.Concentrator && len(l.early) < mostEarly:
		l.early = append(l.early, bytes.Clone(f.PPP))
	case l.link == nil || f.Session != l.concentrator.ID || f.From != l.concentrator.Concentrator:
	case f.Code == pppoe.PADT:
		l.link.Abort(ppp.ErrPeerClosed)
	case f.PPP != nil:
		l.link.Receive(now, f.PPP)
		l.setTimer(now)
	}
}

// tick does what is due.
func (l *Line) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.link.Tick(now)
	l.setTimer(now)
}

// setTimer sets the timer to when something is due. The caller holds mu.
func (l *Line) setTimer(now time.Time) {
	switch next := l.link.Next(); {
	case isClosed(l.closed), next.IsZero():
		l.timer.Stop()
	default:
		l.timer.Reset(next.Sub(now))
	}
}

// closeLocally ends the session on this side. The caller holds mu.
func (l *Line) closeLocally(reason error) {
	if isClosed(l.closed) {
		return
	}
	l.why = reason
	close(l.closed)
}

// lineHandler is what a Line is to its link, which is called with the line's mu held.
type lineHandler Line

// Send implements ppp.Handler.
func (h *lineHandler) Send(frame []byte) {
	l := (*Line)(h)
	// the link sends again what is lost
	_ = l.lines.send(&pppoe.Frame{To: l.concentrator.Concentrator, From: l.mac, Session: l.concentrator.ID, PPP: frame})
}

// Authenticate implements ppp.Handler; clients are not asked.
func (h *lineHandler) Authenticate(ppp.Credentials) {}

// Opened implements ppp.Handler.
func (h *lineHandler) Opened(t ppp.Terms) {
	h.terms = t
	if !isClosed(h.opened) {
		close(h.opened)
	}
}

// Closed implements ppp.Handler.
func (h *lineHandler) Closed(reason error) { (*Line)(h).closeLocally(reason) }

// Terms are what client and concentrator agreed on.
func (l *Line) Terms() ppp.Terms {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.terms
}

// Session is where the session is.
func (l *Line) Session() Session { return l.concentrator }

// Err is why the session is over; nil while it is not.
func (l *Line) Err() error {
	if !isClosed(l.closed) {
		return nil
	}
	return l.why
}

// HangUp ends the session in order: Terminate-Request and its answer, then a PADT. A session that is over already is no
// error.
func (l *Line) HangUp(ctx context.Context) error {
	l.mu.Lock()
	now := time.Now()
	ended := isClosed(l.closed)
	if !ended {
		l.link.Close(now, errHungUp)
		l.setTimer(now)
	}
	l.mu.Unlock()
	defer l.forget()
	if ended {
		return nil
	}
	select {
	case <-l.closed:
	case <-ctx.Done():
	}
	return l.terminate()
}

var errHungUp = errors.New("the client hung up")

func (l *Line) terminate() error {
	return l.lines.send(
		&pppoe.Frame{To: l.concentrator.Concentrator, From: l.mac, Code: pppoe.PADT, Session: l.concentrator.ID})
}

// stop ends the timer.
func (l *Line) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}

// forget gives the client's address free for another session.
func (l *Line) forget() {
	l.stop()
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	if l.lines.lines[l.mac] == l {
		delete(l.lines.lines, l.mac)
	}
}

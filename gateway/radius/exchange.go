package radius

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"layeh.com/radius"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// way is where requests come from. Those of one way do not queue behind those of another.
type way int

const (
	byPortal way = iota // logins, and all accounting
	byLine              // logins of PPPoE clients
	ways
)

// service is the servers' ports for one purpose. Logins and accounting have one each, so
// that neither queues behind the other.
type service struct {
	endpoints []*endpoint
	gates     [ways]*session.Gate
	overdue   chan struct{} // holds an element for each request that gave its turn to another
	tries     int           // transmissions to one server
}

// newService makes a service with so many requests in flight, at most, of each way.
func newService(c Config, inFlight int) *service {
	s := &service{overdue: make(chan struct{}, overdueMost), tries: c.Retries + 1}
	for w := range s.gates {
		s.gates[w] = session.NewGate(inFlight, c.Waiting)
	}
	return s
}

// share is how many of the logins in flight may be of one way.
func share(inFlight int) int { return max(1, inFlight*3/4) }

func (s *service) close() {
	for _, e := range s.endpoints {
		e.close()
	}
}

// step is one server to ask, and the number of transmissions.
type step struct {
	*endpoint
	tries  int
	last   bool          // no server follows
	enough time.Duration // a server that is silent so long had its part of the time
}

// ask sends a request to one server after the other until one answers. failures are the
// wrong passwords of the client it is about, by which requests of its way wait.
func (s *service) ask(ctx context.Context, r request, by way, failures int) (*radius.Packet, error) {
	gate, began := s.gates[by], time.Now()
	if err := gate.Enter(ctx, failures); errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w: %s", ErrNoServer, strings.Join(append(s.troubles(), "too many requests wait"), "; "))
	} else if err != nil {
		return nil, err
	}
	turn := &turn{gate: gate, overdue: s.overdue}
	defer turn.end()
	asked := &asking{r: r, replies: make(chan received, 1)}
	answer, err := s.askAll(ctx, asked, began, turn.pass)
	if answer != nil {
		s.logServers(asked.from)
	}
	asked.end(answer != nil || errors.Is(err, ErrNoServer))
	return answer, err
}

// askAll asks the servers in turn. One whose part of the time is over is listened to still: the first answer counts.
func (s *service) askAll(ctx context.Context, a *asking, began time.Time, overdue func()) (*radius.Packet, error) {
	var problems []string
	steps := s.plan(time.Now())
	for i, st := range steps {
		own, end := part(ctx, len(steps)-i)
		st.enough = enough(ctx, began, len(steps), st.timeout)
		answer, err := st.ask(own, a, overdue)
		end()
		var silent *silence
		if err == nil || !errors.As(err, &silent) {
			return answer, err
		}
		problems = append(problems, err.Error())
	}
	return nil, fmt.Errorf("%w: %s", ErrNoServer, strings.Join(problems, "; "))
}

// part is a server's part of the time until ctx's deadline, if it has one, with so many servers left.
func part(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if !has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}

// enough is how long a server must have been silent to be taken for dead: the wait after a packet, or its part of
// the time that the caller, who began to wait then, gives so many servers. A request that waited long for its turn
// leaves a server less, which says nothing of it.
func enough(ctx context.Context, began time.Time, servers int, timeout time.Duration) time.Duration {
	if deadline, has := ctx.Deadline(); has {
		timeout = min(timeout, deadline.Sub(began)/time.Duration(servers))
	}
	return timeout * 9 / 10 // waits vary by a tenth
}

// troubles returns what was wrong with the servers that are skipped.
func (s *service) troubles() (all []string) {
	for _, e := range s.endpoints {
		e.mu.Lock()
		if e.trouble != nil {
			all = append(all, e.trouble.Error())
		}
		e.mu.Unlock()
	}
	return all
}

// turn is a request's place among those in flight. A request without an answer to its first packet passes it
// on, so that those which a server never answers keep nobody out.
type turn struct {
	gate    *session.Gate
	overdue chan struct{} // the service's
	passed  bool
}

// overdueMost bounds the requests that wait for an answer although they have passed their turn on.
const overdueMost = 1024

// pass passes the turn on, unless as many as allowed have done so.
func (t *turn) pass() {
	if t.passed {
		return
	}
	select {
	case t.overdue <- struct{}{}:
		t.passed = true
		t.gate.Leave()
	default:
	}
}

func (t *turn) end() {
	if t.passed {
		<-t.overdue
		return
	}
	t.gate.Leave()
}

// plan returns the servers in the order to ask them: live ones, and with one packet each
// those that were dead long enough; then the dead ones, as a last resort. The last one
// gets all transmissions.
func (s *service) plan(now time.Time) []step {
	var first, rest []step
	for _, e := range s.endpoints {
		switch e.health(now) {
		case alive:
			first = append(first, step{endpoint: e, tries: s.tries})
		case due:
			first = append(first, step{endpoint: e, tries: 1})
		case dead:
			rest = append(rest, step{endpoint: e, tries: 1})
		}
	}
	steps := append(first, rest...)
	final := &steps[len(steps)-1]
	final.tries, final.last = s.tries, true
	return steps
}

// waiter is one packet in flight, with what its answer must match.
type waiter struct {
	secret  []byte
	request [16]byte // authenticator, valid once the packet is sent
	signed  bool
	sent    atomic.Bool // request is set
	x       *exchange
}

// received is a server's answer.
type received struct {
	from   *endpoint
	packet *radius.Packet
}

// asking is one request to all servers that were asked so far.
type asking struct {
	r         request
	replies   chan received // buffered: the first answer of any of them
	exchanges []*exchange
	from      *endpoint // whose answer counts
}

// end frees what the request holds. listen: its servers had their time; an answer that comes still is late.
func (a *asking) end(listen bool) {
	for _, x := range a.exchanges {
		if !listen || x.answered.Load() || !x.e.linger(x) {
			x.release()
		}
	}
}

// exchange is one request to one server: all its packets until an answer arrives.
type exchange struct {
	*asking
	e                *endpoint
	began            time.Time
	refusals         chan struct{} // buffered: one
	answered, over   atomic.Bool   // over: nobody waits any more
	unsigned, forged atomic.Uint32
	held             []hold // identifiers to free
	data             []byte // packet to send; nil: must be encoded
	encoded          time.Time
	refused          bool
	cause            error
}

// ask sends a request to the server and repeats it until an answer arrives, ctx is cancelled, or
// the last wait or ctx's time is over, which returns a *silence. It waits for a server that refuses
// only if the server is the last. overdue is called when the wait after a packet is over.
func (st step) ask(ctx context.Context, a *asking, overdue func()) (*radius.Packet, error) {
	e, last, began := st.endpoint, st.last, time.Now()
	x := &exchange{asking: a, e: e, began: began, refusals: make(chan struct{}, 1)}
	a.exchanges = append(a.exchanges, x)
	var wait time.Duration
	for try := range st.tries {
		if try > 0 && !last && e.isDead(time.Now()) {
			break // another request found out meanwhile
		}
		if err := x.transmit(try > 0); err != nil {
			return nil, err
		}
		wait = nextWait(wait, e.timeout, rand.Float64())
		answer, err := x.await(ctx, wait, last)
		if errors.Is(err, context.DeadlineExceeded) {
			if time.Since(began) < st.enough { // it had no time to answer
				return nil, x.silence()
			}
			break
		}
		if ctx.Err() != nil && try > 0 {
			e.missed(began, x.silence()) // a caller that had no patience counts as well
		}
		if answer != nil || err != nil {
			return answer, err
		}
		if x.refused && !last {
			break
		}
		overdue()
	}
	e.missed(began, x.silence())
	return nil, x.silence()
}

// silence is what is known of why there is no answer.
func (x *exchange) silence() *silence {
	return &silence{x.e.addr.String(), x.refused, x.unsigned.Load(), x.forged.Load(), x.cause, x.e.lateness(),
		x.e.loginsAnswered(x.began)}
}

// nextWait returns the wait after a transmission, given the previous wait (0: none) and a
// random number from 0 to 1 (RFC 5080, 2.2.1).
func nextWait(last, first time.Duration, random float64) time.Duration {
	jitter := 0.2*random - 0.1
	if last == 0 {
		return first + time.Duration(jitter*float64(first))
	}
	next := 2*last + time.Duration(jitter*float64(last))
	if limit := LongestWait(first); next > limit {
		next = limit + time.Duration(jitter*float64(limit))
	}
	return next
}

// LongestWait bounds the waits after retransmissions, without the tenth by which they vary.
func LongestWait(timeout time.Duration) time.Duration { return max(timeout, longestWait) }

// Waits are the times that a server without an answer is waited for after each of n transmissions, without the tenth
// by which they vary.
func Waits(timeout time.Duration, n int) []time.Duration {
	waits, last := make([]time.Duration, n), time.Duration(0)
	for i := range waits {
		last = nextWait(last, timeout, 0.5)
		waits[i] = last
	}
	return waits
}

// transmit sends the packet and encodes a new one where needed. An error of sending is
// kept as the cause, because the next transmission may succeed.
func (x *exchange) transmit(again bool) error {
	now := time.Now()
	if x.data == nil || x.r.stale(x.encoded, now) {
		err := x.encode(now)
		var silent *silence
		if errors.As(err, &silent) {
			x.cause = silent.cause
			return nil
		}
		if err != nil {
			return err
		}
	}
	if again {
		x.e.counts.retransmits.Add(1)
	} else {
		x.e.counts.requests.Add(1)
	}
	s := x.held[len(x.held)-1].socket
	_, err := s.conn.Write(x.data)
	if errors.Is(err, syscall.ECONNREFUSED) {
		_, err = s.conn.Write(x.data) // the error was for an earlier packet; this one was not sent yet
	}
	x.cause = err
	if err != nil {
		// For example, the gateway no longer has the source address: a new socket chooses
		// another.
		x.e.retire(s)
		x.data = nil
	}
	return nil
}

// encode makes a new packet with its own identifier.
func (x *exchange) encode(now time.Time) error {
	w := &waiter{secret: x.e.secret, signed: x.r.signed(), x: x}
	h, err := x.e.claim(w)
	if err != nil {
		return err
	}
	x.held = append(x.held, h)
	if x.data, err = x.r.packet(x.e.secret, h.id, now); err != nil {
		return err
	}
	x.encoded = now
	w.request = [16]byte(x.data[4:headerSize])
	w.sent.Store(true)
	return nil
}

// await returns the answer of any server that was asked, or nil and nil if none arrives in time.
func (x *exchange) await(ctx context.Context, wait time.Duration, last bool) (*radius.Packet, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case r := <-x.replies:
			r.from.heard()
			x.from = r.from
			return r.packet, nil
		case <-x.refusals:
			x.refused = true
			if !last {
				return nil, nil
			}
		case <-timer.C:
			return nil, nil
		case <-x.e.closing:
			return nil, net.ErrClosed
		case <-ctx.Done():
			return nil, fmt.Errorf("asking %s: %w", x.e.addr, ctx.Err())
		}
	}
}

// release frees the identifiers; later answers are ignored.
func (x *exchange) release() {
	for _, h := range x.held {
		x.e.giveBack(h)
	}
}

// receive decodes a packet for a waiter, on the socket's goroutine.
func (w *waiter) receive(data []byte) (*radius.Packet, error) {
	p, err := open(data, w.secret, w.request, w.signed)
	switch {
	case errors.Is(err, errUnsigned):
		w.x.unsigned.Add(1)
	case errors.Is(err, errForged):
		w.x.forged.Add(1)
	}
	return p, err
}

// hand gives the waiter its answer.
func (w *waiter) hand(p *radius.Packet) {
	w.x.answered.Store(true)
	select {
	case w.x.replies <- received{w.x.e, p}:
	default: // a second answer, to another transmission or of another server
	}
}

// refuse notifies a waiter that the server's port is closed.
func (w *waiter) refuse() {
	select {
	case w.x.refusals <- struct{}{}:
	default:
	}
}

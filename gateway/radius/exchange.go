// A request to the servers: in which order they are asked, how often packets are sent, and which answer counts.

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

// requestSource is where logins come from: the portal, PPPoE, or devices that are asked about by their MAC address.
// Requests of one do not queue behind those of the others.
type requestSource int

const (
	byPortal requestSource = iota // logins, and all accounting
	byLine                        // logins of PPPoE clients
	byDevice                      // devices without a person
	requestSources
)

// service is the servers' ports for one purpose, logins or accounting. Each purpose has its own, so that neither queues
// behind the other.
type service struct {
	endpoints       []*endpoint
	gates           [requestSources]*session.Gate
	overdueInFlight chan struct{} // has an element for each request that has passed its place on and still waits
	tries           int           // transmissions to one server
}

// newService makes a service that has at most inFlight requests in flight from each source.
func newService(c Config, inFlight int) *service {
	s := &service{overdueInFlight: make(chan struct{}, overdueMost), tries: c.Retries + 1}
	for w := range s.gates {
		if requestSource(w) == byDevice { // nobody waits for these before a page
			inFlight = max(1, inFlight*2/3)
		}
		s.gates[w] = session.NewGate(inFlight, c.Waiting)
	}
	return s
}

// maxOfOneSource is how many logins of one source may be in flight.
func maxOfOneSource(inFlight int) int { return max(1, inFlight*3/4) }

func (s *service) close() {
	for _, e := range s.endpoints {
		e.close()
	}
}

// serverTry is one attempt of a request: the server to ask, and how often to transmit.
type serverTry struct {
	*endpoint
	tries        int
	last         bool          // no server follows
	silenceLimit time.Duration // a server that is silent so long had its part of the time
}

// exchangeInOrder sends a request to one server after the other until one answers. failures are the wrong passwords of
// the client it is about: among waiting requests of one source those with fewer failures go first.
func (s *service) exchangeInOrder(ctx context.Context, r request, source requestSource, failures int) (
	*radius.Packet, error) {
	gate, began := s.gates[source], time.Now()
	if err := gate.Enter(ctx, failures); errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%w: %s", ErrNoServer, strings.Join(append(s.failures(), "too many requests wait"), "; "))
	} else if err != nil {
		return nil, err
	}
	turn := &inFlightPlace{gate: gate, overdue: s.overdueInFlight}
	defer turn.release()
	asked := &serversRequest{r: r, replies: make(chan serverAnswer, 1)}
	answer, err := s.askAll(ctx, asked, began, turn.passOn)
	if answer != nil {
		s.logServers(asked.answeredBy)
	}
	asked.free(answer != nil || errors.Is(err, ErrNoServer))
	return answer, err
}

// askAll asks the servers in turn. A server whose part of the time is over is still listened to: the first answer
// counts.
func (s *service) askAll(ctx context.Context, a *serversRequest, began time.Time, overdue func()) (
	*radius.Packet, error) {
	var problems []string
	steps := s.plan(time.Now())
	for i, st := range steps {
		own, end := timeShare(ctx, len(steps)-i)
		st.silenceLimit = silenceLimit(ctx, began, len(steps), st.timeout)
		answer, err := st.exchange(own, a, overdue)
		end()
		var silent *noAnswerError
		if err == nil || !errors.As(err, &silent) {
			return answer, err
		}
		problems = append(problems, err.Error())
	}
	return nil, fmt.Errorf("%w: %s", ErrNoServer, strings.Join(problems, "; "))
}

// timeShare is a server's part of the time until ctx's deadline, if it has one, with so many servers left.
func timeShare(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, found := ctx.Deadline()
	if !found {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}

// silenceLimit is how long a server must have been silent to be taken for dead: timeout, the wait after a packet. It is
// less where the caller, who has waited since began, gives this number of servers less time each. The time that a
// request waited for its turn does not count: it says nothing about the server.
func silenceLimit(ctx context.Context, began time.Time, servers int, timeout time.Duration) time.Duration {
	if deadline, found := ctx.Deadline(); found {
		timeout = min(timeout, deadline.Sub(began)/time.Duration(servers))
	}
	return timeout * 9 / 10 // waits vary by a tenth
}

// failures returns the reasons why servers are skipped.
func (s *service) failures() (all []string) {
	for _, e := range s.endpoints {
		e.mu.Lock()
		if e.lastFailure != nil {
			all = append(all, e.lastFailure.Error())
		}
		e.mu.Unlock()
	}
	return all
}

// inFlightPlace is a request's place among those in flight, whose number is bounded. A request whose first packet got
// no answer hands its place to another one, so that a dead server's requests keep nobody out.
type inFlightPlace struct {
	gate     *session.Gate
	overdue  chan struct{} // overdueInFlight of the service
	isPassed bool
}

// overdueMost bounds the requests that wait for an answer although they have passed their place on.
const overdueMost = 1024

// passOn gives the place to another request, unless overdueMost requests have done so and still wait.
func (t *inFlightPlace) passOn() {
	if t.isPassed {
		return
	}
	select {
	case t.overdue <- struct{}{}:
		t.isPassed = true
		t.gate.Leave()
	default:
	}
}

func (t *inFlightPlace) release() {
	if t.isPassed {
		<-t.overdue
		return
	}
	t.gate.Leave()
}

// plan returns the servers in the order to ask them: live ones, and with one packet each those that were dead long
// enough; then the dead ones, as a last resort. The last one gets all transmissions.
func (s *service) plan(now time.Time) []serverTry {
	var first, rest []serverTry
	for _, e := range s.endpoints {
		switch e.health(now) {
		case alive:
			first = append(first, serverTry{endpoint: e, tries: s.tries})
		case due:
			first = append(first, serverTry{endpoint: e, tries: 1})
		case dead:
			rest = append(rest, serverTry{endpoint: e, tries: 1})
		}
	}
	steps := append(first, rest...)
	final := &steps[len(steps)-1]
	final.tries, final.last = s.tries, true
	return steps
}

// waiter is a packet that waits for its answer, with what the answer must match.
type waiter struct {
	secret  []byte
	request [16]byte // authenticator, valid once the packet is sent
	signed  bool
	sent    atomic.Bool // request is set
	x       *exchange
}

// serverAnswer is a server's answer to a request.
type serverAnswer struct {
	from   *endpoint
	packet *radius.Packet
}

// serversRequest is a request that is sent to one server after the other. The first answer of any of them counts.
type serversRequest struct {
	r          request
	replies    chan serverAnswer // buffered: the first answer of any of them
	exchanges  []*exchange
	answeredBy *endpoint // whose answer counts
}

// free frees the request's identifiers and place. With listen, its servers had their whole time, and an answer that
// still comes is counted as late.
func (a *serversRequest) free(listen bool) {
	for _, x := range a.exchanges {
		if !listen || x.answered.Load() || !x.e.keepIDs(x) {
			x.release()
		}
	}
}

// exchange is one request to one server: all its packets until an answer arrives.
type exchange struct {
	*serversRequest
	e                   *endpoint
	began               time.Time
	refusals            chan struct{} // buffered: one
	answered, abandoned atomic.Bool   // over: nobody waits any more
	unsigned, forged    atomic.Uint32
	heldIDs             []heldID // identifiers to free
	data                []byte   // packet to send; nil: must be encoded
	encoded             time.Time
	refused             bool
	cause               error
}

// exchange sends a request to the server and repeats it until an answer arrives, ctx is cancelled, or the last wait or
// ctx's time is over, which returns a *silence. It waits for a server that refuses only if the server is the last.
// overdue is called when the wait after a packet is over.
func (st serverTry) exchange(ctx context.Context, a *serversRequest, overdue func()) (*radius.Packet, error) {
	e, last, began := st.endpoint, st.last, time.Now()
	x := &exchange{serversRequest: a, e: e, began: began, refusals: make(chan struct{}, 1)}
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
			if time.Since(began) < st.silenceLimit { // it had no time to answer
				return nil, x.silenceError()
			}
			break
		}
		if ctx.Err() != nil && try > 0 {
			e.unanswered(began, x.silenceError()) // a caller that had no patience counts as well
		}
		if answer != nil || err != nil {
			return answer, err
		}
		if x.refused && !last {
			break
		}
		overdue()
	}
	e.unanswered(began, x.silenceError())
	return nil, x.silenceError()
}

// silenceError returns an error with everything that is known about why there is no answer.
func (x *exchange) silenceError() *noAnswerError {
	return &noAnswerError{x.e.addr.String(), x.refused, x.unsigned.Load(), x.forged.Load(), x.cause, x.e.lateness(),
		x.e.loginsAnswered(x.began)}
}

// nextWait returns the wait after a transmission, given the previous wait (0: none) and a random number from 0 to 1
// (RFC 5080, 2.2.1).
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

// RetransmitWaits are the times that a server without an answer is waited for after each of n transmissions, without
// the tenth by which they vary.
func RetransmitWaits(timeout time.Duration, n int) []time.Duration {
	waits, last := make([]time.Duration, n), time.Duration(0)
	for i := range waits {
		last = nextWait(last, timeout, 0.5)
		waits[i] = last
	}
	return waits
}

// transmit sends the packet and encodes a new one where needed. An error of sending is kept as the cause, because the
// next transmission may succeed.
func (x *exchange) transmit(again bool) error {
	now := time.Now()
	if x.data == nil || x.r.stale(x.encoded, now) {
		err := x.encode(now)
		var silent *noAnswerError
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
	s := x.heldIDs[len(x.heldIDs)-1].socket
	_, err := s.conn.Write(x.data)
	if errors.Is(err, syscall.ECONNREFUSED) {
		_, err = s.conn.Write(x.data) // the error was for an earlier packet; this one was not sent yet
	}
	x.cause = err
	if err != nil {
		// For example, the gateway no longer has the source address: a new socket chooses another.
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
	x.heldIDs = append(x.heldIDs, h)
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
			r.from.answered()
			x.answeredBy = r.from
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
	for _, h := range x.heldIDs {
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

// deliver gives the waiter its answer.
func (w *waiter) deliver(p *radius.Packet) {
	w.x.answered.Store(true)
	select {
	case w.x.replies <- serverAnswer{w.x.e, p}:
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

// The limits of open connections, in all and for each client.

package portal

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"
)

// connLimiter limits the connections of all listeners together. When all are in use, the one whose client has been
// waited for longest is closed, for its next request, the rest of one, or to read an answer: browsers open a new
// connection when the old one is closed. One whose request is being answered is never closed.
type connLimiter struct {
	max, maxPerClient int
	waitAtMost        time.Duration // how long no connection may open or close before new ones stop waiting

	mu        sync.Mutex
	total     int                    // guarded by mu
	changedAt time.Time              // guarded by mu: when a connection was last opened or closed
	clients   map[netip.Addr]int     // guarded by mu: open connections; none with 0
	idle      list.List              // guarded by mu: *limitedConn between two requests, the one idle longest first
	slow      list.List              // guarded by mu: *limitedConn whose client has to finish a request or read an answer
	byFD      map[int32]*limitedConn // guarded by mu: the connections in idle, by file descriptor
	freed     chan struct{}          // guarded by mu: closed when a connection ends; nil: no listener waits
	waiting   int                    // guarded by mu: listeners with a waiting connection
}

// scarceShare divides a client's share while half of all connections are in use, so that a few clients cannot keep the
// others out.
const scarceShare = 8

// Limits that apply when all connections are in use.
const (
	// idleEnough is how long the portal must have waited for a connection's client before it closes the connection for
	// another one: in a login storm the next request is already on its way.
	idleEnough = time.Second
	// looks is how many connections are examined at most to find one that can be closed.
	looks = 64
	// defaultPatience is how long all connections may be busy without one ending before new connections are rejected.
	defaultPatience = 2 * time.Second
)

// verdict is the decision on a new connection.
type verdict int

const (
	admitted     verdict = iota
	overShare            // its client has reached its share
	limitReached         // all connections are in use
)

// count counts a connection if it is accepted.
func (c *connLimiter) count(client netip.Addr) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := c.maxPerClient
	if c.total >= c.max/2 {
		share = max(1, share/scarceShare)
	}
	switch {
	case c.clients[client] >= share:
		return overShare
	case c.total >= c.max:
		return limitReached
	}
	c.total++
	c.clients[client]++
	c.changedAt = time.Now()
	return admitted
}

func (c *connLimiter) uncount(client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total--
	c.changedAt = time.Now()
	if c.clients[client]--; c.clients[client] == 0 {
		delete(c.clients, client)
	}
	if c.freed != nil {
		close(c.freed)
		c.freed = nil
	}
}

// hasWaiting reports whether a connection waits.
func (c *connLimiter) hasWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// addWaiting adds by to the number of waiting listeners.
func (c *connLimiter) addWaiting(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += by
}

// waitIn enters a connection into one of the lists of those that wait for their clients: idle between two requests,
// slow during one. mu must be held.
func (c *connLimiter) waitIn(g *limitedConn, in *list.List) {
	c.markBusy(g)
	g.idleSince, g.in, g.place = time.Now(), in, in.PushBack(g)
}

// markBusy records that a connection no longer waits for its client. mu must be held.
func (c *connLimiter) markBusy(g *limitedConn) {
	if g.in != nil {
		g.in.Remove(g.place)
		g.in, g.place = nil, nil
	}
	if c.byFD[g.fd] == g {
		delete(c.byFD, g.fd)
	}
}

// ends records that a connection is about to be closed; false: it is already. mu must be held.
func (c *connLimiter) ends(g *limitedConn) bool {
	first := !g.gone
	g.gone = true
	c.markBusy(g)
	return first
}

// expects records that a connection's client is to send a request, or to read an answer.
func (c *connLimiter) expects(g *limitedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !g.gone {
		c.waitIn(g, &c.slow)
	}
}

// works records that a connection's request is being answered; false: it was closed for another one.
func (c *connLimiter) works(g *limitedConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.markBusy(g)
	return !g.gone
}

// longest is the connection whose client has been waited for longest; nil: there is none. mu must be held.
func (c *connLimiter) longest() (g *limitedConn) {
	for _, in := range []*list.List{&c.idle, &c.slow} {
		if first := in.Front(); first != nil {
			if other := first.Value.(*limitedConn); g == nil || other.idleSince.Before(g.idleSince) {
				g = other
			}
		}
	}
	return g
}

// oldest ends the connection whose client has been waited for longest, if that is long enough, for the caller to shut;
// otherwise it returns nil and the time until one will be.
func (c *connLimiter) oldest(now time.Time) (*limitedConn, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range looks {
		g := c.longest()
		if g == nil {
			break
		}
		if wait := idleEnough - now.Sub(g.idleSince); wait > 0 {
			return nil, wait
		}
		if g.in == &c.slow && g.wire.unread() { // it is the portal that is slow
			c.waitIn(g, &c.slow)
			continue
		}
		c.ends(g)
		return g, 0
	}
	return nil, idleEnough
}

// wait returns true when a retry may succeed: a connection has ended, was asked to end, or some time has passed. It
// returns false when done is closed, or when all connections are busy and none has ended for patience.
func (c *connLimiter) wait(done <-chan struct{}) bool {
	now := time.Now()
	g, after := c.oldest(now)
	if g != nil {
		g.shut()
		return true
	}
	c.mu.Lock()
	if c.total < c.max {
		c.mu.Unlock()
		return true
	}
	if c.longest() == nil {
		after = min(after, c.changedAt.Add(c.waitAtMost).Sub(now))
	}
	if after <= 0 {
		c.mu.Unlock()
		return false
	}
	if c.freed == nil {
		c.freed = make(chan struct{})
	}
	freed := c.freed
	c.mu.Unlock()
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-freed:
	case <-timer.C:
	case <-done:
		return false
	}
	return true
}

// limitedListener rejects connections beyond the limiter's limits.
type limitedListener struct {
	net.Listener
	limiter  *connLimiter
	idle     *idleConns
	tls      *tls.Config     // nil: plain HTTP
	rejected func()          // counts rejected connections
	ctx      context.Context // ends waiting
}

// Accept returns the next accepted connection. Rejected ones are reset, because a close would leave a TIME_WAIT socket
// for each.
func (d *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp := conn.(*net.TCPConn) // Listen makes no other listeners
		client := addrPort(tcp.RemoteAddr()).Addr()
		if d.admit(client) {
			return d.newConn(tcp, client), nil
		}
		d.rejected()
		tcp.SetLinger(0)
		tcp.Close()
	}
}

// newConn makes a new connection ready for net/http.
func (d *limitedListener) newConn(tcp *net.TCPConn, client netip.Addr) *idleableConn {
	w := &wire{TCPConn: tcp}
	g := &limitedConn{Conn: w, wire: w, fd: -1, peer: peer{
		client: client, local: addrPort(tcp.LocalAddr()), secure: d.tls != nil, serverCtx: d.ctx, limiter: d.limiter,
	}}
	_ = control(tcp, func(fd int) error { g.fd = int32(fd); return nil })
	if g.secure {
		g.Conn = tls.Server(w, d.tls)
		_ = w.SetWriteDeadline(time.Now().Add(handshakeTimeout)) // net/http bounds what is read of the handshake alone
	}
	d.limiter.expects(g)
	return newIdleable(g, d.idle)
}

// admit waits until the connection fits. Later connections wait behind it in order: they do not fit either, and in a
// login storm all are served as others end. When no connection ends for patience, this one and those behind it are
// rejected at once until one ends: a rejected device can report the failure and try again, while a queue would delay it
// for minutes. A client with more than its share never waits.
func (d *limitedListener) admit(client netip.Addr) bool {
	v := d.limiter.count(client)
	if v != limitReached {
		return v == admitted
	}
	d.limiter.addWaiting(1)
	defer d.limiter.addWaiting(-1)
	for v == limitReached && d.limiter.wait(d.ctx.Done()) {
		v = d.limiter.count(client)
	}
	return v == admitted
}

// limitedConn is a connection that the limiter has counted, until it is closed.
type limitedConn struct {
	net.Conn // TCP, or TLS over it
	wire     *wire
	fd       int32 // file descriptor of wire
	peer

	idleSince time.Time     // guarded by the limiter's mu: since when its client is waited for
	in        *list.List    // guarded by the limiter's mu: idle or slow; nil: its request is being answered, or it is gone
	place     *list.Element // guarded by the limiter's mu: the element of this connection in the list in
	gone      bool          // guarded by the limiter's mu: it is closed, or about to be
	inEpoll   bool          // guarded by the limiter's mu: the set of idleConns has it
	turn      int32         // guarded by the limiter's mu: number of its present idle time; tells old epoll events
}

// Close may be called twice, and while another goroutine reads or writes.
func (g *limitedConn) Close() error {
	g.limiter.mu.Lock()
	first := g.limiter.ends(g)
	g.limiter.mu.Unlock()
	if !first {
		return net.ErrClosed
	}
	return g.shut()
}

// shut closes a connection that the limiter has ended, which counts it until it is closed. It does not wait: TLS says
// goodbye if there is room for it.
func (g *limitedConn) shut() error {
	g.wire.nonBlockingWrite.Store(true)
	_ = g.wire.SetWriteDeadline(time.Unix(1, 0)) // a goroutine that waits to write holds what TLS needs to say goodbye
	err := g.Conn.Close()
	g.limiter.uncount(g.client)
	return err
}

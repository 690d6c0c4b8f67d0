package portal

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connLimiter limits the connections of all listeners together. When all are in use, idle
// connections are closed first: browsers keep connections for the next request and open
// a new one when the old one is closed.
type connLimiter struct {
	max, maxPerClient int
	patience          time.Duration // how long no connection may open or close before new ones stop waiting

	mu      sync.Mutex
	all     int                    // guarded by mu
	moved   time.Time              // guarded by mu: when a connection was last opened or closed
	clients map[netip.Addr]int     // guarded by mu: open connections; none with 0
	idle    list.List              // guarded by mu: of *limitedConn between two requests, the longest first
	byFD    map[int32]*limitedConn // guarded by mu: those in idle, by their descriptors
	freed   chan struct{}          // guarded by mu: closed when a connection ends; nil: no listener waits
	waiting int                    // guarded by mu: listeners with a waiting connection
}

// scarceShare divides a client's share while half of all connections are in use,
// so that a few clients cannot keep the others out.
const scarceShare = 8

// Limits that apply when all connections are in use.
const (
	// idleEnough is how long a connection must have been idle before it is closed for
	// another one: in a login storm the next request is already on its way.
	idleEnough = time.Second
	// defaultPatience is how long all connections may be busy without one ending before
	// new connections are rejected.
	defaultPatience = 2 * time.Second
)

// verdict is the decision on a new connection.
type verdict int

const (
	admitted  verdict = iota
	overShare         // its client has reached its share
	full              // all connections are in use
)

// enter counts a connection if it is accepted.
func (c *connLimiter) enter(client netip.Addr) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := c.maxPerClient
	if c.all >= c.max/2 {
		share = max(1, share/scarceShare)
	}
	switch {
	case c.clients[client] >= share:
		return overShare
	case c.all >= c.max:
		return full
	}
	c.all++
	c.clients[client]++
	c.moved = time.Now()
	return admitted
}

func (c *connLimiter) leave(client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	c.moved = time.Now()
	if c.clients[client]--; c.clients[client] == 0 {
		delete(c.clients, client)
	}
	if c.freed != nil {
		close(c.freed)
		c.freed = nil
	}
}

// pressed reports whether a connection waits.
func (c *connLimiter) pressed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// waits adds by to the number of waiting listeners.
func (c *connLimiter) waits(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += by
}

// rests records that a connection is idle. mu must be held.
func (c *connLimiter) rests(g *limitedConn) { g.since, g.idle = time.Now(), c.idle.PushBack(g) }

// wakes records that a connection is no longer idle. mu must be held.
func (c *connLimiter) wakes(g *limitedConn) {
	c.idle.Remove(g.idle)
	g.idle = nil
	delete(c.byFD, g.fd)
}

// oldest removes the connection that has been idle longest from the list, if it has been
// idle long enough; otherwise it returns nil and the time until one will be.
func (c *connLimiter) oldest(now time.Time) (*limitedConn, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.idle.Front()
	if first == nil {
		return nil, idleEnough
	}
	g := first.Value.(*limitedConn)
	if wait := idleEnough - now.Sub(g.since); wait > 0 {
		return nil, wait
	}
	c.wakes(g)
	return g, 0
}

// wait returns true when a retry may succeed: a connection has ended, was asked to end,
// or some time has passed. It returns false when done is closed, or when all connections
// are busy and none has ended for patience.
func (c *connLimiter) wait(done <-chan struct{}) bool {
	now := time.Now()
	g, after := c.oldest(now)
	if g != nil {
		g.drop()
		return true
	}
	c.mu.Lock()
	if c.all < c.max {
		c.mu.Unlock()
		return true
	}
	if c.idle.Len() == 0 {
		after = min(after, c.moved.Add(c.patience).Sub(now))
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
	life     context.Context // ends waiting
}

// Accept returns the next accepted connection. Rejected ones are reset, because a close
// would leave a TIME_WAIT socket for each.
func (d *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp := conn.(*net.TCPConn) // Listen makes no other listeners
		client := addrPort(tcp.RemoteAddr()).Addr()
		if d.admit(client) {
			return d.first(tcp, client), nil
		}
		d.rejected()
		tcp.SetLinger(0)
		tcp.Close()
	}
}

// first is the first visit of a connection.
func (d *limitedListener) first(tcp *net.TCPConn, client netip.Addr) *visit {
	w := &wire{TCPConn: tcp}
	g := &limitedConn{Conn: w, wire: w, fd: -1, peer: peer{
		client: client, local: addrPort(tcp.LocalAddr()), secure: d.tls != nil, life: d.life, limiter: d.limiter,
	}}
	_ = control(tcp, func(fd int) error { g.fd = int32(fd); return nil })
	if g.secure {
		g.Conn = tls.Server(w, d.tls)
	}
	return &visit{limitedConn: g, pool: d.idle}
}

// admit waits until the connection fits. Later connections wait behind it in order:
// they do not fit either, and in a login storm all are served as others end. When no
// connection ends for patience, this one and those behind it are rejected at once until
// one ends: a rejected device can report the failure and try again, while a queue would
// delay it for minutes. A client with more than its share never waits.
func (d *limitedListener) admit(client netip.Addr) bool {
	v := d.limiter.enter(client)
	if v != full {
		return v == admitted
	}
	d.limiter.waits(1)
	defer d.limiter.waits(-1)
	for v == full && d.limiter.wait(d.life.Done()) {
		v = d.limiter.enter(client)
	}
	return v == admitted
}

// limitedConn is a connection that the limiter has counted, until it is closed.
type limitedConn struct {
	net.Conn // TCP, or TLS over it
	wire     *wire
	fd       int32 // of wire
	peer
	left atomic.Bool // the limiter no longer counts it

	since time.Time     // guarded by the limiter's mu: when it became idle
	idle  *list.Element // guarded by the limiter's mu: nil while a request is on it
	known bool          // guarded by the limiter's mu: the set of idleConns has it
	turn  int32         // guarded by the limiter's mu: of idleConns
}

func (g *limitedConn) leave() {
	if !g.left.Swap(true) {
		g.limiter.leave(g.client)
	}
}

// Close may be called twice.
func (g *limitedConn) Close() error {
	g.leave()
	return g.Conn.Close()
}

// drop closes an idle connection. One over TLS says goodbye, for which it may have to wait.
func (g *limitedConn) drop() {
	g.leave()
	if g.secure {
		go g.Conn.Close()
		return
	}
	g.Conn.Close()
}

package portal

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// crowd bounds the connections of all listeners together. Where they are all in
// use, those make room first that no request is on: browsers keep connections
// for the next click, and take a new one where it is gone.
type crowd struct {
	max, maxPerClient int
	patience          time.Duration // how long nobody may come or go before there is no more waiting for room

	mu      sync.Mutex
	all     int                // guarded by mu
	moved   time.Time          // guarded by mu: when a connection last came in or left
	clients map[netip.Addr]int // guarded by mu: open connections; none with 0
	idle    list.List          // guarded by mu: of *guest between two requests, the longest first
	freed   chan struct{}      // guarded by mu: closed when one leaves; nil: nobody waits for that
	waiting int                // guarded by mu: listeners with a connection that waits for room
}

// scarceShare divides a client's share while half of all connections are in use,
// so that a few clients cannot keep the others out.
const scarceShare = 8

// Room for one more connection when all are in use.
const (
	// idleEnough is how long no request must have been on a connection before it is
	// closed for another's sake: in a storm the next one is on its way.
	idleEnough = time.Second
	// defaultPatience is how long all connections may be busy and none leave before who
	// comes is turned away.
	defaultPatience = 2 * time.Second
)

// verdict is what becomes of a connection.
type verdict int

const (
	admitted verdict = iota
	greedy           // its client has its share
	full             // there is no room for anybody
)

// enter counts a connection in if it may stay.
func (c *crowd) enter(client netip.Addr) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := c.maxPerClient
	if c.all >= c.max/2 {
		share = max(1, share/scarceShare)
	}
	switch {
	case c.clients[client] >= share:
		return greedy
	case c.all >= c.max:
		return full
	}
	c.all++
	c.clients[client]++
	c.moved = time.Now()
	return admitted
}

func (c *crowd) leave(client netip.Addr) {
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

// pressed reports whether somebody waits for room.
func (c *crowd) pressed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// waits counts a listener that begins to wait, or that ends to.
func (c *crowd) waits(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += by
}

// rests notes that a connection waits for its next request, or no longer.
func (c *crowd) rests(g *guest, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.idle != nil {
		c.idle.Remove(g.idle)
		g.idle = nil
	}
	if idle {
		g.since, g.idle = time.Now(), c.idle.PushBack(g)
	}
}

// oldest takes the connection off the list that has been idle longest, if that is
// long enough; else nil, with how long until one may be.
func (c *crowd) oldest(now time.Time) (*guest, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.idle.Front()
	if first == nil {
		return nil, idleEnough
	}
	g := first.Value.(*guest)
	if wait := idleEnough - now.Sub(g.since); wait > 0 {
		return nil, wait
	}
	c.idle.Remove(first)
	g.idle = nil
	return g, 0
}

// wait returns true when there may be room: somebody has left, or was asked to, or some time
// has passed. It is false when there is none to hope for, since all are busy and nobody has
// left for as long as patience, and when done is closed.
func (c *crowd) wait(done <-chan struct{}) bool {
	now := time.Now()
	g, after := c.oldest(now)
	if g != nil {
		g.Close()
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

// door is a listener that turns away whom the crowd has no room for.
type door struct {
	net.Listener
	crowd  *crowd
	turned func()          // counts who was turned away
	done   <-chan struct{} // ends waiting for room
}

// Accept returns the next connection that may stay. The others are reset: a
// close would leave a TIME_WAIT socket behind for each.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := addrPort(conn.RemoteAddr()).Addr()
		if d.admit(client) {
			return &guest{Conn: conn, leave: sync.OnceFunc(func() { d.crowd.leave(client) })}, nil
		}
		d.turned()
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		conn.Close()
	}
}

// admit waits for room. Those behind wait meanwhile, in the order they came: there is no
// room for them either, and in a storm all get in as others leave. Where nobody leaves, one
// waits in vain and then all are turned away at once, until somebody does: their devices can
// say so and try again, where a queue would keep them for minutes. Nobody waits for a
// client that has more than its share.
func (d *door) admit(client netip.Addr) bool {
	v := d.crowd.enter(client)
	if v != full {
		return v == admitted
	}
	d.crowd.waits(1)
	defer d.crowd.waits(-1)
	for v == full && d.crowd.wait(d.done) {
		v = d.crowd.enter(client)
	}
	return v == admitted
}

// guest is a connection that the crowd has counted in.
type guest struct {
	net.Conn
	leave func()

	since time.Time     // guarded by the crowd's mu: when it became idle
	idle  *list.Element // guarded by the crowd's mu: nil while a request is on it
}

// Close may be called twice, as net/http does.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}

// changed keeps the crowd's list of idle connections, as a server's ConnState.
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if g, ok := conn.(*guest); ok && state != http.StateNew {
		c.rests(g, state == http.StateIdle)
	}
}

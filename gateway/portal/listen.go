package portal

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen opens the socket that the data path gives captured connections to. It is
// transparent (ip(7), IP_TRANSPARENT): answers leave with the address of the site
// that the client wanted. That needs CAP_NET_ADMIN.
func Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	lc := net.ListenConfig{
		Control: func(_, _ string, c syscall.RawConn) error {
			var set error
			err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
			if err == nil && set != nil {
				err = fmt.Errorf("making it transparent (needs CAP_NET_ADMIN): %w", set)
			}
			return err
		},
		// Connections are short and have deadlines of their own.
		KeepAliveConfig: net.KeepAliveConfig{Enable: false},
		KeepAlive:       -1,
	}
	lc.SetMultipathTCP(false) // a data path cannot steer connections to a socket of that kind
	l, err := lc.Listen(ctx, "tcp4", addr.String())
	if err != nil {
		return nil, fmt.Errorf("listening for clients on %s: %w", addr, err)
	}
	return l, nil
}

// crowd bounds the connections of all listeners together.
type crowd struct {
	max, maxPerClient int

	mu      sync.Mutex
	all     int                // guarded by mu
	clients map[netip.Addr]int // guarded by mu: open connections; none with 0
}

// scarceShare divides a client's share while half of all connections are in use,
// so that a few clients cannot keep the others out.
const scarceShare = 8

// enter counts a connection in and reports whether it may stay.
func (c *crowd) enter(client netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := c.maxPerClient
	if c.all >= c.max/2 {
		share = max(1, share/scarceShare)
	}
	if c.all >= c.max || c.clients[client] >= share {
		return false
	}
	c.all++
	c.clients[client]++
	return true
}

func (c *crowd) leave(client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.clients[client]--; c.clients[client] == 0 {
		delete(c.clients, client)
	}
}

// door is a listener that turns away whom the crowd has no room for.
type door struct {
	net.Listener
	crowd  *crowd
	turned func() // counts who was turned away
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
		if d.crowd.enter(client) {
			return &guest{Conn: conn, leave: sync.OnceFunc(func() { d.crowd.leave(client) })}, nil
		}
		d.turned()
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		conn.Close()
	}
}

// guest is a connection that the crowd has counted in.
type guest struct {
	net.Conn
	leave func()
}

// Close may be called twice, as net/http does.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}

// addrPort is a TCP address without the IPv6 form of an IPv4 one.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

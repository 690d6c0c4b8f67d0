package datapathtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// patience bounds how long a test waits for an answer.
const patience = 15 * time.Second

// dial connects from an address of a namespace.
func dial(s *netnstest.Space, from netip.Addr, to netip.AddrPort) (*net.TCPConn, error) {
	return dialFrom(s, netip.AddrPortFrom(from, 0), to)
}

// dialFrom is dial from a port; 0: any.
func dialFrom(s *netnstest.Space, from, to netip.AddrPort) (conn *net.TCPConn, err error) {
	s.Do(func() {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Timeout: patience}
		var c net.Conn
		if c, err = d.Dial("tcp4", to.String()); err == nil {
			conn = c.(*net.TCPConn)
		}
	})
	return conn, err
}

// listen listens in a namespace until the test ends.
func listen(t *testing.T, s *netnstest.Space, addr netip.AddrPort) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	s.Do(func() {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false)
		l, err = lc.Listen(context.Background(), "tcp4", addr.String())
	})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// Stream is both ends of a TCP connection through the gateway.
type Stream struct {
	Client, Server *net.TCPConn
	came           atomic.Uint64 // bytes received at either end
	running        sync.WaitGroup
}

// NewStream connects a station to an address of the server.
func (w *World) NewStream(t *testing.T, s Station, to netip.Addr) *Stream {
	t.Helper()
	return w.NewStreamTo(t, s, netip.AddrPortFrom(to, 0))
}

// NewStreamTo is NewStream to a port without another listener.
func (w *World) NewStreamTo(t *testing.T, s Station, to netip.AddrPort) *Stream {
	t.Helper()
	l := listen(t, w.Server, to)
	client, err := dial(s.Space, s.Addr, netip.MustParseAddrPort(l.Addr().String()))
	must(t, err)
	server, err := l.Accept()
	must(t, err)
	x := &Stream{Client: client, Server: server.(*net.TCPConn)}
	for _, c := range []*net.TCPConn{x.Client, x.Server} {
		x.running.Go(func() { io.Copy(counting{&x.came}, c) })
	}
	t.Cleanup(func() {
		for _, c := range []*net.TCPConn{x.Client, x.Server} {
			c.SetLinger(0)
			c.Close()
		}
		x.running.Wait()
	})
	return x
}

// counting counts what is written to it.
type counting struct{ n *atomic.Uint64 }

// Write implements io.Writer.
func (c counting) Write(b []byte) (int, error) { c.n.Add(uint64(len(b))); return len(b), nil }

// Came returns how many bytes arrived at both ends together.
func (x *Stream) Came() uint64 { return x.came.Load() }

// Carry sends bytes from one end, Client or Server, and waits until they have arrived.
func (x *Stream) Carry(t *testing.T, from *net.TCPConn, bytes int) {
	t.Helper()
	want := x.Came() + uint64(bytes)
	must(t, from.SetWriteDeadline(time.Now().Add(patience)))
	_, err := from.Write(make([]byte, bytes))
	must(t, err)
	netnstest.Await(t, "a transfer", func() error {
		if x.Came() < want {
			return errors.New("bytes are missing")
		}
		return nil
	})
}

// Begin sends from one end until the connection ends.
func (x *Stream) Begin(from *net.TCPConn) {
	x.running.Go(func() {
		for b := make([]byte, 16384); ; {
			if _, err := from.Write(b); err != nil {
				return
			}
		}
	})
}

// Passes waits until more bytes arrive.
func (x *Stream) Passes(t *testing.T, label string) {
	t.Helper()
	from := x.Came()
	netnstest.Await(t, "bytes: "+label, func() error {
		if x.Came() < from+100_000 {
			return errors.New("none come")
		}
		return nil
	})
}

// stopped checks that bytes which connections send after the call do not arrive, except those that were in flight.
func stopped(t *testing.T, label string, all ...*Stream) {
	t.Helper()
	count := func() (n []uint64) {
		for _, x := range all {
			n = append(n, x.Came())
		}
		return n
	}
	var from []uint64
	netnstest.Await(t, "the last bytes: "+label, func() error { // what was in flight arrives first
		from = count()
		time.Sleep(250 * time.Millisecond)
		if now := count(); !slices.Equal(now, from) {
			return fmt.Errorf("%v became %v", from, now)
		}
		return nil
	})
	time.Sleep(400 * time.Millisecond) // longer than a retransmission takes
	for i, x := range all {
		if n := x.Came() - from[i]; n > 0 {
			t.Errorf("%s: %d bytes of connection %d came", label, n, i)
		}
	}
}

// info returns the kernel's statistics of a connection's end.
func info(t *testing.T, c *net.TCPConn) *unix.TCPInfo {
	t.Helper()
	rc, err := c.SyscallConn()
	must(t, err)
	var out *unix.TCPInfo
	cerr := rc.Control(func(fd uintptr) { out, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	must(t, errors.Join(cerr, err))
	return out
}

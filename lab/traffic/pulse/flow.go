package pulse

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	askEvery = 200 * time.Millisecond // a client sends a byte over its connection, and waits for it to come back
	// answersWithin is how long ago the latest byte of a connection that is not lost may have come back. TCP that lost
	// packets sends them again after a time that doubles.
	answersWithin = 4 * time.Second
)

// flow is a client's end of its TCP connection.
type flow struct {
	answered atomic.Int64 // when the latest byte came back, ns
	err      atomic.Pointer[error]
}

// newFlow sends bytes over a connection until it is closed or breaks.
func newFlow(conn net.Conn, num int) *flow {
	f := &flow{}
	f.answered.Store(Now())
	hello := binary.BigEndian.AppendUint32(nil, uint32(num))
	go func() {
		_, err := conn.Write(hello)
		for err == nil {
			time.Sleep(askEvery)
			_, err = conn.Write([]byte{1})
		}
		f.fail(err)
	}()
	go func() {
		buf := make([]byte, 64)
		for {
			if _, err := conn.Read(buf); err != nil {
				f.fail(err)
				return
			}
			f.answered.Store(Now())
		}
	}()
	return f
}

func (f *flow) fail(err error) { f.err.CompareAndSwap(nil, &err) }

// lost says why the connection is lost; empty: it is not.
func (f *flow) lost(now int64) string {
	if err := f.err.Load(); err != nil {
		switch {
		case errors.Is(*err, io.EOF):
			return "ended by the server's end"
		case errors.Is(*err, unix.ECONNRESET):
			return "reset"
		}
		return (*err).Error()
	}
	if now-f.answered.Load() > int64(answersWithin) {
		return "no answers"
	}
	return ""
}

// echo is the server's end of a connection.
func (s *Server) echo(conn *net.TCPConn) {
	defer conn.Close()
	var hello [4]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return
	}
	s.mu.Lock()
	c := s.client(int(binary.BigEndian.Uint32(hello[:])))
	c.conn = conn
	s.mu.Unlock()
	_, _ = io.Copy(conn, struct{ io.Reader }{conn}) // the wrapper keeps the kernel's splice away, whose segments differ
	s.mu.Lock()
	defer s.mu.Unlock()
	c.tcpBytes, c.conn = c.tcpBytes+ipBytes(conn), nil
}

// ipBytes is what the IP packets of a connection had, both directions, as this end sees them; 0: not known any more.
func ipBytes(conn *net.TCPConn) (n int64) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int64(info.Segs_in+info.Segs_out)*tcpHeaders + int64(info.Bytes_received+info.Bytes_sent)
		}
	})
	return n
}

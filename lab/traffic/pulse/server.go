package pulse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// receiveBuffer holds the pulses of thousands of clients for a moment in which the thread has no CPU, bytes.
const receiveBuffer = 8 << 20

// Server is the end of the pulses behind the gateway.
type Server struct {
	*socket.Thread
	fd  int
	tcp net.Listener

	mu      sync.Mutex // guards what follows
	clients map[int]*served
	late    int64 // how late the latest pulse was sent, ns since the mark
}

// served is a client as the server sees it.
type served struct {
	up   Track
	from unix.Sockaddr // where its latest pulse came from
	seq  uint32        // number of the next pulse to it
	conn *net.TCPConn  // nil while it has no connection

	tcpBytes int64 // of connections that have ended: see Arrived
}

// Serve answers at a port, over UDP and TCP, of the calling thread's network namespace, until Close.
func Serve(addr netip.AddrPort) (*Server, error) {
	fd, err := socket.ListenUDP(addr)
	if err != nil {
		return nil, err
	}
	s := &Server{fd: fd, clients: map[int]*served{}}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	if s.tcp, err = net.Listen("tcp", addr.String()); err == nil {
		if s.Thread, err = socket.NewThread(); err == nil {
			err = s.Add(fd, socket.BellID+1, unix.EPOLLIN)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("serving pulses: %w", err)
	}
	go s.accept()
	s.Start(context.Background(), "gw-pulses", func() {
		defer unix.Close(fd)
		defer s.tcp.Close()
		run(s.Thread, s.send, s.receive)
	})
	return s, nil
}

// send sends one pulse to each client.
func (s *Server) send(late int64) {
	var buf [size]byte
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = max(s.late, late)
	for num, c := range s.clients {
		if c.from == nil {
			continue
		}
		put(buf[:], num, c.seq)
		c.seq++
		_ = unix.Sendto(s.fd, buf[:], unix.MSG_DONTWAIT, c.from)
	}
}

// receive takes all pulses that wait.
func (s *Server) receive(int32) {
	buf := make([]byte, size+1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		n, from, err := unix.Recvfrom(s.fd, buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		if num, seq, ok := read(buf[:n]); ok {
			c := s.client(num)
			c.from = from
			c.up.arrived(seq, Now())
		}
	}
}

// client returns a client, which it makes if need be. The caller holds the lock.
func (s *Server) client(num int) *served {
	c := s.clients[num]
	if c == nil {
		c = &served{}
		s.clients[num] = c
	}
	return c
}

// accept takes connections until the listener is closed. A connection begins with the client's number.
func (s *Server) accept() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		go s.echo(conn.(*net.TCPConn))
	}
}

// Mark begins to count outages, on the way from the clients.
func (s *Server) Mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Now()
	s.late = 0
	for _, c := range s.clients {
		c.up.mark(now)
	}
}

// Arrived is what the server has of the clients.
type Arrived struct {
	Up map[int]Track `json:"up"` // by the clients' numbers
	// TCPBytes is what IP packets of each client's connection had, both directions, as the server saw them.
	TCPBytes map[int]int64 `json:"tcp_bytes"`
	LateNs   int64         `json:"late_ns"` // how late the latest pulse was sent since the mark
}

// Read returns what has arrived so far.
func (s *Server) Read() Arrived {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Arrived{Up: map[int]Track{}, TCPBytes: map[int]int64{}, LateNs: s.late}
	now := Now()
	for num, c := range s.clients {
		a.Up[num] = c.up.ended(now)
		a.TCPBytes[num] = c.tcpBytes
		if c.conn != nil {
			a.TCPBytes[num] += ipBytes(c.conn)
		}
	}
	return a
}

// PulseBytes is what so many pulses have as IP packets, bytes.
func PulseBytes(n int64) int64 { return n * (size + headers) }

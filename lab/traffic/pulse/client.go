package pulse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Peer is one client: its number, a connected non-blocking UDP socket to the server, and its TCP connection, nil for
// none. A Sender owns both.
type Peer struct {
	Num int
	FD  int
	TCP net.Conn
}

// Sender is the clients' end of the pulses.
type Sender struct {
	*socket.Thread
	peers []Peer
	flows []*flow // of the connections; nil where there is none

	mu   sync.Mutex // guards what follows
	down []Track
	seq  uint32
	late int64
}

// Send sends pulses of clients until Close or the end of ctx.
func Send(ctx context.Context, peers []Peer) (s *Sender, err error) {
	s = &Sender{peers: peers, down: make([]Track, len(peers)), flows: make([]*flow, len(peers))}
	if s.Thread, err = socket.NewThread(); err != nil {
		s.closePeers()
		return nil, fmt.Errorf("sending pulses: %w", err)
	}
	for i, p := range peers {
		_ = unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer/64)
		if err := s.Add(p.FD, int32(i+1), unix.EPOLLIN); err != nil {
			s.closePeers()
			s.Close()
			return nil, err
		}
		if p.TCP != nil {
			s.flows[i] = newFlow(p.TCP, p.Num)
		}
	}
	s.Start(ctx, "gw-pulse", func() {
		defer s.closePeers()
		run(s.Thread, s.send, s.receive)
	})
	return s, nil
}

func (s *Sender) closePeers() {
	for _, p := range s.peers {
		unix.Close(p.FD)
		if p.TCP != nil {
			p.TCP.Close()
		}
	}
}

// send sends one pulse of each client.
func (s *Sender) send(late int64) {
	var buf [size]byte
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = max(s.late, late)
	for _, p := range s.peers {
		put(buf[:], p.Num, s.seq)
		_, _ = socket.SendSome(p.FD, buf[:])
	}
	s.seq++
}

// receive takes the pulses that wait for client id-1.
func (s *Sender) receive(id int32) {
	i := int(id) - 1
	buf := make([]byte, size+1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		n, err := unix.Read(s.peers[i].FD, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) {
			continue // an ICMP message: the error is read once
		}
		if err != nil {
			return
		}
		if num, seq, ok := read(buf[:n]); ok && num == s.peers[i].Num {
			s.down[i].arrived(seq, Now())
		}
	}
}

// Mark begins to count outages, on the way to the clients.
func (s *Sender) Mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Now()
	s.late = 0
	for i := range s.down {
		s.down[i].mark(now)
	}
}

// Got is what one client has of the server.
type Got struct {
	Num  int    `json:"num"` // the client's number
	Down Track  `json:"down"`
	TCP  string `json:"tcp"` // why its connection is lost; empty: it is not
}

// Result is what all clients of a host have of the server.
type Result struct {
	Clients []Got `json:"clients"`
	LateNs  int64 `json:"late_ns"` // how late the latest pulse was sent since the mark
}

// Read returns what has arrived so far.
func (s *Sender) Read() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Now()
	r := Result{LateNs: s.late}
	for i, p := range s.peers {
		g := Got{Num: p.Num, Down: s.down[i].ended(now)}
		if f := s.flows[i]; f != nil {
			g.TCP = f.lost(now)
		}
		r.Clients = append(r.Clients, g)
	}
	return r
}

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

	mu     sync.Mutex // guards what follows
	peers  []*sending
	seq    uint32
	late   int64
	silent bool
}

// sending is a client that sends pulses.
type sending struct {
	Peer
	flow  *flow // of its connection; nil: it has none
	began int64 // when its first pulse was sent, ns; 0: it was not yet
	down  Track
}

// Send sends pulses of clients until Close or the end of ctx.
func Send(ctx context.Context, peers []Peer) (s *Sender, err error) {
	s = &Sender{}
	for _, p := range peers {
		s.peers = append(s.peers, &sending{Peer: p})
	}
	if s.Thread, err = socket.NewThread(); err != nil {
		s.closePeers()
		return nil, fmt.Errorf("sending pulses: %w", err)
	}
	for i, p := range s.peers {
		if err := s.watch(p, i); err != nil {
			s.closePeers()
			s.Close()
			return nil, err
		}
	}
	s.Start(ctx, "gw-pulse", func() {
		defer s.closePeers()
		run(s.Thread, s.send, s.receive)
	})
	return s, nil
}

// watch has the thread take what arrives for client i.
func (s *Sender) watch(p *sending, i int) error {
	_ = unix.SetsockoptInt(p.FD, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer/64)
	if err := s.Add(p.FD, int32(i+1), unix.EPOLLIN); err != nil {
		return err
	}
	if p.TCP != nil {
		p.flow = newFlow(p.TCP, p.Num)
	}
	return nil
}

// Join has another client send pulses. On error its sockets are still the caller's.
func (s *Sender) Join(p Peer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	joined := &sending{Peer: p}
	if err := s.watch(joined, len(s.peers)); err != nil {
		return err
	}
	s.peers = append(s.peers, joined)
	return nil
}

// Silence ends the pulses of all clients. They receive on.
func (s *Sender) Silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = true
}

func (s *Sender) closePeers() {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	if s.silent {
		return
	}
	s.late = max(s.late, late)
	for _, p := range s.peers {
		if p.began == 0 {
			p.began = Now()
		}
		put(buf[:], p.Num, s.seq)
		_, _ = socket.SendSome(p.FD, buf[:])
	}
	s.seq++
}

// receive takes the pulses that wait for client id-1.
func (s *Sender) receive(id int32) {
	buf := make([]byte, size+1)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id-1]
	for {
		n, err := unix.Read(p.FD, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) {
			continue // an ICMP message: the error is read once
		}
		if err != nil {
			return
		}
		if num, seq, ok := read(buf[:n]); ok && num == p.Num {
			p.down.arrived(seq, Now())
		}
	}
}

// Mark begins to count outages, on the way to the clients.
func (s *Sender) Mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := Now()
	s.late = 0
	for _, p := range s.peers {
		p.down.mark(now)
	}
}

// Got is what one client has of the server.
type Got struct {
	Num  int   `json:"num"` // the client's number
	Down Track `json:"down"`
	// BeganNs is when the client's first pulse was sent, by the same clock as Track.LastNs; 0: it was not yet.
	BeganNs int64 `json:"began_ns"`

	TCP string `json:"tcp"` // why its connection is lost; empty: it is not
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
	for _, p := range s.peers {
		g := Got{Num: p.Num, Down: p.down.ended(now), BeganNs: p.began}
		if p.flow != nil {
			g.TCP = p.flow.lost(now)
		}
		r.Clients = append(r.Clients, g)
	}
	return r
}

// Package short opens TCP connections that carry one answer and end, as those of web pages, look-ups and messages do.
// A gateway that keeps state for each connection has more work with them than with the long streams of package traffic.
//
//	client ── connect ─► server
//	       ── 8 bytes: the length of the answer ─►
//	       ◄─ the answer ── and the end
package short

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// MostBytes bounds an answer.
const MostBytes = 16 << 20

const (
	patience   = 10 * time.Second // for one connection, from beginning to end
	mostOpen   = 4096             // connections of a Generator at the same time
	chunkBytes = 64 << 10         // bytes of an answer that are written or read at once
	// A generator that is late by at most catchUp catches up with its schedule. By more, it moves the schedule by its
	// delay, and the connections of that time count as missed.
	catchUp = 10 * time.Millisecond
)

// Server answers connections until Close.
type Server struct {
	listener net.Listener
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

// Serve listens at an address of the calling thread's network namespace.
func Serve(ctx context.Context, addr netip.AddrPort) (*Server, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // Go's default, which clients would not notice but routers may
	l, err := lc.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return nil, fmt.Errorf("serving short connections: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{listener: l, cancel: cancel}
	s.all.Go(func() { s.accept(ctx) })
	return s, nil
}

// accept takes connections until the listener is closed.
func (s *Server) accept(ctx context.Context) {
	payload := make([]byte, chunkBytes)
	for {
		conn, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of files, most likely: the waiting client times out
			time.Sleep(catchUp)
			continue
		}
		s.all.Go(func() {
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			answer(conn, payload)
		})
	}
}

// answer sends what is asked for. Errors are counted by the client.
func answer(conn net.Conn, payload []byte) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	var left uint64
	err := binary.Read(conn, binary.BigEndian, &left)
	for left = min(left, MostBytes); left > 0 && err == nil; {
		var n int
		n, err = conn.Write(payload[:min(chunkBytes, left)])
		left -= uint64(n)
	}
}

// Close ends the server and all its connections. It may be called twice.
func (s *Server) Close() {
	s.listener.Close()
	s.cancel()
	s.all.Wait()
}

// Config describes the connections that a Generator opens.
type Config struct {
	PerSecond float64       // connections, evenly spaced
	After     time.Duration // time from Start to the first connection, so that generators that share a rate take turns
	Bytes     int           // of each answer, 1 to MostBytes
}

// DialFunc connects as the n-th connection's client; n counts from 0.
type DialFunc func(ctx context.Context, n int) (net.Conn, error)

// Stats counts the connections so far, by their outcome.
type Stats struct {
	Seconds float64 `json:"seconds"` // since the first connection was due
	Done    int     `json:"done"`    // connections with the whole answer
	Failed  int     `json:"failed"`
	// Missed is the number of connections that were not opened, because mostOpen were open or the generator was late.
	Missed     int    `json:"missed"`
	FirstError string `json:"first_error,omitempty"`
	// Times of each connection that is done, microseconds: until it is established, from then to the answer's first byte,
	// and from beginning to end.
	ConnectUs   []float64 `json:"connect_us"`
	FirstByteUs []float64 `json:"first_byte_us"`
	WholeUs     []float64 `json:"whole_us"`
}

// Generator opens connections until Close.
type Generator struct {
	cfg    Config
	dial   DialFunc
	cancel context.CancelFunc
	all    sync.WaitGroup
	start  time.Time

	mu    sync.Mutex // guards stats
	stats Stats
}

// Start begins to open connections. They outlive ctx only until Close.
func Start(ctx context.Context, cfg Config, dial DialFunc) (*Generator, error) {
	if !(cfg.PerSecond > 0) || cfg.Bytes < 1 || cfg.Bytes > MostBytes {
		return nil, fmt.Errorf("%g short connections a second of %d bytes: want more than 0, and 1 to %d bytes",
			cfg.PerSecond, cfg.Bytes, MostBytes)
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &Generator{cfg: cfg, dial: dial, cancel: cancel, start: time.Now().Add(cfg.After)}
	g.all.Go(func() { g.run(ctx) })
	return g, nil
}

// run follows the schedule.
func (g *Generator) run(ctx context.Context) {
	open := make(chan struct{}, mostOpen)
	t0 := g.start
	for n := 0; ; n++ {
		due := t0.Add(time.Duration(float64(n) / g.cfg.PerSecond * float64(time.Second)))
		if late := time.Since(due); late > catchUp {
			t0 = t0.Add(late)
			g.updateStats(func(s *Stats) { s.Missed += int(late.Seconds() * g.cfg.PerSecond) })
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		select {
		case open <- struct{}{}:
			g.all.Go(func() {
				defer func() { <-open }()
				g.connectOnce(ctx, n)
			})
		default:
			g.updateStats(func(s *Stats) { s.Missed++ })
		}
	}
}

// connectOnce opens the n-th connection and reads its answer. A connection that Close interrupts is not counted.
func (g *Generator) connectOnce(ctx context.Context, n int) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	start := time.Now()
	connected, first, err := g.exchange(bounded, n)
	end := time.Now()
	if ctx.Err() != nil {
		return
	}
	us := func(a, b time.Time) float64 { return float64(b.Sub(a)) / float64(time.Microsecond) }
	g.updateStats(func(s *Stats) {
		if err != nil {
			if s.Failed++; s.Failed == 1 {
				s.FirstError = err.Error()
			}
			return
		}
		s.Done++
		s.ConnectUs = append(s.ConnectUs, us(start, connected))
		s.FirstByteUs = append(s.FirstByteUs, us(connected, first))
		s.WholeUs = append(s.WholeUs, us(start, end))
	})
}

// exchange opens one connection, asks for an answer and reads it. It returns when the connection was established and
// when the first byte came.
func (g *Generator) exchange(ctx context.Context, n int) (connected, first time.Time, err error) {
	conn, err := g.dial(ctx, n)
	if err != nil {
		return connected, first, fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	connected = time.Now()
	if _, err := conn.Write(binary.BigEndian.AppendUint64(nil, uint64(g.cfg.Bytes))); err != nil {
		return connected, first, fmt.Errorf("asking: %w", err)
	}
	buf := make([]byte, min(g.cfg.Bytes+1, chunkBytes))
	for got := 0; ; {
		n, err := conn.Read(buf)
		if got == 0 && n > 0 {
			first = time.Now()
		}
		got += n
		switch {
		case errors.Is(err, io.EOF) && got == g.cfg.Bytes:
			return connected, first, nil
		case err != nil:
			return connected, first, fmt.Errorf("reading byte %d of %d: %w", got, g.cfg.Bytes, err)
		}
	}
}

func (g *Generator) updateStats(what func(*Stats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	what(&g.stats)
}

// Stats counts the connections so far.
func (g *Generator) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Seconds = max(0, time.Since(g.start).Seconds())
	return s
}

// Close stops opening connections and ends the open ones. It may be called twice.
func (g *Generator) Close() {
	g.cancel()
	g.all.Wait()
}

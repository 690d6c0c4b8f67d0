// Tests of the pacer, which sends bursts at their times. newPair makes two namespaces with a link; a Generator at one
// end sends a run to a Server at the other; bothCounts returns the counts of both (netns_test.go).

package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// A pacer sends bursts of all streams by a schedule. Bursts that are a little late are sent later; the others are given
// up (shortfall).

// TestPacerGivesUpLateBursts: the pacer is late by some time. It sends the missed bursts of the last 10 ms, or the last
// 8 if that is more, and gives up the earlier ones.
func TestPacerGivesUpLateBursts(t *testing.T) {
	for _, c := range []struct {
		rate  float64 // bit/s
		late  time.Duration
		burst int // bursts that are sent at once after the delay
	}{
		{1e9, time.Millisecond, 2},          // a burst every 0.51 ms: all missed bursts
		{1e9, time.Second, 20},              // the bursts of 10 ms
		{1e10, 500 * time.Millisecond, 197}, // a burst every 51 µs: the bursts of 10 ms
		{1e6, 10 * time.Second, 9},          // a burst every 0.51 s: 8 bursts, and the one that is due now
	} {
		cfg, err := Config{RateBps: c.rate}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		r := newRun(0, cfg)
		r.end(&r.streams[0], nil) // nothing to write to: the schedule alone
		p, err := newPacer(r, tcpWrite)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		now := time.Now()
		p.t0 = now.Add(-c.late)
		for !p.due().After(now) {
			p.step(now)
		}
		if n := int(p.sent); n < c.burst-1 || n > c.burst+1 {
			t.Errorf("%g bit/s, %s late: %d bursts at once, want %d", c.rate, c.late, n, c.burst)
		}
		// Every burst of the delay was sent or given up. The stream has ended, so all of them are in the shortfall.
		want := float64(c.late) / p.interval * float64(p.burst)
		if got := float64(r.shortfall.Load()); got < want-2*float64(p.burst) || got > want+2*float64(p.burst) {
			t.Errorf("%g bit/s, %s late: %.0f bytes accounted for, want %.0f", c.rate, c.late, got, want)
		}
		if got := time.Duration(r.lateness.Load()); got != c.late {
			t.Errorf("lateness %s, want %s", got, c.late)
		}
	}
}

// TestDiscard: discardSome removes the bytes that wait in a socket without copying them, and no later ones.
func TestDiscard(t *testing.T) {
	p := newPair(t)
	fd, addr := p.server.listen(t)
	defer unix.Close(fd)
	from, err := p.client.dial(addr)(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(from)
	awaitEvent(context.Background(), fd, unix.POLLIN, handshakeTimeout)
	to, _, err := unix.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(to)
	total := 0
	for total < 500000 {
		awaitEvent(context.Background(), from, unix.POLLOUT, handshakeTimeout)
		n, err := socket.SendSome(from, make([]byte, min(60000, 500000-total)))
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	got := 0
	for got < total {
		awaitEvent(context.Background(), to, unix.POLLIN, handshakeTimeout)
		n, err := discardSome(to)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if _, err := discardSome(to); got != total || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("%d of %d bytes, then %v", got, total, err)
	}
	socket.SendSome(from, []byte("after"))
	awaitEvent(context.Background(), to, unix.POLLIN, handshakeTimeout)
	b := make([]byte, 10)
	if n, _ := unix.Read(to, b); string(b[:max(n, 0)]) != "after" {
		t.Errorf("after the discarded bytes came %q", b[:max(n, 0)])
	}
	unix.Shutdown(from, unix.SHUT_WR)
	awaitEvent(context.Background(), to, unix.POLLIN, handshakeTimeout)
	if _, err := discardSome(to); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// BenchmarkBurst measures the sending thread's time for one burst: the pacer's own work, and the system call with the
// kernel's whole path to the receiver over loopback.
func BenchmarkBurst(b *testing.B) {
	for _, segments := range []int{2, 8, 44} {
		b.Run(fmt.Sprint(segments), func(b *testing.B) {
			s := &namespace{netnstest.NewSpace(b)}
			s.Run(b, "ip", "link", "set", "lo", "up")
			lo := netip.MustParseAddr("127.0.0.1")
			srv := s.serve(b, lo, false)
			// So slow that the generator's own thread stays out of the way.
			g, err := Start(context.Background(), Config{RateBps: 1, BurstSegments: segments}, s.dial(srv.addr(lo)))
			if err != nil {
				b.Fatal(err)
			}
			g.pacer.Close()
			defer g.Close()
			benchmarkSend(b, g.run, srv)
		})
	}
}

// benchmarkSend measures the sending of bursts on the first stream of a run.
func benchmarkSend(b *testing.B, r *run, srv *Server) {
	p, err := newPacer(r, tcpWrite)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	far := &srv.runs[0].streams[0]
	b.SetBytes(int64(p.burst))
	b.ReportAllocs()
	for b.Loop() {
		p.send(&r.streams[0])
		for far.bytes.Load()+int64(4*p.burst) < r.streams[0].bytes.Load() {
			runtime.Gosched() // wait for the receiver: full sockets are not measured here
		}
	}
}

// BenchmarkSchedule measures the pacer's own work for a burst: all streams of its run have ended, so nothing is sent.
func BenchmarkSchedule(b *testing.B) {
	cfg, err := Config{Streams: 100, RateBps: 1e9}.withDefaults()
	if err != nil {
		b.Fatal(err)
	}
	r := newRun(0, cfg)
	for i := range r.streams {
		r.end(&r.streams[i], nil)
	}
	p, err := newPacer(r, tcpWrite)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	p.t0 = time.Now()
	b.ReportAllocs()
	for b.Loop() {
		p.step(p.due())
	}
}

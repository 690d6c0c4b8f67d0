// Package traffic offers load to a gateway: a paced generator of many TCP or UDP
// streams and the server at their far end. Beside it are package iperf3, the studies'
// tool, and package rtt, which measures round-trip time under load. Linux only.
//
// # Whole bursts
//
// How many segments leave back to back moves a router's CPU by a factor of two,
// so it is held constant: one write of BurstSegments × MSS bytes is one burst. Sockets
// have Nagle off, a send buffer of several bursts, and a congestion control that does not
// pace. The rest belongs to the sending network namespace, and the caller sets it there:
//
//   - net.ipv4.tcp_slow_start_after_idle=0. Otherwise a stream that waits longer
//     than its retransmission time-out for its next turn starts again from ten segments.
//   - net.ipv4.tcp_autocorking=0. Otherwise a burst may wait for the one before
//     it while that one is still in a queue of the sending link.
//   - net.ipv4.tcp_limit_output_bytes above one burst (any kernel's default is).
//   - no fq queueing discipline on the sending link: it paces every flow by itself.
//   - the sending link's gso_max_segs and gso_max_size bound the segments of one buffer,
//     though a burst's buffers still follow each other without a pause. A route with
//     initcwnd ≥ BurstSegments makes even the first burst of each stream whole.
//
// Datagrams take the same schedule. The kernel gets a burst in one call and cuts it
// into datagrams (UDP_SEGMENT) where the sending link no longer does, so that they
// leave back to back and the sender pays for cutting.
package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Limits of a Config. The server refuses headers beyond them.
const (
	MaxStreams       = 65536
	MaxBurstBytes    = 1 << 20
	MaxSecondsLimit  = 24 * 3600
	MaxBurstSegments = 1024
)

// Config describes one run of the generator. Every field has a default, except the rate of UDP.
type Config struct {
	// Streams is the number of TCP streams, or of UDP sockets (each is one stream of datagrams). Default 1, at most
	// MaxStreams.
	Streams int
	// UDP sends datagrams instead of TCP segments.
	UDP bool
	// RateBps is the payload of all streams together, bits per second, shared evenly. 0: as fast as TCP sends.
	RateBps float64
	// Direction is result.Up (default) or result.Down.
	Direction string
	// BurstSegments is the number of segments sent back to back, default DefaultBurst.
	BurstSegments int
	// MSS is the payload of a segment, bytes, default SegmentBytes of Ethernet. It determines the size of a burst, and is
	// not imposed on the connection. With UDP it is the payload of each datagram, at least 24.
	MSS int
	// MaxSeconds ends the sending by itself, default 3600, at most MaxSecondsLimit.
	MaxSeconds int
}

// DialFunc returns a connected, non-blocking socket of the run's protocol for client i, which counts from 0. The socket
// comes from NewSocket and may belong to any network namespace. Start calls DialFunc from several goroutines at once,
// and closes the socket.
type DialFunc func(ctx context.Context, i int) (fd int, err error)

// RunID distinguishes the streams of different Generators on a server.
type RunID uint64

// Generator is the client's side of a run, with all its streams. The payload goes in either direction.
type Generator struct {
	run      *run
	pacer    *pacer         // result.Up only
	receiver *socket.Thread // with result.Down, and always with UDP
	close    func() error
}

// Start returns when the server has accepted every stream and sending has begun. The
// first stream to fail ends the attempt; the error names its client. When ctx ends, so
// does the generator; the caller still calls Close to wait for it.
func Start(ctx context.Context, cfg Config, dial DialFunc) (*Generator, error) {
	cfg, err := cfg.withDefaults()
	if err == nil {
		err = checkDescriptors(cfg.Streams)
	}
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	g := &Generator{run: newRun(RunID(rand.Uint64()), cfg)}
	if err = g.run.connectAll(ctx, dial); err == nil {
		err = g.startThreads()
	}
	if err != nil {
		g.run.closeSockets()
		return nil, fmt.Errorf("streams: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx) // cancel ends the goroutine that waits for the end of the caller's context
	g.close = sync.OnceValue(func() error {
		defer cancel()
		return g.end()
	})
	context.AfterFunc(ctx, func() { g.close() })
	return g, nil
}

func (g *Generator) startThreads() (err error) {
	switch r := g.run; {
	case r.cfg.UDP:
		if g.receiver, err = startDatagramReceiver(r); err != nil || !r.sends {
			return err
		}
		if g.pacer, err = startPacer(r, newOutbox(r).write); err != nil {
			g.receiver.Close()
		}
	case r.sends:
		g.pacer, err = startPacer(r, tcpWrite)
	default:
		g.receiver, err = startReceiver(r)
	}
	return err
}

// Stats reads the counters; it may be called at any time, also after Close.
func (g *Generator) Stats() Stats {
	var s Stats
	g.run.addToStats(&s)
	if g.pacer != nil {
		s.Threads = append(s.Threads, ThreadCPU{"send", g.pacer.CPUNs()})
	}
	if g.receiver != nil {
		s.Threads = append(s.Threads, ThreadCPU{"receive", g.receiver.CPUNs()})
	}
	return s
}

// Close ends the streams and waits for the generator's threads. Streams that receive
// first end their other direction, for at most closeLinger, so that the server does not
// take the end for a failure. It may be called twice.
func (g *Generator) Close() error { return g.close() }

func (g *Generator) end() error {
	if g.pacer != nil {
		g.pacer.Close()
	}
	if g.receiver != nil {
		g.receiver.Close()
	}
	return g.run.closeSockets()
}

// Mark restarts the count of Stats.Shares.
func (g *Generator) Mark() { g.run.mark() }

func (c Config) withDefaults() (Config, error) {
	c.Streams = cmp.Or(c.Streams, 1)
	c.BurstSegments = cmp.Or(c.BurstSegments, DefaultBurst)
	c.MSS = cmp.Or(c.MSS, SegmentBytes(EthernetMTU, c.UDP))
	c.MaxSeconds = cmp.Or(c.MaxSeconds, 3600)
	c.Direction = cmp.Or(c.Direction, result.Up)
	return c, c.check()
}

// check refuses values that cannot be run. It checks a caller's Config, and one that a server has read from a header.
func (c Config) check() error {
	switch {
	case c.Streams < 1 || c.Streams > MaxStreams:
		return fmt.Errorf("%d streams, want 1 to %d", c.Streams, MaxStreams)
	case !(c.RateBps >= 0 && c.RateBps <= 1e13): // also refuses NaN
		return fmt.Errorf("rate of %g bit/s, want at most 1e13, or 0 for what TCP takes", c.RateBps)
	case c.UDP && c.Unpaced():
		return errors.New("datagrams need a rate: nothing says how many the path takes")
	case c.Direction != result.Up && c.Direction != result.Down:
		return fmt.Errorf("direction %q, want %q or %q", c.Direction, result.Up, result.Down)
	case c.BurstSegments < 1 || c.BurstSegments > MaxBurstSegments:
		return fmt.Errorf("burst of %d segments, want 1 to %d", c.BurstSegments, MaxBurstSegments)
	case c.MSS < 1 || c.burstBytes() > MaxBurstBytes:
		return fmt.Errorf("burst of %d × %d bytes, want 1 to %d bytes", c.BurstSegments, c.MSS, MaxBurstBytes)
	case c.UDP && (c.MSS < headSize || c.MSS > MaxDatagram):
		return fmt.Errorf("datagrams of %d bytes, want %d to %d", c.MSS, headSize, MaxDatagram)
	case c.MaxSeconds < 1 || c.MaxSeconds > MaxSecondsLimit:
		return fmt.Errorf("run of %d s, want 1 to %d", c.MaxSeconds, MaxSecondsLimit)
	}
	return nil
}

func (c Config) burstBytes() int { return c.BurstSegments * c.MSS }

// burstInterval is the time from one burst of the run to the next, ns.
func (c Config) burstInterval() float64 {
	return float64(c.burstBytes()) * 8 / c.RateBps * float64(time.Second)
}

// bufferBytes returns the buffer size of a socket: four bursts, or 100 ms of the stream's share when that is more, so
// that a long path is not cut short.
func (c Config) bufferBytes() int {
	share := int(c.RateBps / 8 / float64(c.Streams) / 10)
	if c.Unpaced() {
		share = unpacedBytes / c.Streams
	}
	return max(4*c.burstBytes(), min(share, 64<<20))
}

// checkDescriptors refuses a run that needs more open files than the process may have:
// otherwise a late dial would fail with an unrelated error.
func checkDescriptors(streams int) error {
	const spare = 32 // standard streams, the runtime's own, epoll and eventfd
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if uint64(streams)+spare > lim.Cur {
		return fmt.Errorf(
			"%d streams need %d open files and the limit is %d: raise nofile (ulimit -n) or use several processes: %w",
			streams, streams+spare, lim.Cur, errTooManyStreams)
	}
	return nil
}

var errTooManyStreams = errors.New("too many streams for one process")

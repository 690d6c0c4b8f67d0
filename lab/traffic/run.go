package traffic

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Stats are the counters of one run on one side, all since its start.
type Stats struct {
	ReceivedBytes int64     // payload this side took from the kernel
	Bursts        int64     // bursts that were due and that this side tried to send
	Datagrams     Datagrams // of UDP

	// Open is true once the TCP windows of all streams that send from this side are large enough, so that the schedule has
	// begun. It is always true on the side that receives.
	Open bool

	// Connect is the time from making a stream's socket to its connection, FirstByte the time from then to the first byte
	// of the server's answer. Only generators have them, not the server.
	Connect, FirstByte Delays

	// Shares is the payload of the streams since the last Mark. It is zero before the first Mark, and on the side that
	// sends.
	Shares Shares

	Broken     int    // number of streams that ended with an error
	FirstError string // error of the first of them

	Threads []ThreadCPU // this side's own threads
}

// ThreadCPU is the on-CPU time of one thread since it began, nanoseconds.
type ThreadCPU struct {
	Name  string // "send", "receive"; on a server "send 1" and on
	CPUNs int64
}

// stream is one TCP connection of a run, or the datagrams of one client. fd is set before the threads that use it
// start, and closed after they have ended. So no thread writes to a descriptor that has been reused for another file. A
// UDP server has one socket for all streams, and fd is not used.
type stream struct {
	fd    int
	index int
	bytes atomic.Int64 // payload in the run's direction, this side
	over  atomic.Bool
	debt  int // bytes that were due and that the full socket did not take; only the pacer uses it

	// For UDP: next is the number of the next datagram to send, or one more than the highest number received.
	next, datagrams, reordered atomic.Int64
}

// run is the state of one load at one side. The generator's side and the server's side both use it.
type run struct {
	id      RunID
	cfg     Config
	sends   bool // this side sends the payload
	streams []stream

	accepted atomic.Int64 // number of streams that are connected
	bursts   atomic.Int64
	// shortfall is payload that was due and never sent, bytes: the sending thread ran too late, a socket stayed full, or
	// its stream had ended.
	shortfall atomic.Int64
	primed    atomic.Int64 // payload sent before the schedule began, bytes
	lateness  atomic.Int64 // largest delay of a burst against the schedule, ns
	broken    atomic.Int64
	open      atomic.Bool // see Stats.Open

	connect, firstByte Delays // written by Start before other threads read them

	mu       sync.Mutex
	firstErr string  // guarded by mu
	marks    []int64 // guarded by mu: each stream's bytes at the last Mark
}

// newRun makes a run of a generator or a server. Its streams have no sockets yet.
func newRun(id RunID, cfg Config) *run {
	r := &run{id: id, cfg: cfg, sends: cfg.Direction == result.Up, streams: make([]stream, cfg.Streams)}
	for i := range r.streams {
		r.streams[i].fd, r.streams[i].index = -1, i
	}
	return r
}

// end marks a stream as ended, and counts it as broken if err is not nil. Only the first call for a stream counts.
func (r *run) end(st *stream, err error) {
	if !st.over.CompareAndSwap(false, true) || err == nil {
		return
	}
	r.broken.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.firstErr == "" {
		r.firstErr = err.Error()
	}
}

// addToStats fills in the counters of the run.
func (r *run) addToStats(s *Stats) {
	s.Open = !r.sends || r.open.Load()
	s.Connect, s.FirstByte = r.connect, r.firstByte
	s.Bursts, s.Broken = r.bursts.Load(), int(r.broken.Load())
	for i := range r.streams {
		if r.cfg.UDP {
			s.Datagrams = s.Datagrams.Add(r.streams[i].datagramCounts(r.sends))
		}
		if !r.sends {
			s.ReceivedBytes += r.streams[i].bytes.Load()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Shares, s.FirstError = r.shares(), r.firstErr
}

// closeSockets pauses for closePause after each closeGroup streams. Closing a stream takes three packets, and no queue
// holds the packets of ten thousand streams.
const (
	closeGroup = 250
	closePause = 5 * time.Millisecond
)

// closeSockets closes all open sockets. It must be called after the threads that use the run have ended.
func (r *run) closeSockets() error {
	var errs []error
	for i := range r.streams {
		st := &r.streams[i]
		if st.fd < 0 {
			continue
		}
		if len(errs) > 0 && len(errs)%closeGroup == 0 {
			time.Sleep(closePause)
		}
		errs = append(errs, unix.Close(st.fd))
		st.fd = -1
	}
	return errors.Join(errs...)
}

// watchStreams makes a thread that waits for events on all streams of a generator. Stream i has the id i+1.
func (r *run) watchStreams(events uint32) (*socket.Thread, error) {
	t, err := socket.NewThread()
	if err != nil {
		return nil, err
	}
	for i := range r.streams {
		if err := t.Add(r.streams[i].fd, int32(i+1), events); err != nil {
			t.Close()
			return nil, err
		}
	}
	return t, nil
}

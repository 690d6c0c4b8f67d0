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
	Bursts        int64     // bursts the schedule called for and this side tried
	Datagrams     Datagrams // of UDP

	// Open is that the windows of all streams that send from here are open; from then
	// on the schedule is followed. True on the side that receives.
	Open bool

	// Connect is from making a stream's socket to its connection, FirstByte from then to the
	// first byte of the server's answer. Generators only.
	Connect, FirstByte Delays

	// Shares are since the last Mark; none before, and none on the side that sends.
	Shares Shares

	Broken     int    // streams that ended by an error
	FirstError string // of the first of them

	Threads []ThreadCPU // this side's own threads
}

// ThreadCPU is the on-CPU time of one thread since it began, nanoseconds.
type ThreadCPU struct {
	Name  string // "send", "receive"; on a server "send 1" and on
	CPUNs int64
}

// stream is one TCP connection of a run, or one client's datagrams. fd is set before
// the threads that use it start and closed after they have ended, so that no thread
// ever writes into a descriptor number that meanwhile belongs to another file. A
// server of datagrams has one socket for all, and none here.
type stream struct {
	fd    int
	index int
	bytes atomic.Int64 // payload in the run's direction, this side
	over  atomic.Bool
	debt  int // bytes of the schedule that the socket did not take; only the pacer uses it

	// Of UDP. next is the number of the next datagram to send, or one more than the
	// highest received.
	next, datagrams, reordered atomic.Int64
}

// run is the state that the generator's and the server's side of a run share.
type run struct {
	id      RunID
	cfg     Config
	sends   bool // this side carries payload out
	streams []stream

	accepted atomic.Int64 // streams so far
	bursts   atomic.Int64
	// Payload of the schedule that was given up, bytes: the sending thread ran too late, a
	// socket stayed full, or its stream was over.
	shortfall atomic.Int64
	primed    atomic.Int64 // payload from before the schedule began, bytes
	lateness  atomic.Int64 // of the latest burst against the schedule, ns
	broken    atomic.Int64
	open      atomic.Bool // the windows of all streams, on the side that sends

	connect, firstByte Delays // written by Start, before anyone reads

	mu       sync.Mutex
	firstErr string  // guarded by mu
	marks    []int64 // guarded by mu: each stream's bytes at the last Mark
}

func newRun(id RunID, cfg Config) *run {
	r := &run{id: id, cfg: cfg, sends: cfg.Direction == result.Up, streams: make([]stream, cfg.Streams)}
	for i := range r.streams {
		r.streams[i].fd, r.streams[i].index = -1, i
	}
	return r
}

// end takes a stream out of the run, and counts it as broken when there is an error.
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

// Closing more than closeGroup streams is paced: each sends a packet and is answered
// by two, and no queue holds the packets of ten thousand streams.
const (
	closeGroup = 250
	closePause = 5 * time.Millisecond
)

// closeSockets closes all open sockets. Called only when no thread uses the run any more.
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

// watchStreams prepares a thread that watches all streams of a generator: stream i under id i+1.
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

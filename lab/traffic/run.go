package traffic

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Stats are the counters of one run on one side, all since its start. Rates over
// a window are differences of two Stats divided by the difference of ElapsedNs.
type Stats struct {
	Start     time.Time `json:"start"`      // UTC, when the last stream was accepted; zero before
	ElapsedNs int64     `json:"elapsed_ns"` // monotonic, from Start to this reading
	Streams   int       `json:"streams"`    // accepted so far

	SentBytes     int64 `json:"sent_bytes"`     // payload the kernel took from this side
	PrimedBytes   int64 `json:"primed_bytes"`   // part of SentBytes from before the schedule began
	ReceivedBytes int64 `json:"received_bytes"` // payload this side took from the kernel
	Bursts        int64 `json:"bursts"`         // bursts the schedule called for and this side tried

	Datagrams Datagrams `json:"datagrams,omitzero"` // of UDP

	// ShortfallBytes is payload of the schedule that was given up: the sending
	// thread ran too late, a socket stayed full, or its stream was over.
	ShortfallBytes int64 `json:"shortfall_bytes"`
	MaxLatenessNs  int64 `json:"max_lateness_ns"` // latest burst against the schedule

	// Open is that the windows of all streams that send from here are open; from then
	// on the schedule is followed. True on the side that receives.
	Open bool `json:"open"`

	// Connect is from making a stream's socket to its connection, FirstByte from then, when
	// it speaks, to the first byte of the server's answer. Generators only.
	Connect   Delays `json:"connect_us"`
	FirstByte Delays `json:"first_byte_us"`

	// Shares are since the last Mark; none before, and none on the side that sends.
	Shares Shares `json:"shares"`

	Broken     int    `json:"broken"`                // streams that ended by an error
	FirstError string `json:"first_error,omitempty"` // of the first of them

	CPUNs   int64       `json:"cpu_ns"`  // on-CPU time of the threads below together
	Threads []ThreadCPU `json:"threads"` // this side's own threads
}

// ThreadCPU is the on-CPU time of one thread since it began, nanoseconds.
type ThreadCPU struct {
	Name  string `json:"name"` // "send", "receive"; on a server "send 1" and on
	CPUNs int64  `json:"cpu_ns"`
}

func (s *Stats) addThread(name string, c *socket.Clock) {
	ns := c.Read()
	s.CPUNs += ns
	s.Threads = append(s.Threads, ThreadCPU{Name: name, CPUNs: ns})
}

// States of a stream. It leaves streamOpen once.
const (
	streamOpen int32 = iota
	streamEnded
	streamBroken
)

// stream is one TCP connection of a run, or one client's datagrams. fd is set before
// the threads that use it start and closed after they have ended, so that no thread
// ever writes into a descriptor number that meanwhile belongs to another file. A
// server of datagrams has one socket for all, and none here.
type stream struct {
	fd    int
	index int
	bytes atomic.Int64 // payload in the run's direction, this side
	state atomic.Int32
	debt  int // bytes owed by the schedule that the socket did not take; the pacer's

	// Of UDP. next is the number of the next datagram to send, or one more than the
	// highest that came.
	next, datagrams, reordered atomic.Int64
}

// run is the state that the generator's and the server's side of a run share.
type run struct {
	id      RunID
	cfg     Config
	sends   bool // this side carries payload out
	streams []stream

	accepted  atomic.Int64
	startedAt atomic.Pointer[time.Time]
	endedNs   atomic.Int64 // elapsed ns when the run ended, 0 while it goes on
	bursts    atomic.Int64
	shortfall atomic.Int64
	primed    atomic.Int64
	lateness  atomic.Int64
	broken    atomic.Int64
	open      atomic.Bool // the windows of all streams, on the side that sends

	connect, firstByte Delays // written before anyone reads: by Start

	mu       sync.Mutex
	firstErr error   // guarded by mu
	marks    []int64 // guarded by mu: each stream's bytes when it was marked
}

func newRun(id RunID, cfg Config) *run {
	r := &run{id: id, cfg: cfg, sends: cfg.Direction == Up, streams: make([]stream, cfg.Streams)}
	for i := range r.streams {
		r.streams[i].fd, r.streams[i].index = -1, i
	}
	return r
}

// begin marks the moment from which the run is counted.
func (r *run) begin() {
	now := time.Now()
	r.startedAt.Store(&now)
}

// finish stops the run's clock, so that Stats read later still give its rate.
func (r *run) finish() {
	if start := r.startedAt.Load(); start != nil {
		r.endedNs.CompareAndSwap(0, max(1, int64(time.Since(*start))))
	}
}

// end takes a stream out of the run without blame. It reports whether the
// stream was still open.
func (r *run) end(st *stream) bool { return st.state.CompareAndSwap(streamOpen, streamEnded) }

// fail takes a stream out of the run and counts it as broken.
func (r *run) fail(st *stream, err error) bool {
	if !st.state.CompareAndSwap(streamOpen, streamBroken) {
		return false
	}
	r.broken.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.firstErr == nil {
		r.firstErr = err
	}
	return true
}

func (r *run) fill(s *Stats) {
	if start := r.startedAt.Load(); start != nil {
		s.Start = start.UTC()
		s.ElapsedNs = r.endedNs.Load()
		if s.ElapsedNs == 0 {
			s.ElapsedNs = int64(time.Since(*start))
		}
	}
	s.Streams = int(r.accepted.Load())
	s.Open = !r.sends || r.open.Load()
	s.Connect, s.FirstByte = r.connect, r.firstByte
	s.Bursts, s.ShortfallBytes, s.PrimedBytes = r.bursts.Load(), r.shortfall.Load(), r.primed.Load()
	s.MaxLatenessNs, s.Broken = r.lateness.Load(), int(r.broken.Load())
	total := int64(0)
	for i := range r.streams {
		if r.cfg.UDP {
			s.Datagrams = s.Datagrams.Add(r.streams[i].counted(r.sends))
		}
		total += r.streams[i].bytes.Load()
	}
	if r.sends {
		s.SentBytes = total
	} else {
		s.ReceivedBytes = total
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Shares = r.shares()
	if r.firstErr != nil {
		s.FirstError = r.firstErr.Error()
	}
}

// Closing more than closeGroup streams is paced: each sends a packet and is answered
// by two, and ten thousand of these at once are a storm that no queue holds.
const (
	closeGroup = 250
	closePause = 5 * time.Millisecond
)

// closeSockets closes what is open. Only when no thread uses the run any more.
func (r *run) closeSockets() error {
	var errs []error
	closed := 0
	for i := range r.streams {
		st := &r.streams[i]
		if st.fd < 0 {
			continue
		}
		if closed > 0 && closed%closeGroup == 0 {
			time.Sleep(closePause)
		}
		errs = append(errs, unix.Close(st.fd))
		st.fd = -1
		closed++
	}
	return errors.Join(errs...)
}

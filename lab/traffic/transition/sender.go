package transition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// magic begins each probe's payload: see tap.bpf.c.
const magic = 0x47575452

// stampWait bounds the wait for a probe's stamps before the next is due.
const stampWait = 2 * time.Millisecond

// Sending is a sender's report on a run.
type Sending struct {
	Probes []Sent `json:"probes"` // by number, from 1
	Resent int    `json:"resent"` // segments of the connection that were sent again
	// ClockErrorNs is the uncertainty of the kernel's stamps relative to the other times. ClockStepNs is how far they
	// moved during the run because somebody set the machine's clock.
	ClockErrorNs int64 `json:"clock_error_ns"`
	ClockStepNs  int64 `json:"clock_step_ns,omitempty"`
	WaitNs       int64 `json:"wait_ns"` // run-queue wait of the sender's thread
}

// Send sends a run of probes from the calling thread's network namespace, and returns when all are sent or ctx has
// ended. The calling goroutine should be locked to its thread.
func Send(ctx context.Context, r Run) (Sending, error) {
	if err := r.check(); err != nil {
		return Sending{}, err
	}
	s := &sender{Run: r, probes: make([]Sent, 0, r.Count), random: rand.New(rand.NewPCG(r.Seed, uint64(r.Number)))}
	if err := s.connect(ctx); err != nil {
		return Sending{}, fmt.Errorf("sending probes to %s: %w", r.To, err)
	}
	defer unix.Close(s.fd)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	s.clocks = relateClocks()
	before := runQueueWait()
	if err := s.send(ctx); err != nil {
		return Sending{}, fmt.Errorf("sending probes to %s: %w", r.To, err)
	}
	out := Sending{Probes: s.probes, Resent: s.retransmits, ClockErrorNs: s.clocks.errorNs,
		WaitNs: runQueueWait() - before}
	if now := relateClocks(); abs(now.offsetNs-s.clocks.offsetNs) > now.errorNs+s.clocks.errorNs {
		out.ClockStepNs = now.offsetNs - s.clocks.offsetNs
	}
	return out, nil
}

type sender struct {
	Run
	fd          int
	probes      []Sent
	retransmits int // segments sent again
	random      *rand.Rand
	clocks      clocks
}

// connect opens the connection. Its congestion control has no pacing of its own, which would hold probes back. Stamps
// are numbered by bytes from the first not acknowledged when they are switched on, which is the first sent: nothing has
// been sent by then.
func (s *sender) connect(ctx context.Context) (err error) {
	if s.fd, err = socket.New(unix.SOCK_STREAM, s.To.Addr()); err != nil {
		return err
	}
	const stamps = unix.SOF_TIMESTAMPING_TX_SCHED | unix.SOF_TIMESTAMPING_TX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE |
		unix.SOF_TIMESTAMPING_OPT_ID | unix.SOF_TIMESTAMPING_OPT_TSONLY
	err = errors.Join(
		unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptString(s.fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno"),
	)
	if err == nil && s.From.IsValid() {
		err = unix.Bind(s.fd, socket.Addr(anyPort(s.From)))
	}
	if err == nil {
		err = dial(ctx, s.fd, socket.Addr(s.To))
	}
	if err == nil {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stamps)
	}
	if err != nil {
		unix.Close(s.fd)
	}
	return err
}

// connectWait bounds the wait for a connection.
const connectWait = 5 * time.Second

// dial connects a socket that does not block.
func dial(ctx context.Context, fd int, to unix.Sockaddr) error {
	if err := unix.Connect(fd, to); err == nil || !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	for end := time.Now().Add(connectWait); time.Now().Before(end); {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if socket.Sleep(&unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}, 10*time.Millisecond) {
			errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err == nil && errno != 0 {
				err = unix.Errno(errno)
			}
			return err
		}
	}
	return fmt.Errorf("no connection within %s", connectWait)
}

// send sends probe by probe.
func (s *sender) send(ctx context.Context) error {
	payload := make([]byte, s.Bytes)
	binary.BigEndian.PutUint32(payload, magic)
	binary.BigEndian.PutUint32(payload[4:], s.Number)
	binary.BigEndian.PutUint32(payload[12:], uint32(s.Bytes))
	resent, err := s.resent()
	if err != nil {
		return err
	}
	due := monotonic()
	for n := 1; n <= s.Count; n++ {
		due = max(due, monotonic()) + int64(float64(s.Gap)*(0.75+s.random.Float64()/2))
		for now := monotonic(); now < due && ctx.Err() == nil; now = monotonic() {
			sleepNs(due - now)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		binary.BigEndian.PutUint32(payload[8:], uint32(n))
		p := Sent{DueNs: due, WriteNs: monotonic()}
		sent, err := socket.SendSome(s.fd, payload)
		if err != nil {
			return err
		}
		if sent != len(payload) {
			return fmt.Errorf("probe %d did not fit into the socket: the receiver has stopped, or nothing reaches it", n)
		}
		s.probes = append(s.probes, p)
		if err := s.stamp(stampWait); err != nil {
			return err
		}
		now, err := s.resent()
		if err != nil {
			return err
		}
		if resent != now { // this probe was sent again, or an earlier one whose acknowledgement was late
			s.noteRetransmits(now - resent)
			resent = now
		}
	}
	return s.awaitAcks(ctx, resent)
}

// noteRetransmits notes segments that were sent again at all probes that may not have been acknowledged: the last few.
func (s *sender) noteRetransmits(n int) {
	const unsure = 3
	s.retransmits += n
	for i := max(0, len(s.probes)-unsure); i < len(s.probes); i++ {
		s.probes[i].Resent += n
	}
}

// ackTimeout bounds the wait for the acknowledgement of the last probe.
const ackTimeout = time.Second

// awaitAcks waits until all probes are acknowledged, and notes those that were sent again meanwhile.
func (s *sender) awaitAcks(ctx context.Context, resent int) error {
	for end := time.Now().Add(ackTimeout); time.Now().Before(end) && ctx.Err() == nil; sleepNs(int64(time.Millisecond)) {
		unacked, err := unix.IoctlGetInt(s.fd, unix.SIOCOUTQ)
		if err != nil {
			return err
		}
		if unacked == 0 {
			break
		}
	}
	now, err := s.resent()
	if now != resent {
		s.noteRetransmits(now - resent)
	}
	return errors.Join(err, s.stamp(stampWait))
}

// resent returns the number of segments that the connection has retransmitted so far.
func (s *sender) resent() (int, error) {
	info, err := unix.GetsockoptTCPInfo(s.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0, fmt.Errorf("asking for the connection's counts: %w", err)
	}
	return int(info.Total_retrans), nil
}

// stamp reads the kernel's stamps until the last probe has all of its stamps, or the time wait is over. A probe that is
// held up gets its stamps at a later call.
func (s *sender) stamp(wait time.Duration) error {
	var buf [512]byte
	last := &s.probes[len(s.probes)-1]
	for end := monotonic() + int64(wait); last.LeftNs == 0; {
		control, err := receiveError(s.fd, buf[:])
		if errors.Is(err, unix.EAGAIN) {
			left := end - monotonic()
			if left <= 0 {
				return nil
			}
			socket.Sleep(&unix.PollFd{Fd: int32(s.fd)}, time.Duration(left)) // for POLLERR, which needs no asking
			continue
		}
		if err != nil {
			return fmt.Errorf("reading the kernel's stamps: %w", err)
		}
		s.addStamp(parseStamp(control))
	}
	return nil
}

// addStamp enters a stamp at its probe, whose last byte has that number in the stream.
func (s *sender) addStamp(stamp unix.Timespec, kind int, id uint32) {
	i := int(id) / s.Bytes
	if i >= len(s.probes) || int(id)%s.Bytes != s.Bytes-1 {
		return
	}
	switch p := &s.probes[i]; {
	case kind == unix.SCM_TSTAMP_SCHED && p.QueuedNs == 0:
		p.QueuedNs = s.clocks.toMonotonic(stamp)
	case kind == unix.SCM_TSTAMP_SND && p.LeftNs == 0:
		p.LeftNs = s.clocks.toMonotonic(stamp)
	}
}

// sleepNs sleeps for some ns, or less. As in socket.Sleep the call is not told to Go's scheduler, so it is short.
func sleepNs(ns int64) {
	ts := unix.NsecToTimespec(min(ns, int64(5*time.Millisecond)))
	unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

func abs(n int64) int64 { return max(n, -n) }

package transition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Receiver takes probes of one run after the other until Close.
type Receiver struct {
	listener int
	stop     context.CancelFunc
	ended    chan struct{}

	mu  sync.Mutex // guards the fields below
	got map[uint32]*Receiving
}

// Receive listens in the calling thread's network namespace. The thread that reads runs setup first, which may
// bind it to CPUs.
func Receive(ctx context.Context, addr netip.AddrPort, setup func() error) (*Receiver, error) {
	r := &Receiver{ended: make(chan struct{}), got: map[uint32]*Receiving{}}
	fd, err := socket.New(unix.SOCK_STREAM, addr.Addr())
	if err == nil {
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.Bind(fd, socket.Addr(addr)), unix.Listen(fd, 16))
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, fmt.Errorf("receiving probes at %s: %w", addr, err)
	}
	r.listener = fd
	ctx, r.stop = context.WithCancel(ctx)
	ready := make(chan error)
	go r.loop(ctx, setup, ready)
	if err := <-ready; err != nil {
		r.Close()
		return nil, fmt.Errorf("receiving probes at %s: %w", addr, err)
	}
	return r, nil
}

// Close ends the receiver. It may be called twice.
func (r *Receiver) Close() {
	r.stop()
	<-r.ended
}

// Receiving is a receiver's report on a run.
type Receiving struct {
	Probes []Received `json:"probes"`
	WaitNs int64      `json:"wait_ns"` // run-queue wait of the receiver's thread
	Over   bool       `json:"over"`    // the connection has ended: no further probes come
}

// Take returns the probes of a run that were read so far. It forgets the run when it is over.
func (r *Receiver) Take(run uint32) Receiving {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.got[run]
	if at == nil {
		return Receiving{}
	}
	if at.Over {
		delete(r.got, run)
	}
	return Receiving{slices.Clone(at.Probes), at.WaitNs, at.Over}
}

// addRead adds the probes that a read has completed.
func (r *Receiver) addRead(run uint32, list []Received, waitNs int64, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.got[run]
	if at == nil {
		at = &Receiving{}
		r.got[run] = at
	}
	at.Probes, at.WaitNs, at.Over = append(at.Probes, list...), waitNs, over
}

// loop takes one connection after the other.
func (r *Receiver) loop(ctx context.Context, setup func() error, ready chan<- error) {
	defer close(r.ended)
	runtime.LockOSThread() // never unlocked: it may be bound to CPUs
	defer unix.Close(r.listener)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	err := setup()
	ready <- err
	for err == nil && ctx.Err() == nil {
		if !socket.Sleep(&unix.PollFd{Fd: int32(r.listener), Events: unix.POLLIN}, patience) {
			continue
		}
		fd, _, failed := unix.Accept4(r.listener, unix.SOCK_CLOEXEC)
		if failed == nil {
			r.read(ctx, fd)
			unix.Close(fd)
		}
	}
}

// patience is the longest time that one call waits. After that the thread checks whether it must end.
const patience = 10_000_000 // ns

// read reads a connection to its end. Its calls block, as a program's do that waits for data; they are not told to Go's
// scheduler, which would take time to give the thread its processor back.
func (r *Receiver) read(ctx context.Context, fd int) {
	wait := unix.NsecToTimeval(patience)
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait) != nil {
		return // its probes count as lost
	}
	c, before := connection{}, runQueueWait()
	for data := make([]byte, 2*MaxBytes); ctx.Err() == nil; {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)))
		now := monotonic()
		switch {
		case errno == unix.EAGAIN, errno == unix.EINTR:
			continue
		case errno != 0 || n == 0:
			r.addRead(c.run, nil, runQueueWait()-before, true)
			return
		}
		run, list := c.completeProbes(data[:n], now)
		r.addRead(run, list, runQueueWait()-before, false)
	}
}

// connection puts the probes of a stream of bytes together.
type connection struct {
	run     uint32
	bytes   int // of each probe
	pending []byte
}

// head is the beginning of each probe: magic, run, number, bytes.
const head = 16

// completeProbes returns the probes that a read has completed.
func (c *connection) completeProbes(data []byte, readNs int64) (run uint32, list []Received) {
	c.pending = append(c.pending, data...)
	for len(c.pending) >= head {
		if binary.BigEndian.Uint32(c.pending) != magic {
			c.pending = nil // the stream is not that of a sender of probes
			break
		}
		c.run, c.bytes = binary.BigEndian.Uint32(c.pending[4:]), int(binary.BigEndian.Uint32(c.pending[12:]))
		if c.bytes < head || len(c.pending) < c.bytes {
			break
		}
		list = append(list, Received{Number: binary.BigEndian.Uint32(c.pending[8:]), ReadNs: readNs})
		c.pending = c.pending[c.bytes:]
	}
	return c.run, list
}

// Package queue speaks with the kernel's NFQUEUE: packets a rule of netfilter
// queues come to user space, and wait in the kernel for its verdict (linux,
// include/uapi/linux/netfilter/nfnetlink_queue.h).
//
// It fails closed. A queue nobody has opened drops its packets, and so do one that
// is full and one whose reader ends, with all that wait in it: the kernel is never
// told to let packets pass instead.
package queue

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Config is how packets of a queue come.
type Config struct {
	Number uint16
	// CopyBytes is how much of each packet is copied, from its IP header on; 0: all.
	CopyBytes uint32
	// Packets bounds those that wait for a verdict; 0 is the kernel's 1024.
	Packets uint32
	// Buffer is the socket's receive buffer, bytes; 0 has room for Packets whole ones.
	Buffer int
	// GSO takes aggregated packets as they are; otherwise the kernel cuts them up
	// first and computes the checksums the hardware would.
	GSO bool
	// Batch is how many packets one system call reads at most. With 1, each verdict
	// has a system call of its own as well; 0 is 1.
	Batch int
}

// Queue is an open queue.
type Queue struct {
	cfg     Config
	fd      int
	closing atomic.Bool
	close   sync.Once
	running sync.Mutex    // held by Run
	turns   atomic.Uint64 // odd: packets are being judged
	held    atomic.Int64  // packets that were held and have no verdict yet
	err     error         // of closing

	mu     sync.Mutex
	closed bool // guarded by mu: fd is no longer the queue's
}

// Judge decides what becomes of packets: it fills in a verdict for each. The packets'
// bytes are its own until the next ones come.
type Judge func(packets []Packet, verdicts []Verdict)

// Open binds a queue to a new socket. Packets wait from then on, until Run judges
// them. It fails where another process has the queue, or without CAP_NET_ADMIN.
func Open(cfg Config) (*Queue, error) {
	if cfg.Batch == 0 {
		cfg.Batch = 1
	}
	if cfg.CopyBytes == 0 || cfg.CopyBytes > maxCopy {
		cfg.CopyBytes = maxCopy
	}
	if cfg.Packets == 0 {
		cfg.Packets = 1024
	}
	if cfg.Buffer == 0 {
		cfg.Buffer = int(cfg.Packets) * bookkept(cfg.CopyBytes)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("opening queue %d: making its socket: %w", cfg.Number, err)
	}
	q := &Queue{cfg: cfg, fd: fd}
	if err := q.bind(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening queue %d: %w", cfg.Number, err), unix.Close(fd))
	}
	return q, nil
}

// bookkept is what a packet takes of a receive buffer: the kernel counts whole
// buffers, of which one for headers comes with each.
func bookkept(copyBytes uint32) int { return 2048 + int(min(copyBytes, 2048)) }

// bind makes the socket the queue's and sets the queue up, each step confirmed.
func (q *Queue) bind() error {
	if err := unix.Bind(q.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("binding its socket: %w", err)
	}
	if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, q.cfg.Buffer); err != nil {
		return fmt.Errorf("setting its receive buffer: %w", err)
	}
	// What finds no room is dropped and counted by the kernel either way. Without
	// this the socket would take nothing more until it has been read empty.
	if err := unix.SetsockoptInt(q.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return fmt.Errorf("setting up its socket: %w", err)
	}
	for _, step := range []struct {
		what string
		msg  []byte
	}{
		{"binding", bindMessage(q.cfg.Number)},
		{"setting its length", lengthMessage(q.cfg.Number, q.cfg.Packets)},
		{"setting its flags", flagsMessage(q.cfg.Number, q.cfg.GSO)},
		{"setting what is copied", copyMessage(q.cfg.Number, q.cfg.CopyBytes)}, // the kernel drops packets until then
	} {
		if err := q.confirmed(step.msg); err != nil {
			if errors.Is(err, unix.EPERM) {
				err = fmt.Errorf("another process has it, or CAP_NET_ADMIN is missing: %w", err)
			}
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return nil
}

// confirmed sends a message and waits for the kernel's word on it. Packets that
// come before, by the rules of a predecessor, are dropped.
func (q *Queue) confirmed(msg []byte) error {
	if err := unix.Sendto(q.fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, attributes+int(q.cfg.CopyBytes))
	for {
		n, _, err := unix.Recvfrom(q.fd, b, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if err, is := answer(b[:n]); is {
			return err
		}
		var p Packet
		if p.decode(b[:n]) == nil {
			err = unix.Sendto(q.fd, appendVerdict(nil, q.cfg.Number, typeVerdict, p.ID, Verdict{}), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		}
		if err != nil {
			return err
		}
	}
}

// Settle waits until packets that are being judged have their verdicts. Those that
// come later are judged by what the caller did before.
func (q *Queue) Settle() {
	turn := q.turns.Load()
	for turn%2 == 1 && q.turns.Load() == turn {
		time.Sleep(10 * time.Microsecond)
	}
}

// Hold has a packet that is being judged wait on when it gets the verdict Held. What it
// returns gives the packet its verdict, from any goroutine, and is to be called once;
// after Close, which drops it, that does nothing. While packets are held each of the
// others takes a message of its own. The kernel counts them as waiting.
func (q *Queue) Hold(id uint32) (release func(Verdict)) {
	q.held.Add(1)
	return func(v Verdict) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.closed {
			// Where this fails, the packet's interface went down, and it with that.
			unix.Sendto(q.fd, appendVerdict(nil, q.cfg.Number, typeVerdict, id, v), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		}
		q.held.Add(-1)
	}
}

// Close ends Run, waits for it and lets go of the queue: what waits in it is
// dropped, and so is all that comes. Twice is the same as once.
func (q *Queue) Close() error {
	q.close.Do(func() {
		q.closing.Store(true)
		// The answer to this wakes Run, wherever it waits.
		wake := unix.Sendto(q.fd, unbindMessage(q.cfg.Number), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		q.running.Lock()
		defer q.running.Unlock()
		q.mu.Lock()
		defer q.mu.Unlock()
		q.closed = true
		if err := errors.Join(wake, unix.Close(q.fd)); err != nil {
			q.err = fmt.Errorf("closing queue %d: %w", q.cfg.Number, err)
		}
	})
	return q.err
}

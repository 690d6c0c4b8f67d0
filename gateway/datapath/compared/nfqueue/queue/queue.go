// Package queue implements user space's side of NFQUEUE: packets that a netfilter rule queues are delivered to user
// space, and wait in the kernel for a verdict (linux, include/uapi/linux/netfilter/nfnetlink_queue.h).
//
// It fails closed. A queue without a reader drops its packets, and so does a full one. When a reader ends, its waiting
// packets are dropped. The option to accept packets instead is never used.
package queue

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Config is the configuration of a queue.
type Config struct {
	Number uint16
	// CopyBytes is how much of each packet is copied, from its IP header on; 0: all.
	CopyBytes uint32
	// Packets bounds the waiting packets; 0 is the kernel's 1024.
	Packets uint32
	// Buffer is the socket's receive buffer, bytes; 0 holds Packets whole packets.
	Buffer int
	// GSO delivers aggregated packets as they are; otherwise the kernel splits them first and computes the checksums.
	GSO bool
	// Batch is the largest number of packets that one system call reads. With 1, each verdict has its own system call as
	// well; 0 is 1.
	Batch int
}

// Queue is an open queue.
type Queue struct {
	cfg        Config
	fd         int
	closing    atomic.Bool
	close      sync.Once
	running    sync.Mutex    // held by Run
	batches    atomic.Uint64 // odd: packets are being judged
	unanswered atomic.Int64  // held packets without a verdict
	err        error         // of closing

	mu     sync.Mutex
	closed bool // guarded by mu: fd is no longer the queue's
}

// Judge fills in a verdict for each packet. It may use the packets' bytes until the next ones arrive.
type Judge func(packets []Packet, verdicts []Verdict)

// Open binds a queue to a new socket. Packets wait from then on, until Run judges them. It fails if another process has
// the queue, or without CAP_NET_ADMIN.
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

// bookkept is how many bytes of a receive buffer a packet uses: the kernel counts whole buffers, and each packet has
// one for headers.
func bookkept(copyBytes uint32) int { return 2048 + int(min(copyBytes, 2048)) }

// bind binds the socket to the queue and configures the queue, each step confirmed.
func (q *Queue) bind() error {
	if err := unix.Bind(q.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("binding its socket: %w", err)
	}
	if err := unix.SetsockoptInt(q.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, q.cfg.Buffer); err != nil {
		return fmt.Errorf("setting its receive buffer: %w", err)
	}
	// Packets that do not fit are dropped and counted by the kernel either way. Without this option the socket would
	// accept nothing more until it has been read empty.
	if err := unix.SetsockoptInt(q.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1); err != nil {
		return fmt.Errorf("setting up its socket: %w", err)
	}
	for _, step := range []struct {
		subject string
		msg     []byte
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
			return fmt.Errorf("%s: %w", step.subject, err)
		}
	}
	return nil
}

// confirmed sends a message and waits for the kernel's answer. Packets that arrive before it, by a former daemon's
// rules, are dropped.
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
		if err, found := answer(b[:n]); found {
			return err
		}
		var p Packet
		if p.decode(b[:n]) == nil {
			err = unix.Sendto(q.fd, appendVerdict(nil, q.cfg.Number, typeVerdict, p.ID, Verdict{}), 0, &unix.SockaddrNetlink{
				Family: unix.AF_NETLINK})
		}
		if err != nil {
			return err
		}
	}
}

// AwaitVerdicts waits until packets that are being judged have their verdicts. Packets after that are judged by changes
// that the caller made before the call.
func (q *Queue) AwaitVerdicts() {
	turn := q.batches.Load()
	for turn%2 == 1 && q.batches.Load() == turn {
		time.Sleep(10 * time.Microsecond)
	}
}

// Hold keeps a packet that is being judged waiting after the verdict Held. The returned function gives the packet its
// verdict, from any goroutine, and is to be called once; after Close, which drops the packet, it does nothing. While
// packets are held, each other verdict takes a message of its own. The kernel counts held packets as waiting.
func (q *Queue) Hold(id uint32) (release func(Verdict)) {
	q.unanswered.Add(1)
	return func(v Verdict) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.closed {
			// An error means that the packet was dropped because its interface went down.
			unix.Sendto(q.fd, appendVerdict(nil, q.cfg.Number, typeVerdict, id, v), 0,
				&unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		}
		q.unanswered.Add(-1)
	}
}

// Close ends Run, waits for it and closes the queue: waiting and later packets are dropped. It may be called twice.
func (q *Queue) Close() error {
	q.close.Do(func() {
		q.closing.Store(true)
		// The answer to this message wakes Run.
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

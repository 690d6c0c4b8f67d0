package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// NewSocket returns a non-blocking TCP socket for the family of remote in the
// calling thread's network namespace, ready to bind and connect, its congestion
// control ("" is cubic) and receive window set. The namespace sticks to the socket: it may then be
// connected from any thread.
func NewSocket(remote netip.Addr, congestion string) (fd int, err error) {
	congestion = cmp.Or(congestion, "cubic")
	fd, err = unix.Socket(socket.Family(remote), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("creating a TCP socket: %w", err)
	}
	setWindow(fd)
	if err := setCongestion(fd, congestion); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// NewDatagramSocket returns a non-blocking UDP socket for the family of remote in the
// calling thread's network namespace, ready to bind and connect (see Connect). It sends
// no datagram that would be cut into fragments: those are another load.
func NewDatagramSocket(remote netip.Addr) (fd int, err error) {
	fd, err = unix.Socket(socket.Family(remote), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("creating a UDP socket: %w", err)
	}
	if socket.Family(remote) == unix.AF_INET {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	} else {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("refusing fragments: %w", err)
	}
	return fd, nil
}

// Buffers of UDP sockets, as the kernel counts them: a datagram of 1472 bytes takes
// 2304 or more.
const (
	overheadFactor = 4
	serverBuffer   = 256 << 20 // bytes; 100 ms of 5 Gbit/s
)

// prepareDatagrams readies a client's socket for its stream, either way.
func prepareDatagrams(fd int, cfg Config) {
	most := overheadFactor * cfg.bufferBytes()
	setBuffers(fd, most, most)
}

// setBuffers is best effort: without the right to exceed the limits of the system it
// takes what they leave.
func setBuffers(fd, send, receive int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, send) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, send)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receive) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receive)
	}
}

// setWindow makes a socket offer a large window, before it connects or listens.
// A sender never puts more than half of the largest window it was offered into
// one buffer (tcp_bound_to_half_wnd, include/net/tcp.h): the kernel's initial
// 64 KB would cut bursts of 44 segments in two until its own tuning has caught
// up, which takes a different time in each run. Best effort: the unprivileged
// limit, rmem_max, still holds three such bursts by default.
func setWindow(fd int) {
	const window = 4 << 20 // 10 ms of 3.3 Gbit/s on one stream
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, window) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, window)
	}
}

// Connect binds fd to local unless that is the zero address, and connects it.
// Non-blocking sockets only. On error the caller still owns fd.
func Connect(ctx context.Context, fd int, local netip.Addr, remote netip.AddrPort) error {
	if local.IsValid() {
		// Without this a bound socket takes its port now, from the host's one
		// range, and 28,000 connections use it up; with it, one per remote.
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		if err := unix.Bind(fd, socket.Addr(netip.AddrPortFrom(local, 0))); err != nil {
			return fmt.Errorf("binding to %s: %w", local, err)
		}
	}
	err := unix.Connect(fd, socket.Addr(remote))
	if err == unix.EINPROGRESS || err == unix.EINTR {
		err = await(ctx, fd, unix.POLLOUT)
		if err == nil {
			err = socketError(fd)
		}
	}
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", remote, err)
	}
	return nil
}

// Listen returns a non-blocking listening TCP socket for Serve, in the calling
// thread's network namespace. Port 0 takes any.
func Listen(addr netip.AddrPort) (fd int, err error) {
	fd, err = NewSocket(addr.Addr(), "")
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err = unix.Bind(fd, socket.Addr(addr)); err == nil {
		err = unix.Listen(fd, MaxStreams) // the kernel cuts it to somaxconn
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listening on %s: %w", addr, err)
	}
	return fd, nil
}

// prepareSender readies a connected socket to send bursts of cfg.
func prepareSender(fd int, cfg Config) error {
	now, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	if err != nil {
		return fmt.Errorf("reading the congestion control: %w", err)
	}
	if now != cfg.Congestion {
		// bbr switches the socket's own pacing on when the connection is
		// established, and nothing switches it off again (tcp_bbr.c, bbr_init).
		if now == "bbr" {
			return fmt.Errorf("socket was connected under bbr, which keeps pacing it: set %s before connecting (NewSocket does)", cfg.Congestion)
		}
		if err := setCongestion(fd, cfg.Congestion); err != nil {
			return err
		}
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("switching Nagle off: %w", err)
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, cfg.bufferBytes()) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, cfg.bufferBytes()); err != nil {
		return fmt.Errorf("setting the send buffer: %w", err)
	}
	return nil
}

// prepareReceiver asks to be woken once a burst, not once a packet. The kernel
// wakes earlier when the window is about to close or the stream ends.
func prepareReceiver(fd int, cfg Config) error {
	const most = 256 << 10
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, min(cfg.burstBytes(), most))
	if err != nil {
		return fmt.Errorf("setting the receive low-water mark: %w", err)
	}
	return nil
}

func setCongestion(fd int, name string) error {
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
		return fmt.Errorf("setting congestion control %s (see net.ipv4.tcp_available_congestion_control): %w", name, err)
	}
	return nil
}

// discardRegion is 64 MiB of addresses without memory behind them. With
// MSG_TRUNC TCP drops what it would copy (tcp(7)), so nothing is ever written
// there; a kernel that did write would get EFAULT, not our memory.
var discardRegion = sync.OnceValues(func() ([]byte, error) {
	return unix.Mmap(-1, 0, 64<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
})

// discardSome takes all that waits in the socket without copying it, and
// returns the number of bytes; io.EOF at the end of the stream, EAGAIN when
// there was nothing.
func discardSome(fd int) (int, error) {
	region, err := discardRegion()
	if err != nil {
		return 0, fmt.Errorf("reserving addresses: %w", err)
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(region))),
			uintptr(len(region)), unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		return int(n), nil
	}
}

// errTimeout is the end of a wait that nothing answered.
var errTimeout = errors.New("no answer")

// handshakeTimeout bounds one wait while a stream is set up: what is lost is sent again
// after 1, 3, 7 and 15 s, and of the streams of 65,000 clients on a busy machine one
// is lost three times over. The caller of a run has a limit of its own, its context.
const handshakeTimeout = 20 * time.Second

// await blocks until fd is ready. Returns ctx's error or errTimeout otherwise.
func await(ctx context.Context, fd int, events int16) error {
	err := awaitUntil(ctx, fd, events, time.Now().Add(handshakeTimeout))
	if errors.Is(err, errTimeout) {
		return fmt.Errorf("%w in %s", err, handshakeTimeout)
	}
	return err
}

// awaitUntil is await with a deadline of the caller's.
func awaitUntil(ctx context.Context, fd int, events int16, deadline time.Time) error {
	const slice = 100 * time.Millisecond // between looks at ctx
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		left := min(slice, time.Until(deadline))
		n, err := unix.Poll(fds, max(1, int(left.Milliseconds())))
		switch {
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return err
		case time.Now().After(deadline):
			return errTimeout
		}
	}
}

// socketError takes the result of a connect out of the socket.
func socketError(fd int) error {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = syscall.Errno(code)
	}
	return err
}

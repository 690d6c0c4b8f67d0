package traffic

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// NewSocket returns a non-blocking TCP or UDP socket for the family of remote in the
// calling thread's network namespace, which it keeps: any thread may connect it (see
// Connect). A TCP socket has its receive window and congestion control, and connections
// accepted from it inherit them: a connection established under bbr would keep pacing
// whatever is set later (tcp_bbr.c, bbr_init).
func NewSocket(remote netip.Addr, udp bool) (fd int, err error) {
	if udp {
		return socket.New(unix.SOCK_DGRAM, remote)
	}
	if fd, err = socket.New(unix.SOCK_STREAM, remote); err != nil {
		return -1, err
	}
	// A sender never puts more than half of the largest window it was offered into one
	// buffer (tcp_bound_to_half_wnd, include/net/tcp.h): the kernel's initial 64 KB would
	// cut bursts of 44 segments in two for a while. Best effort: the unprivileged limit,
	// rmem_max, still holds three such bursts by default.
	const window = 4 << 20 // bytes; 10 ms of 3.3 Gbit/s on one stream
	_ = sockbuf.Receive(fd, window)
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf(
			"setting congestion control %s (see net.ipv4.tcp_available_congestion_control): %w", congestion, err)
	}
	return fd, nil
}

// congestion is the congestion control of all streams. bbr would pace by itself and cut
// bursts into small pieces.
const congestion = "cubic"

// Buffers of UDP sockets, as the kernel counts them: a datagram of 1472 bytes takes
// 2304 or more.
const (
	overheadFactor = 4
	serverBuffer   = 256 << 20 // bytes; 100 ms of 5 Gbit/s
)

// prepareDatagrams sets both buffers of a UDP socket, as far as it may.
func prepareDatagrams(fd, bytes int) {
	_ = sockbuf.Send(fd, bytes)
	_ = sockbuf.Receive(fd, bytes)
}

// Connect binds the non-blocking fd to local unless that is the zero address, and connects
// it. On error the caller still owns fd.
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
		if err = awaitEvent(ctx, fd, unix.POLLOUT, handshakeTimeout); err == nil {
			var code int
			if code, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); code != 0 {
				err = unix.Errno(code)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", remote, err)
	}
	return nil
}

// prepareSender sets the options of a connected socket that sends the bursts of cfg.
func prepareSender(fd int, cfg Config) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("switching Nagle off: %w", err)
	}
	return sockbuf.Send(fd, cfg.bufferBytes())
}

// prepareReceiver sets the option of a socket by which the kernel wakes its reader once for each burst, not for each
// packet. The kernel wakes the reader earlier when the window is about to close or the stream ends.
func prepareReceiver(fd int, cfg Config) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, min(cfg.burstBytes(), 256<<10)); err != nil {
		return fmt.Errorf("setting the receive low-water mark: %w", err)
	}
	return nil
}

// handshakeTimeout bounds one wait while a stream is set up: what is lost is sent again
// after 1, 3, 7 and 15 s, and of 65,000 streams on a busy machine one is lost three times.
const handshakeTimeout = 20 * time.Second

// errTimeout is the error of a wait without an answer.
var errTimeout = fmt.Errorf("no answer in %s", handshakeTimeout)

// awaitEvent blocks until fd is ready for events, or ctx ends. After the time within it returns errTimeout.
func awaitEvent(ctx context.Context, fd int, events int16, within time.Duration) error {
	const slice = 100 * time.Millisecond // between looks at ctx
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for until := time.Now().Add(within); ; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		left := min(slice, time.Until(until))
		n, err := unix.Poll(fds, max(1, int(left.Milliseconds())))
		switch {
		case n > 0:
			return nil
		case err != nil && err != unix.EINTR:
			return err
		case time.Now().After(until):
			return errTimeout
		}
	}
}

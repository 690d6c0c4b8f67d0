// The sink of kind "recv".

package sink

import (
	"fmt"
	"math"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// recv reads one frame with each system call.
//
// The kernel puts a reference to each frame into the socket's queue and wakes the thread. recvmsg(2) copies the frame's
// kept bytes and reports a VLAN tag. The queue is limited by the memory of its frames (Config.BufferKiB, 0:
// net.core.rmem_default): their whole buffers count, not only the kept bytes.
type recv struct {
	*packetSocket
	buffer  []byte
	header  unix.Msghdr // recvmsg(2) writes to buffer and control
	vector  unix.Iovec
	control []byte // room for one message with a frame's tpacket_auxdata
}

// auxBytes is the size of struct tpacket_auxdata.
const auxBytes = 20

var _ method = &recv{}

// recvTimeout has recvmsg(2) return when a signal comes: without a timeout the kernel restarts the call.
const recvTimeout = 1 // seconds

// openRecv makes the sink of kind "recv".
func openRecv(cfg Config, target port) (method, error) {
	// A filter with a snap length would hide the frames' length.
	socket, err := openPacket(cfg, target, wholeFrame)
	if err != nil {
		return nil, err
	}
	r := &recv{packetSocket: socket, buffer: make([]byte, wholeFrame), control: make([]byte, unix.CmsgSpace(auxBytes))}
	if cfg.Snap > 0 {
		r.buffer = r.buffer[:cfg.Snap]
	}
	r.vector = unix.Iovec{Base: &r.buffer[0]}
	r.vector.SetLen(len(r.buffer))
	r.header = unix.Msghdr{Iov: &r.vector, Control: &r.control[0]}
	r.header.SetIovlen(1)
	if err := r.prepare(cfg.BufferKiB); err != nil {
		socket.close()
		return nil, err
	}
	return r, nil
}

// prepare sets the socket's options and begins to receive. bufferKiB is Config.BufferKiB.
func (r *recv) prepare(bufferKiB int) error {
	if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return fmt.Errorf("asking for what the kernel keeps beside a frame: %w", err)
	}
	if bufferKiB > 0 {
		if err := r.enlarge(bufferKiB << 10); err != nil {
			return err
		}
	}
	if err := unix.SetsockoptTimeval(
		r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: recvTimeout}); err != nil {
		return fmt.Errorf("limiting how long a frame is waited for: %w", err)
	}
	return r.bind()
}

// enlarge sets the limit of the socket's queue. The kernel doubles the number, because it counts its own structures
// too, and the double must be a number of 31 bits.
func (r *recv) enlarge(bytes int) error {
	if bytes > math.MaxInt32/2 {
		return &configError{fmt.Sprintf("a buffer of %d KiB: a socket's is %d at most", bytes>>10, math.MaxInt32/2>>10)}
	}
	if err := unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes); err != nil {
		return fmt.Errorf("setting the socket's buffer to %d KiB: %w", bytes>>10, err)
	}
	return nil
}

func (r *recv) take(count *counter, stop stopFunc) error {
	for !stop() {
		if err := r.next(count, 0); err != nil {
			return err
		}
	}
	return nil
}

// next reads a frame, if there is one, and counts it by its whole length.
func (r *recv) next(count *counter, flags uintptr) error {
	r.header.SetControllen(len(r.control))
	n, _, errno := unix.RawSyscall(
		unix.SYS_RECVMSG, uintptr(r.fd), uintptr(unsafe.Pointer(&r.header)), flags|unix.MSG_TRUNC)
	switch errno {
	case 0:
		count.frame(r.buffer[:min(int(n), len(r.buffer))], int(n)+tagBytes(r.status()))
		return nil
	case unix.EAGAIN, unix.EINTR, unix.ENETDOWN: // port.watch reports an interface that is down
		return nil
	}
	return fmt.Errorf("receiving a frame: %w", errno)
}

// status returns the status of the last frame read (struct tpacket_auxdata); 0 when the kernel gave none.
func (r *recv) status() uint32 {
	header := (*unix.Cmsghdr)(unsafe.Pointer(&r.control[0]))
	if int(r.header.Controllen) < len(r.control) || header.Level != unix.SOL_PACKET || header.Type != unix.PACKET_AUXDATA {
		return 0
	}
	return *(*uint32)(unsafe.Pointer(&r.control[unix.CmsgLen(0)]))
}

func (r *recv) finish(count *counter, deadline time.Time) (lost, left int64, err error) {
	return r.drain(count, deadline, func() error { return r.next(count, unix.MSG_DONTWAIT) })
}

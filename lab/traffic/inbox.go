package traffic

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

const (
	inboxSize = 64 // datagrams read by one system call: a little more than a burst
	// inboxRounds bounds the calls for one socket, so that the others do not wait too long.
	inboxRounds = 16
)

// inbox receives datagrams, many with one system call, and keeps the first helloSize bytes of each. One thread may use
// it.
type inbox struct {
	calls []unix.Mmsghdr
	iovs  []unix.Iovec
	heads [][helloSize]byte
	from  []peer
}

func newInbox(n int) *inbox {
	in := &inbox{make([]unix.Mmsghdr, n), make([]unix.Iovec, n), make([][helloSize]byte, n), make([]peer, n)}
	for i := range in.calls {
		in.iovs[i].Base = &in.heads[i][0]
		in.iovs[i].SetLen(helloSize)
		m := &in.calls[i].Hdr
		m.Iov, m.Name = &in.iovs[i], &in.from[i].raw[0]
		m.SetIovlen(1)
	}
	return in
}

// drain reads the datagrams that wait in fd, up to a bound, and calls take for each that begins with a head. length is
// the datagram's whole length; text is its beginning, as much as a hello needs.
func (in *inbox) drain(fd int, take func(h head, length int, text []byte, from *peer)) error {
	for range inboxRounds {
		for i := range in.calls {
			in.calls[i].Hdr.Namelen = uint32(len(in.from[i].raw)) // the kernel writes it too
		}
		// With MSG_TRUNC a datagram's length is returned although most of it is dropped.
		n, errno := socket.Call(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(in.calls))),
			uintptr(len(in.calls)), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
		if errno == unix.EAGAIN {
			return nil
		}
		if errno != 0 {
			return errno
		}
		for i := range n {
			call := &in.calls[i]
			in.from[i].n = call.Hdr.Namelen
			text := in.heads[i][:min(call.Len, helloSize)]
			if h, ok := parseHead(text); ok {
				take(h, int(call.Len), text, &in.from[i])
			}
		}
		if n < len(in.calls) {
			return nil
		}
	}
	return nil
}

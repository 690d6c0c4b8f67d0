package traffic

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	inboxSize = 64 // datagrams a call: some more than a burst
	// inboxRounds bounds how long one socket is read: others wait.
	inboxRounds = 16
)

// inbox takes datagrams from sockets, many a call, and of each only what it says. It
// belongs to one thread.
type inbox struct {
	calls []unix.Mmsghdr
	iovs  []unix.Iovec
	said  [][helloSize]byte
	from  []peer
}

func newInbox(n int) *inbox {
	in := &inbox{make([]unix.Mmsghdr, n), make([]unix.Iovec, n), make([][helloSize]byte, n), make([]peer, n)}
	for i := range in.calls {
		in.iovs[i].Base = &in.said[i][0]
		in.iovs[i].SetLen(helloSize)
		m := &in.calls[i].Hdr
		m.Iov, m.Name = &in.iovs[i], &in.from[i].raw[0]
		m.SetIovlen(1)
	}
	return in
}

// read takes what waits in fd, up to an inbox full; 0 when nothing did.
func (in *inbox) read(fd int) (int, error) {
	for i := range in.calls {
		in.calls[i].Hdr.Namelen = uint32(len(in.from[i].raw)) // the kernel writes it too
	}
	for {
		// With MSG_TRUNC a datagram's length is returned although most of it is dropped.
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(in.calls))),
			uintptr(len(in.calls)), unix.MSG_DONTWAIT|unix.MSG_TRUNC, 0, 0)
		switch errno {
		case 0:
			for i := range in.calls[:n] {
				in.from[i].n = in.calls[i].Hdr.Namelen
			}
			return int(n), nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0, nil
		}
		return 0, errno
	}
}

// drain hands on all that waits in fd and has a head, within bounds: its length and
// all of a hello.
func (in *inbox) drain(fd int, take func(h head, length int, said []byte, from *peer)) error {
	for range inboxRounds {
		n, err := in.read(fd)
		if err != nil {
			return err
		}
		for i := range n {
			length := int(in.calls[i].Len)
			said := in.said[i][:min(length, helloSize)]
			if h, ok := parseHead(said); ok {
				take(h, length, said, &in.from[i])
			}
		}
		if n < len(in.calls) {
			return nil
		}
	}
	return nil
}

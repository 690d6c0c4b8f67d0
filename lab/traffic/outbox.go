package traffic

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// mostSegments is the largest number of datagrams into which the kernel segments the buffer of one call. It is
// UDP_MAX_SEGMENTS (include/linux/udp.h) of older kernels; newer ones have 128.
const mostSegments = 64

// peer is the address of a datagram's other end in the form of system calls. The zero value stands for the peer of a
// connected socket.
type peer struct {
	raw [unix.SizeofSockaddrInet6]byte
	n   uint32
}

// name returns the address and its length for a system call.
func (p *peer) name() (*byte, uint32) {
	if p.n == 0 {
		return nil, 0
	}
	return &p.raw[0], p.n
}

// sendHead sends a head without payload. It may get lost; callers repeat it until it is answered.
func sendHead(fd int, to *peer, h head) error {
	b := make([]byte, headSize)
	h.put(b)
	name, n := to.name()
	_, err := socket.SendSomeTo(fd, b, name, n)
	return err
}

// outbox sends bursts of datagrams. One thread may use it. A burst is one system call with segmentation offload (UDP
// GSO), so it passes through the kernel once, up to the link. Some links cannot segment: those without checksum offload
// before Linux 6.11, and IPsec. The kernel then returns an error, and the outbox sends separate datagrams, still with
// one call.
type outbox struct {
	run     *run
	segment int    // length of a datagram, bytes
	single  bool   // segmentation offload does not work
	fd      int    // a server's socket for all streams; -1 on a generator, whose streams have sockets
	peers   []peer // a server's clients, by stream
	self    peer   // the zero peer, for connected sockets

	call    unix.Msghdr
	iov     unix.Iovec
	control [4]uint64 // one message, aligned as the kernel wants it
	each    [mostSegments]unix.Mmsghdr
	eachIov [mostSegments]unix.Iovec
}

func newOutbox(r *run) *outbox {
	o := &outbox{run: r, segment: r.cfg.MSS, fd: -1}
	c := (*unix.Cmsghdr)(unsafe.Pointer(&o.control))
	c.Level, c.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	c.SetLen(unix.CmsgLen(2))
	message := unsafe.Slice((*byte)(unsafe.Pointer(&o.control)), unix.CmsgSpace(2))
	binary.NativeEndian.PutUint16(message[unix.CmsgLen(0):], uint16(o.segment))
	o.call.Iov, o.call.Control = &o.iov, &message[0]
	o.call.SetIovlen(1)
	return o
}

// write writes heads into the datagrams of payload and sends them. The length of payload is a multiple of segment. It
// returns how many bytes the kernel took.
func (o *outbox) write(st *stream, payload []byte) (int, error) {
	fd, to := st.fd, &o.self
	if o.fd >= 0 {
		fd, to = o.fd, &o.peers[st.index]
	}
	h := head{kind: kindData, index: st.index, run: o.run.id, number: st.next.Load()}
	for position := 0; position < len(payload); position += o.segment {
		h.put(payload[position:])
		h.number++
	}
	sent := 0
	for sent < len(payload) {
		n, err := o.sendSome(fd, to, payload[sent:min(len(payload), sent+o.maxCallBytes())])
		if err != nil {
			return sent, err
		}
		if n == 0 {
			break
		}
		sent += n
		st.next.Add(int64(n / o.segment))
	}
	return sent, nil
}

// maxCallBytes is the largest number of bytes for one call.
func (o *outbox) maxCallBytes() int {
	if o.single {
		return mostSegments * o.segment
	}
	return min(mostSegments, MaxDatagram/o.segment) * o.segment
}

// sendSome sends datagrams in one call, and none when the socket or the link is full.
func (o *outbox) sendSome(fd int, to *peer, b []byte) (n int, err error) {
	errno := unix.EIO
	if !o.single {
		n, errno = o.sendSegmented(fd, to, b)
	}
	if errno == unix.EIO || errno == unix.EINVAL {
		// In older kernels EINVAL also stands for datagrams that are too long: the call that
		// follows then returns the right error.
		o.single = true
		n, errno = o.sendEach(fd, to, b)
	}
	switch errno {
	case 0, unix.EAGAIN, unix.ENOBUFS:
		return n, nil
	case unix.EMSGSIZE:
		return n, fmt.Errorf("sending: the datagrams are longer than the path takes: %w", errno)
	}
	return n, fmt.Errorf("sending: %w", errno)
}

// sendSegmented sends b with segmentation offload: the kernel divides it into datagrams.
func (o *outbox) sendSegmented(fd int, to *peer, b []byte) (int, unix.Errno) {
	o.iov.Base = &b[0]
	o.iov.SetLen(len(b))
	o.call.Name, o.call.Namelen = to.name()
	o.call.SetControllen(0)
	if len(b) > o.segment {
		o.call.SetControllen(unix.CmsgSpace(2))
	}
	return socket.Call(
		unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&o.call)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0, 0)
}

// sendEach sends b, at most mostSegments datagrams, as separate datagrams, and returns the bytes that the kernel took.
func (o *outbox) sendEach(fd int, to *peer, b []byte) (int, unix.Errno) {
	n := 0
	for ; n*o.segment < len(b); n++ {
		o.eachIov[n].Base = &b[n*o.segment]
		o.eachIov[n].SetLen(o.segment)
		m := &o.each[n].Hdr
		m.Name, m.Namelen = to.name()
		m.Iov = &o.eachIov[n]
		m.SetIovlen(1)
	}
	n, errno := socket.Call(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&o.each)), uintptr(n),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return n * o.segment, errno
}

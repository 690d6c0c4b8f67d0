package queue

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attributes is the space beside a packet's bytes: message header, attributes, padding.
const attributes = 256

// datagram is the struct mmsghdr of recvmmsg(2).
type datagram struct {
	header unix.Msghdr
	length [unsafe.Sizeof(uintptr(0)) / 4]uint32 // with 64 bits padding follows
}

// reader holds the buffers that Run needs for a batch of packets.
type reader struct {
	buffers   [][]byte
	iovecs    []unix.Iovec
	datagrams []datagram
	packets   []Packet
	verdicts  []Verdict
	out       []byte
}

func newReader(batch int, bytes int) *reader {
	r := &reader{
		buffers: make([][]byte, batch), iovecs: make([]unix.Iovec, batch), datagrams: make([]datagram, batch),
		packets: make([]Packet, batch), verdicts: make([]Verdict, batch), out: make([]byte, 0, batch*64),
	}
	all := make([]byte, batch*bytes)
	for i := range r.buffers {
		r.buffers[i] = all[i*bytes : (i+1)*bytes]
		r.iovecs[i].Base = &r.buffers[i][0]
		r.iovecs[i].SetLen(bytes)
		r.datagrams[i].header.Iov = &r.iovecs[i]
		r.datagrams[i].header.SetIovlen(1)
	}
	return r
}

// Run has judge decide about packets, up to Batch at a time, until Close. after, unless it is nil, is called when the
// packets have their verdicts and their bytes are still valid. If Run fails, packets are dropped from then on. It keeps
// its thread, so that the kernel wakes it on the same CPU.
func (q *Queue) Run(judge Judge, after func()) error {
	q.running.Lock()
	defer q.running.Unlock()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := newReader(q.cfg.Batch, attributes+int(q.cfg.CopyBytes))
	for !q.closing.Load() {
		n, err := q.receive(r)
		if err == nil && n > 0 {
			q.batches.Add(1)
			clear(r.verdicts[:n])
			judge(r.packets[:n], r.verdicts[:n])
			err = q.sendVerdicts(r, n)
			if after != nil {
				after()
			}
			q.batches.Add(1)
		}
		if err != nil && !q.closing.Load() {
			return fmt.Errorf("reading queue %d: %w", q.cfg.Number, err)
		}
	}
	return nil
}

// receive waits for packets and decodes them; 0: another message arrived.
func (q *Queue) receive(r *reader) (int, error) {
	got := 1
	if len(r.buffers) == 1 {
		n, _, errno := unix.Syscall6(
			unix.SYS_RECVFROM, uintptr(q.fd), uintptr(unsafe.Pointer(&r.buffers[0][0])), uintptr(len(r.buffers[0])), 0, 0, 0)
		if errno != 0 {
			return 0, ignoreEINTR(errno)
		}
		r.datagrams[0].length[0] = uint32(n)
	} else {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(q.fd), uintptr(unsafe.Pointer(&r.datagrams[0])),
			uintptr(len(r.datagrams)), unix.MSG_WAITFORONE, 0, 0)
		if errno != 0 {
			return 0, ignoreEINTR(errno)
		}
		got = int(n)
	}
	packets := 0
	for i := range got {
		err := r.packets[packets].decode(r.buffers[i][:r.datagrams[i].length[0]])
		switch {
		case err == nil:
			packets++
		case !errors.Is(err, errOther):
			return 0, err
		}
		// Other messages are answers to verdicts whose packet the kernel has dropped meanwhile, because its interface went
		// down, and on Close.
	}
	return packets, nil
}

// sendVerdicts sends the verdicts to the kernel.
func (q *Queue) sendVerdicts(r *reader, n int) error {
	r.out = appendVerdicts(r.out[:0], q.cfg.Number, r.packets[:n], r.verdicts[:n], q.unanswered.Load() > 0)
	if len(r.out) == 0 {
		return nil
	}
	for {
		// The kernel as destination needs no address.
		_, _, errno := unix.Syscall6(
			unix.SYS_SENDTO, uintptr(q.fd), uintptr(unsafe.Pointer(&r.out[0])), uintptr(len(r.out)), 0, 0, 0)
		if errno != unix.EINTR {
			return errnoErr(errno)
		}
	}
}

func errnoErr(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func ignoreEINTR(errno unix.Errno) error {
	if errno == unix.EINTR {
		return nil
	}
	return errno
}

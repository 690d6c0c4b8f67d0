package send

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

const (
	packetBatch = 16      // frames of one system call; all of them wait for the last one's stamp
	packetQueue = 8 << 20 // bytes of frames on their way that the socket may have
)

// packet sends through a packet socket that goes past the link's queueing discipline.
type packet struct {
	s        *Sender
	clock    clock
	buffers  [packetBatch][]byte
	vectors  [packetBatch]unix.Iovec
	messages [packetBatch]message
}

// message is the kernel's struct mmsghdr.
type message struct {
	header unix.Msghdr
	sent   uint32
}

func newPacket(s *Sender) *packet {
	p := &packet{s: s, clock: newClock()}
	for i := range p.buffers {
		p.buffers[i] = append([]byte(nil), s.filler.bytes[:s.cfg.Plan.MaxBytes()]...)
		p.vectors[i].Base = &p.buffers[i][0]
		p.messages[i].header.Iov = &p.vectors[i]
		p.messages[i].header.SetIovlen(1)
	}
	return p
}

// run sends until the control says stop.
func (p *packet) run() error {
	fd := p.s.port.fd
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("sending past the queueing discipline: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, packetQueue); err != nil {
		return fmt.Errorf("enlarging the socket's queue: %w", err)
	}
	c := p.s.schedule.c
	for atomic.LoadUint32(&c.Stop) == 0 {
		n := p.fill()
		if n == 0 {
			p.sleepUntilDue()
			continue
		}
		sent, err := p.send(n)
		made := c.Taken + uint64(sent)
		atomic.StoreUint64(&c.Made, made)
		atomic.StoreUint64(&c.Taken, made)
		switch {
		case err == nil:
		case errors.Is(err, unix.ENOBUFS) && p.s.cfg.Loses:
			atomic.AddUint64(&c.Refused, 1)
			atomic.StoreUint64(&c.Made, made+1)
			atomic.StoreUint64(&c.Taken, made+1)
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EAGAIN):
			atomic.AddUint64(&c.Refused, 1)
		case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
			if state := p.s.port.check(); state != nil {
				err = state
			}
			return fmt.Errorf("while frames were sent: %w", err)
		default:
			return fmt.Errorf("sending on %s: %w", p.s.port.name, err)
		}
	}
	return nil
}

// catchUp is how many late frames a sender with Loses sends at once after other programs had its CPU. A longer burst
// would overrun the link's ring (a veth's has 256 places), and the lost frames would look like more than the link can
// carry. So the rest of the plan is sent later, and frames that are then due after the plan's end are not sent. In
// send.bpf.c it is CATCH_UP.
const catchUp = 64

// tooFarBehind reports whether the frame in slot n is so late that more than catchUp frames wait. Frames of one planned
// burst are due together, and do not count.
func (p *packet) tooFarBehind(n, now uint64) bool {
	sch := p.s.schedule
	after := n + catchUp
	if after >= atomic.LoadUint64(&sch.c.Produced) {
		return false
	}
	due := sch.slots[after%slotCount].Due
	return due > sch.slots[n%slotCount].Due && due+sch.c.Shift <= now-sch.c.Start
}

// Bounds of the sending thread's sleep. It sleeps only if nothing is due for longer than waking up takes, and never so
// long that the end of sending would be delayed.
const (
	minSleep = 20 * time.Microsecond
	maxSleep = 5 * time.Millisecond
)

// sleepUntilDue sleeps until the next frame is due, if the configuration lets the sender sleep.
func (p *packet) sleepUntilDue() {
	if !p.s.cfg.Rests {
		return
	}
	sch := p.s.schedule
	wait := plannerPause // nothing is planned yet
	if c := sch.c; c.Taken < atomic.LoadUint64(&c.Produced) {
		wait = time.Duration(int64(c.Start+sch.slots[c.Taken%slotCount].Due+c.Shift) - p.clock.now())
	}
	if wait < minSleep {
		return
	}
	socket.Sleep(p.s.sending.Bell(), min(wait, maxSleep))
}

// fill makes the frames that are due, at most packetBatch, and returns their number.
func (p *packet) fill() (n int) {
	sch := p.s.schedule
	c := sch.c
	produced := atomic.LoadUint64(&c.Produced)
	for ; n < packetBatch && c.Taken+uint64(n) < produced; n++ {
		now := uint64(p.clock.now())
		if c.Start == 0 {
			atomic.StoreUint64(&c.Start, now)
		}
		f := &sch.slots[(c.Taken+uint64(n))%slotCount]
		if now-c.Start < f.Due+c.Shift {
			break
		}
		if p.s.cfg.Loses && p.tooFarBehind(c.Taken+uint64(n), now) {
			c.Shift = now - c.Start - f.Due
		}
		f.Left = now - c.Start
		p.s.filler.write(p.buffers[n], &p.s.heads[f.Stream], f, now)
		p.vectors[n].SetLen(int(f.Bytes))
	}
	return n
}

// send hands n frames to the kernel. It returns the number of frames before the first one that the kernel refused.
func (p *packet) send(n int) (int, error) {
	sent, _, errno := unix.RawSyscall6(
		unix.SYS_SENDMMSG, uintptr(p.s.port.fd), uintptr(unsafe.Pointer(&p.messages[0])), uintptr(n), 0, 0, 0)
	if errno == unix.EINTR {
		return 0, nil
	}
	if errno != 0 {
		return 0, errno
	}
	return int(sent), nil
}

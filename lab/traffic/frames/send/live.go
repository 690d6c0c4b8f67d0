package send

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

const (
	maxLive   = 3072 // MAX_LIVE and BATCH in send.bpf.c
	liveBatch = 16
	// liveRepeat is the number of times that one system call runs the program, which takes a minute or more. Each call
	// takes the kernel 0.5 ms to set up.
	liveRepeat = math.MaxInt32 &^ (liveBatch - 1)
)

// errNoLiveFrames says why live frames cannot be sent on a link or with a kernel.
var errNoLiveFrames = errors.New("live frames do not work here")

// live has the kernel make the frames: programs that run in one long system call.
type live struct {
	objs  programsObjects
	taken link.Link
	s     *Sender
	first []byte // what the kernel fills new pages with
}

func newLive(s *Sender) (_ *live, err error) {
	if bits.UintSize < 64 { // a program's 64 bits may be read while they are written
		return nil, fmt.Errorf(
			"%w: the programs' counters have 64 bits, more than this processor reads at once", errNoLiveFrames)
	}
	longest := s.cfg.Plan.MaxBytes()
	if longest > maxLive {
		return nil, fmt.Errorf("frames of %d bytes: %w, beyond %d bytes", longest, errNoLiveFrames, maxLive)
	}
	l := &live{s: s, first: s.filler.bytes[:longest]}
	defer func() {
		if err != nil {
			l.close()
			err = fmt.Errorf("%w: %w", errNoLiveFrames, err)
		}
	}()
	spec, err := loadPrograms()
	if err != nil {
		return nil, err
	}
	spec.Maps[programsMapHeads].MaxEntries = uint32(len(s.heads))
	if err := spec.Variables[programsVarPayloadSums].Set(s.filler.sums[:maxLive+1]); err != nil {
		return nil, fmt.Errorf("setting the payload's sums: %w", err)
	}
	if err := spec.LoadAndAssign(&l.objs, nil); err != nil {
		return nil, fmt.Errorf("loading the programs: %w", err)
	}
	if err := l.fill(); err != nil {
		return nil, err
	}
	l.taken, err = link.AttachRawTracepoint(link.RawTracepointOptions{Name: "xdp_devmap_xmit", Program: l.objs.Taken})
	if err != nil {
		return nil, fmt.Errorf("hearing what the link takes: %w", err)
	}
	return l, nil
}

// fill gives the programs their link and the streams.
func (l *live) fill() error {
	for i := range l.s.heads {
		if err := l.objs.Heads.Put(uint32(i), &l.s.heads[i]); err != nil {
			return fmt.Errorf("stream %d: %w", i, err)
		}
	}
	if err := l.objs.Link.Put(uint32(0), uint32(l.s.port.index)); err != nil {
		return fmt.Errorf("link %s: %w", l.s.port.name, err)
	}
	return nil
}

// share maps the programs' slots and control into s.
func (l *live) share(s *schedule) error {
	slots, err := mapOf(l.objs.Slots, slotCount*int(unsafe.Sizeof(programsSlot{})))
	if err != nil {
		return err
	}
	s.memory = append(s.memory, slots)
	control, err := mapOf(l.objs.Controls, int(unsafe.Sizeof(programsControl{})))
	if err != nil {
		return err
	}
	s.memory = append(s.memory, control)
	s.slots = unsafe.Slice((*programsSlot)(unsafe.Pointer(&slots[0])), slotCount)
	s.c = (*programsControl)(unsafe.Pointer(&control[0]))
	return nil
}

func mapOf(m *ebpf.Map, bytes int) ([]byte, error) {
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (bytes+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the programs' memory: %w", err)
	}
	return b, nil
}

// run sends until the programs' control says stop. If it returns errNoLiveFrames, because the link refuses live frames,
// the packet engine can continue where run ended.
func (l *live) run() error {
	c := l.s.schedule.c
	for !l.s.ending.Load() && atomic.LoadUint32(&c.Stop) == 0 {
		c.Calls = 0
		switch errno := l.call(); errno {
		case 0, unix.EINTR:
		case unix.EINVAL, unix.EOPNOTSUPP, errNotSupported:
			return fmt.Errorf("%w: needs Linux 5.18 or newer: %w", errNoLiveFrames, errno)
		default:
			return fmt.Errorf("running the program that makes frames: %w", errno)
		}
	}
	if c.Gone != 0 {
		return fmt.Errorf("while frames were sent: %s: %w", l.s.port.name, errLinkRemoved)
	}
	refusal := atomic.SwapInt32(&c.Error, 0)
	if refusal == 0 || l.s.ending.Load() {
		return nil
	}
	if err := l.s.port.check(); err != nil {
		return fmt.Errorf("while frames were sent: %w", err)
	}
	atomic.StoreUint32(&c.Stop, 0)
	atomic.StoreUint64(&c.Made, c.Taken)
	return fmt.Errorf(
		"%w: %s refuses frames from XDP (%w): a veth takes them once GRO was switched on at its other end while both were up",
		errNoLiveFrames, l.s.port.name, unix.Errno(-refusal))
}

// testRun is bpf(2)'s attributes for BPF_PROG_RUN.
type testRun struct {
	prog, retval        uint32
	sizeIn, sizeOut     uint32
	dataIn, dataOut     uint64
	repeat, duration    uint32
	ctxIn, ctxOut       uint32
	ctxAtIn, ctxAtOut   uint64
	flags, cpu          uint32
	batch, alignedToEnd uint32
}

const (
	bpfProgRun       = 10
	bpfTestXDPFrames = 2               // BPF_F_TEST_XDP_LIVE_FRAMES
	errNotSupported  = unix.Errno(524) // the kernel's ENOTSUPP
)

// call is one run of the program. It is made here and not by the eBPF library, which starts interrupted runs again.
func (l *live) call() unix.Errno {
	at := testRun{
		prog: uint32(l.objs.SendFrame.FD()), sizeIn: uint32(len(l.first)),
		dataIn: uint64(uintptr(unsafe.Pointer(&l.first[0]))),
		repeat: liveRepeat, flags: bpfTestXDPFrames, batch: liveBatch,
	}
	_, _, errno := unix.Syscall(unix.SYS_BPF, bpfProgRun, uintptr(unsafe.Pointer(&at)), unsafe.Sizeof(at))
	runtime.KeepAlive(l.first)
	return errno
}

func (l *live) close() {
	if l.taken != nil {
		l.taken.Close()
	}
	l.objs.Close()
}

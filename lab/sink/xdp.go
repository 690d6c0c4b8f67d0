// The sink of kind "xdp".

package sink

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/quote"
)

// xdp takes incoming frames by a program at XDP, before the network stack gets them, into an AF_XDP socket. It cannot
// capture on a router, because no one else gets the frames, and it does not see outgoing frames.
//
//	fill ring ──► chunk of memory ── the kernel copies a frame ──► receive ring ──► counted ──► fill ring
//
// Sink and kernel share memory (Config.BufferKiB, 0: 2048) that is divided into chunks, one for each frame. The kernel
// copies whole frames; a snap length limits only the work. A frame without a free chunk is lost. When the driver does
// not support XDP, the kernel uses generic XDP.
type xdp struct {
	fd          int
	objs        takeObjects
	attached    link.Link
	promiscuity int
	memory      []byte
	fill, rx    xskRing
	chunk       int // bytes of a chunk
	chunks      uint32
}

var _ method = &xdp{}

// takeObjects are the objects of sink.bpf.c that take frames at XDP.
type takeObjects struct {
	Take    *ebpf.Program `ebpf:"take"`
	Sockets *ebpf.Map     `ebpf:"sockets"`
}

func (o *takeObjects) Close() {
	o.Take.Close() // nil: nothing was loaded
	o.Sockets.Close()
}

// xskRing is a ring that is shared with the kernel. One side writes producer, the other consumer.
type xskRing struct {
	memory             []byte
	producer, consumer *uint32
	desc               unsafe.Pointer // []uint64 of the fill ring, []unix.XDPDesc of the receive ring
	mask               uint32
	position           uint32 // the sink's index, written to the ring once a batch
}

const (
	smallChunk  = 2048
	largeChunk  = 4096 // the largest possible: a page
	xdpHeadroom = 256  // in front of a frame in its chunk (XDP_PACKET_HEADROOM)
	minChunks   = 64
	batch       = 64 // most frames before their chunks are given back
)

// openXDP makes the sink of kind "xdp".
func openXDP(cfg Config, target port) (method, error) {
	if cfg.Filter != "" {
		return nil, &configError{"AF_XDP has no filter programs of tcpdump's kind: leave the filter out, or take mmap"}
	}
	sink := &xdp{fd: -1, promiscuity: -1}
	kib := ringKiB
	if cfg.BufferKiB > 0 {
		kib = cfg.BufferKiB
	}
	if err := errors.Join(sink.layOut(kib, target), checkMemory(kib)); err != nil {
		return nil, err
	}
	if err := sink.open(target); err != nil {
		sink.close()
		return nil, err
	}
	return sink, nil
}

// layOut chooses size and number of chunks for kib KiB of memory. The number is a power of two.
func (w *xdp) layOut(kib int, target port) error {
	frame := target.mtu + 22 // Ethernet's header, and two VLAN tags
	switch {
	case frame <= smallChunk-xdpHeadroom:
		w.chunk = smallChunk
	case frame <= largeChunk-xdpHeadroom:
		w.chunk = largeChunk
	default:
		return &configError{fmt.Sprintf("AF_XDP takes frames of up to %d bytes, and the interface has an MTU of %d: %s",
			largeChunk-xdpHeadroom, target.mtu, quote.Command("ip", "link", "set", target.name, "mtu", "1500"))}
	}
	for w.chunks = 1; int(2*w.chunks)*w.chunk <= kib<<10; w.chunks *= 2 {
	}
	if w.chunks < minChunks {
		return &configError{fmt.Sprintf("a buffer of %d KiB: for AF_XDP it is at least %d", kib, minChunks*w.chunk>>10)}
	}
	return nil
}

// open makes socket, memory and rings, attaches the program, and begins to take frames.
func (w *xdp) open(target port) (err error) {
	if w.promiscuity, err = keepPromiscuous(target); err != nil {
		return err
	}
	if w.fd, err = newSocket(unix.AF_XDP); err != nil {
		return err
	}
	if n := target.queues(w.promiscuity); n > 1 {
		return &configError{fmt.Sprintf(
			"the interface has %d receive queues, and the sink takes the frames of one: %s, or rx 1", n,
			quote.Command("ethtool", "-L", target.name, "combined", "1"))}
	}
	if err := w.share(); err != nil {
		return err
	}
	if err := w.attach(target); err != nil {
		return err
	}
	if err := w.bind(target); err != nil {
		return fmt.Errorf("binding an AF_XDP socket: %w", err)
	}
	for i := range w.chunks {
		*w.fill.address(i) = uint64(int(i) * w.chunk)
	}
	w.fill.position = w.chunks
	atomic.StoreUint32(w.fill.producer, w.fill.position)
	if err := w.objs.Sockets.Put(uint32(0), uint32(w.fd)); err != nil {
		return fmt.Errorf("entering the socket for the interface's queue: %w", err)
	}
	return nil
}

// bind waits for the queue, because the kernel frees it only some time after another socket that had it was closed.
const (
	queueWait = 3 * time.Second
	queuePoll = 5 * time.Millisecond
)

// bind binds the socket to the interface's queue.
func (w *xdp) bind(target port) (err error) {
	for deadline := time.Now().Add(queueWait); time.Now().Before(deadline); time.Sleep(queuePoll) {
		err = unix.Bind(w.fd, &unix.SockaddrXDP{Flags: unix.XDP_COPY, Ifindex: uint32(target.index)})
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return fmt.Errorf("%w: another socket has the interface's queue", err)
}

// share makes the memory and the rings that sink and kernel share.
func (w *xdp) share() (err error) {
	size := int(w.chunks) * w.chunk
	w.memory, err = unix.Mmap(
		-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("asking for %d KiB of memory: %w", size>>10, err)
	}
	reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&w.memory[0]))), Len: uint64(size), Size: uint32(w.chunk)}
	err = setsockopt(w.fd, unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg))
	if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ENOMEM) {
		return fmt.Errorf(
			"sharing %d KiB with the kernel: %w: raise the limit of locked memory (ulimit -l), or ask for a smaller buffer",
			size>>10, err)
	}
	if err != nil {
		return fmt.Errorf("sharing memory with the kernel: %w", err)
	}
	for option, n := range map[int]uint32{
		unix.XDP_UMEM_FILL_RING: w.chunks, unix.XDP_RX_RING: w.chunks, unix.XDP_UMEM_COMPLETION_RING: 1} {
		if err := unix.SetsockoptInt(w.fd, unix.SOL_XDP, option, int(n)); err != nil {
			return fmt.Errorf("making a ring of AF_XDP: %w", err)
		}
	}
	var offsets unix.XDPMmapOffsets
	if err := getsockopt(w.fd, unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&offsets), unsafe.Sizeof(offsets)); err != nil {
		return fmt.Errorf("asking for the layout of AF_XDP's rings: %w", err)
	}
	return errors.Join(
		w.fill.open(w.fd, unix.XDP_UMEM_PGOFF_FILL_RING, offsets.Fr, w.chunks, unsafe.Sizeof(uint64(0))),
		w.rx.open(w.fd, unix.XDP_PGOFF_RX_RING, offsets.Rx, w.chunks, unsafe.Sizeof(unix.XDPDesc{})))
}

// attach attaches the program to the interface. The program passes frames to the network stack until the map has a
// socket for them.
func (w *xdp) attach(target port) error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	if w.attached, err = w.attachWhole(spec.Copy(), target); err == nil {
		return nil
	}
	if err := load(spec, &w.objs); err != nil {
		return err
	}
	w.attached, err = link.AttachXDP(link.XDPOptions{Program: w.objs.Take, Interface: target.index})
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return fmt.Errorf(
			"attaching the program: %w: another program has the interface's XDP, and there is room for one", err)
	}
	if err != nil {
		return fmt.Errorf("attaching the program: %w", err)
	}
	return nil
}

// attachWhole attaches the program that puts VLAN tags back into frames from which the driver has removed them. The
// driver must report the tags, as veth does from Linux 6.8 on, and the program is loaded for this interface only.
func (w *xdp) attachWhole(spec *ebpf.CollectionSpec, target port) (link.Link, error) {
	p := spec.Programs["take_whole"]
	p.Ifindex, p.Flags = uint32(target.index), unix.BPF_F_XDP_DEV_BOUND_ONLY
	spec.Programs["take"] = p
	if err := load(spec, &w.objs); err != nil {
		return nil, err
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: w.objs.Take, Interface: target.index})
	if err != nil {
		w.objs.Close()
		w.objs = takeObjects{}
	}
	return l, err
}

// open maps a ring of the socket fd into memory. offset selects the ring, offsets has the places of its parts. The ring
// has so many entries of entry bytes.
func (r *xskRing) open(fd int, offset int64, offsets unix.XDPRingOffset, entries uint32, entry uintptr) (err error) {
	r.memory, err = unix.Mmap(
		fd, offset, int(offsets.Desc)+int(entries)*int(entry), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("mapping a ring of AF_XDP: %w", err)
	}
	r.producer = (*uint32)(unsafe.Pointer(&r.memory[offsets.Producer]))
	r.consumer = (*uint32)(unsafe.Pointer(&r.memory[offsets.Consumer]))
	r.desc, r.mask = unsafe.Pointer(&r.memory[offsets.Desc]), entries-1
	return nil
}

// address returns entry i of the fill ring: the address of a chunk in the shared memory.
func (r *xskRing) address(i uint32) *uint64 {
	return (*uint64)(unsafe.Add(r.desc, uintptr(i&r.mask)*unsafe.Sizeof(uint64(0))))
}

// frame returns entry i of the receive ring: the place of a frame in the shared memory.
func (r *xskRing) frame(i uint32) *unix.XDPDesc {
	return (*unix.XDPDesc)(unsafe.Add(r.desc, uintptr(i&r.mask)*unsafe.Sizeof(unix.XDPDesc{})))
}

func (w *xdp) take(count *counter, stop stopFunc) error {
	for !stop() {
		if w.takeBatch(count) {
			continue
		}
		if err := awaitReadable(w.fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// takeBatch takes up to batch frames and gives their chunks back. It returns false when there was none.
func (w *xdp) takeBatch(count *counter) bool {
	n := min(atomic.LoadUint32(w.rx.producer)-w.rx.position, batch)
	for range n {
		frame := w.rx.frame(w.rx.position)
		count.frame(w.memory[frame.Addr:][:min(int(frame.Len), count.snap)], int(frame.Len))
		*w.fill.address(w.fill.position) = frame.Addr &^ uint64(w.chunk-1)
		w.rx.position++
		w.fill.position++
	}
	if n > 0 {
		atomic.StoreUint32(w.rx.consumer, w.rx.position)
		atomic.StoreUint32(w.fill.producer, w.fill.position)
	}
	return n > 0
}

func (w *xdp) tally() error { return nil } // AF_XDP's statistics have 64 bits

// finish detaches the program, so that the network stack gets the frames again, and takes the frames in the ring.
func (w *xdp) finish(count *counter, deadline time.Time) (lost, left int64, err error) {
	if err := w.attached.Close(); err != nil {
		return 0, 0, fmt.Errorf("taking the program away: %w", err)
	}
	for time.Now().Before(deadline) && w.takeBatch(count) {
	}
	var stats unix.XDPStatistics
	if err := getsockopt(w.fd, unix.XDP_STATISTICS, unsafe.Pointer(&stats), unsafe.Sizeof(stats)); err != nil {
		return 0, 0, fmt.Errorf("reading the socket's statistics: %w", err)
	}
	// Rx_dropped includes frames for which the fill ring had no chunk.
	return int64(stats.Rx_dropped + stats.Rx_ring_full), int64(atomic.LoadUint32(w.rx.producer) - w.rx.position), nil
}

func (w *xdp) close() {
	if w.attached != nil {
		w.attached.Close()
	}
	w.objs.Close()
	for _, fd := range []int{w.promiscuity, w.fd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	for _, memory := range [][]byte{w.fill.memory, w.rx.memory, w.memory} {
		if memory != nil {
			_ = unix.Munmap(memory)
		}
	}
}

// setsockopt sets an option of an AF_XDP socket.
func setsockopt(fd, option int, value unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(value), size, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// getsockopt reads an option of an AF_XDP socket.
func getsockopt(fd, option int, value unsafe.Pointer, size uintptr) error {
	length := uint32(size)
	_, _, errno := unix.Syscall6(
		unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_XDP, uintptr(option), uintptr(value), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

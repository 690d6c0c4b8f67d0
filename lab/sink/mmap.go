// The sink of kind "mmap".

package sink

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmap reads frames from a ring that the kernel fills (TPACKET_V3), without a system call for a frame.
//
//	block: struct tpacket_block_desc │ frame │ frame │ …
//	frame: struct tpacket3_hdr … tp_mac │ bytes
//
// The kernel copies the kept bytes of each frame, with a time stamp, into a block. It hands the block to the reader,
// and wakes the thread, when the block is full or has been open for blockTime. The reader takes the frames and gives
// the block back. A frame that comes while the reader has all blocks is lost. The snap length is the filter's return
// value, so a short one saves copying and space.
type mmap struct {
	*packetSocket
	memory []byte
	block  int // bytes of a block
	blocks int
	next   int // the block to read next
}

var _ method = &mmap{}

const (
	ringKiB   = 2048                  // default, as in libpcap
	blockSize = 256 << 10             // as in libpcap; smaller when the ring has no room for minBlocks of them
	blockTime = 50 * time.Millisecond // after this time the kernel hands over a block that is not full

	minBlocks   = 4
	headerBytes = 128 // more than the headers of a frame, or of a block, in the ring
)

// openMmap makes the sink of kind "mmap".
func openMmap(cfg Config, target port) (method, error) {
	keep := wholeFrame
	if cfg.Snap > 0 {
		keep = cfg.Snap
	}
	socket, err := openPacket(cfg, target, keep)
	if err != nil {
		return nil, err
	}
	ring := &mmap{packetSocket: socket}
	kib := ringKiB
	if cfg.BufferKiB > 0 {
		kib = cfg.BufferKiB
	}
	if err := errors.Join(ring.layOut(kib<<10, min(keep, target.mtu+headerBytes)), checkMemory(kib)); err != nil {
		socket.close()
		return nil, err
	}
	if err := errors.Join(ring.open(kib), socket.bind()); err != nil {
		ring.close()
		return nil, err
	}
	return ring, nil
}

// layOut chooses size and number of blocks for a ring. Each block has room for a frame. ring and frame are bytes.
func (m *mmap) layOut(ring, frame int) error {
	least := os.Getpagesize()
	for least < frame+2*headerBytes {
		least *= 2
	}
	for m.block = blockSize; m.block > least && m.block > ring/minBlocks; m.block /= 2 {
	}
	m.blocks = ring / m.block
	if m.blocks < 2 {
		return &configError{
			fmt.Sprintf("a buffer of %d KiB: a ring has two blocks at least, which take %d KiB", ring>>10, 2*m.block>>10)}
	}
	return nil
}

// open has the kernel make the ring, and maps it into memory. kib is the size asked for, for messages.
func (m *mmap) open(kib int) error {
	if err := unix.SetsockoptInt(m.fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V3); err != nil {
		return fmt.Errorf("choosing TPACKET_V3, which Linux has from 3.2 on: %w", err)
	}
	req := unix.TpacketReq3{
		Block_size: uint32(m.block), Block_nr: uint32(m.blocks), Frame_size: uint32(m.block), Frame_nr: uint32(m.blocks),
		Retire_blk_tov: uint32(blockTime.Milliseconds()),
	}
	err := unix.SetsockoptTpacketReq3(m.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req)
	if err == nil {
		m.memory, err = unix.Mmap(m.fd, 0, m.block*m.blocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf(
			"making a ring of %d KiB: %w: the kernel has no such memory to spare: ask for a smaller buffer", kib, err)
	}
	if err != nil {
		return fmt.Errorf("making a ring of %d KiB: %w", kib, err)
	}
	return nil
}

// status points to the field that says whether the kernel or the reader has a block.
func (m *mmap) status(block int) *uint32 { return &m.header(block).Block_status }

// header returns the header of a block.
func (m *mmap) header(block int) *unix.TpacketHdrV1 {
	descriptor := (*unix.TpacketBlockDesc)(unsafe.Pointer(&m.memory[block*m.block]))
	return (*unix.TpacketHdrV1)(unsafe.Pointer(&descriptor.Hdr))
}

func (m *mmap) take(count *counter, stop stopFunc) error {
	for !stop() {
		if m.takeBlock(count) {
			continue
		}
		if err := m.wait(0); err != nil {
			return err
		}
	}
	return nil
}

// takeBlock takes the frames of the next block and gives the block back. It returns false when the kernel still has the
// block.
func (m *mmap) takeBlock(count *counter) bool {
	if atomic.LoadUint32(m.status(m.next))&unix.TP_STATUS_USER == 0 {
		return false
	}
	block := m.memory[m.next*m.block:][:m.block]
	header := m.header(m.next)
	offset := header.Offset_to_first_pkt
	for range header.Num_pkts {
		frame := (*unix.Tpacket3Hdr)(unsafe.Pointer(&block[offset]))
		kept := offset + uint32(frame.Mac)
		count.frame(block[kept:kept+frame.Snaplen], int(frame.Len)+tagBytes(frame.Status))
		offset += frame.Next_offset
	}
	atomic.StoreUint32(m.status(m.next), unix.TP_STATUS_KERNEL)
	if m.next++; m.next == m.blocks {
		m.next = 0
	}
	return true
}

// wait waits for a block. It clears the error that an interface going down leaves at the socket, which would end each
// later wait at once.
func (m *mmap) wait(limit time.Duration) error {
	if err := awaitReadable(m.fd, limit); err != nil {
		return err
	}
	_, err := unix.GetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err
}

func (m *mmap) finish(count *counter, deadline time.Time) (lost, left int64, err error) {
	return m.drain(count, deadline, func() error {
		if m.takeBlock(count) {
			return nil
		}
		return m.wait(blockTime)
	})
}

func (m *mmap) close() {
	if m.memory != nil {
		_ = unix.Munmap(m.memory)
	}
	m.packetSocket.close()
}

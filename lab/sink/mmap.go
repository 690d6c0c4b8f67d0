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
//	block: struct tpacket_block_desc │ frame │ frame │ … a full block, or one that has been open for blockTime,
//	frame: struct tpacket3_hdr … tp_mac │ bytes       belongs to the reader until it gives it back
//
// The kernel copies what is kept of each frame, with a time stamp, and wakes the thread once for each block. A frame
// that comes while all blocks are the reader's is lost. Snap lengths are the filter's return value, so short ones save
// copying and space.
type mmap struct {
	*packetSocket
	memory []byte
	block  int // bytes of each
	blocks int
	next   int // the block to read next
}

var _ method = &mmap{}

const (
	ringKiB   = 2048                  // libpcap's buffer, where nothing is said
	blockSize = 256 << 10             // libpcap's blocks, where the ring has room for leastBlocks of them
	blockTime = 50 * time.Millisecond // until a block that is not full is handed over

	leastBlocks = 4
	frameRoom   = 128 // headers of a frame in its block, and of the block, rounded up
)

func openMmap(cfg Config, target port) (method, error) {
	keep := wholeFrame
	if cfg.Snap > 0 {
		keep = cfg.Snap
	}
	s, err := openPacket(cfg, target, keep)
	if err != nil {
		return nil, err
	}
	m := &mmap{packetSocket: s}
	kib := ringKiB
	if cfg.BufferKiB > 0 {
		kib = cfg.BufferKiB
	}
	if err := errors.Join(m.layOut(kib<<10, min(keep, target.mtu+frameRoom)), enoughMemory(kib)); err != nil {
		s.close()
		return nil, err
	}
	if err := errors.Join(m.open(kib), s.bind()); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// layOut chooses blocks for a ring of so many bytes, each with room for a frame.
func (m *mmap) layOut(ring, frame int) error {
	least := os.Getpagesize()
	for least < frame+2*frameRoom {
		least *= 2
	}
	for m.block = blockSize; m.block > least && m.block > ring/leastBlocks; m.block /= 2 {
	}
	m.blocks = ring / m.block
	if m.blocks < 2 {
		return &configError{
			fmt.Sprintf("a buffer of %d KiB: a ring has two blocks at least, which take %d KiB", ring>>10, 2*m.block>>10)}
	}
	return nil
}

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

// status of a block says whose it is.
func (m *mmap) status(block int) *uint32 { return &m.header(block).Block_status }

func (m *mmap) header(block int) *unix.TpacketHdrV1 {
	d := (*unix.TpacketBlockDesc)(unsafe.Pointer(&m.memory[block*m.block]))
	return (*unix.TpacketHdrV1)(unsafe.Pointer(&d.Hdr))
}

func (m *mmap) take(c *counter, stop stopping) error {
	for !stop() {
		if m.takeBlock(c) {
			continue
		}
		if err := m.wait(0); err != nil {
			return err
		}
	}
	return nil
}

// takeBlock takes the frames of the next block and gives it back; false: it is not the reader's yet.
func (m *mmap) takeBlock(c *counter) bool {
	if atomic.LoadUint32(m.status(m.next))&unix.TP_STATUS_USER == 0 {
		return false
	}
	block := m.memory[m.next*m.block:][:m.block]
	h := m.header(m.next)
	at := h.Offset_to_first_pkt
	for range h.Num_pkts {
		f := (*unix.Tpacket3Hdr)(unsafe.Pointer(&block[at]))
		kept := at + uint32(f.Mac)
		c.frame(block[kept:kept+f.Snaplen], int(f.Len)+tagBytes(f.Status))
		at += f.Next_offset
	}
	atomic.StoreUint32(m.status(m.next), unix.TP_STATUS_KERNEL)
	if m.next++; m.next == m.blocks {
		m.next = 0
	}
	return true
}

// wait waits for a block. It clears the socket's error, which an interface that went down leaves: that would end each
// later wait at once.
func (m *mmap) wait(limit time.Duration) error {
	if err := awaitReadable(m.fd, limit); err != nil {
		return err
	}
	_, err := unix.GetsockoptInt(m.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err
}

func (m *mmap) finish(c *counter, deadline time.Time) (lost, left int64, err error) {
	return m.drain(c, deadline, func() error {
		if m.takeBlock(c) {
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

package tun

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is a packet socket's receive ring, which the kernel writes and we read without a system call (TPACKET_V2;
// version 3 delivers frames in blocks, and a single frame only when its block's time is over).
//
//	slot: struct tpacket2_hdr … virtio header │ frame
//	                                         tp_mac
//
// A frame longer than a slot, such as an aggregated one, is truncated in the ring and waits complete in the socket's
// queue.
type ring struct {
	memory     []byte
	slot       int // bytes
	nextSlot   int // the slot to read next
	unreturned int // slots before nextSlot that are not returned yet
	taken      int // frames since the last check whether the ring is stuck
}

// ringSlots is how many frames wait for a busy thread.
const ringSlots = 2048

// Offsets in struct tpacket2_hdr.
const (
	offStatus = 0
	offLen    = 4
	offSnap   = 8
	offMAC    = 12
)

// slotHeaders is the space before a frame in its slot, rounded up.
const slotHeaders = 96

// openRing gives a socket a receive ring for frames of an MTU.
func openRing(fd, mtu int) (*ring, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return nil, os.NewSyscallError("setsockopt PACKET_VERSION", err)
	}
	slot := 2048
	for slot < slotHeaders+ethernetLen+mtu {
		slot *= 2
	}
	block := max(slot, os.Getpagesize())
	req := unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(ringSlots * slot / block), Frame_size: uint32(slot), Frame_nr: ringSlots,
	}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, fmt.Errorf("making a receive ring: %w", err)
	}
	// Queue frames that do not fit into a slot.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_COPY_THRESH, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt PACKET_COPY_THRESH", err)
	}
	memory, err := unix.Mmap(fd, 0, ringSlots*slot, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping the receive ring: %w", err)
	}
	return &ring{memory: memory, slot: slot}, nil
}

func (r *ring) status(slot int) *uint32 {
	return (*uint32)(unsafe.Pointer(&r.memory[slot*r.slot+offStatus]))
}

// take returns the next frame, with a virtio header before it, until give returns it to the kernel; nil when there is
// none. queued means that it is truncated, and complete in the socket's queue.
func (r *ring) take() (frame []byte, queued bool) {
	status := atomic.LoadUint32(r.status(r.nextSlot))
	if status&unix.TP_STATUS_USER == 0 || r.unreturned == ringSlots {
		return nil, false
	}
	slot := r.memory[r.nextSlot*r.slot : (r.nextSlot+1)*r.slot : (r.nextSlot+1)*r.slot]
	if r.nextSlot++; r.nextSlot == ringSlots {
		r.nextSlot = 0
	}
	r.unreturned++
	r.taken++
	mac, n := int(binary.NativeEndian.Uint16(slot[offMAC:])), int(binary.NativeEndian.Uint32(slot[offSnap:]))
	return slot[mac-virtioLen : mac+n], status&unix.TP_STATUS_COPY != 0
}

// give returns all taken frames to the kernel.
func (r *ring) give() {
	for slot := r.nextSlot - r.unreturned; slot < r.nextSlot; slot++ {
		index := slot
		if index < 0 {
			index += ringSlots
		}
		atomic.StoreUint32(r.status(index), unix.TP_STATUS_KERNEL)
	}
	r.unreturned = 0
}

// isStuck reports whether frames were lost although none arrived: the kernel has a slot that it believes it is still
// writing (tpacket_rcv in all kernels so far, after a frame whose aggregation a virtio header cannot express). When a
// thread is too slow, frames are lost while others arrive.
func (r *ring) isStuck(fd int) bool {
	stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	taken := r.taken
	r.taken = 0
	return err == nil && stats.Drops > 0 && taken == 0
}

// renew replaces a socket's ring after all frames were returned.
func (r *ring) renew(fd, mtu int) error {
	if err := unix.Munmap(r.memory); err != nil {
		return fmt.Errorf("unmapping the receive ring: %w", err)
	}
	r.memory = nil
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq{}); err != nil {
		return fmt.Errorf("freeing the receive ring: %w", err)
	}
	other, err := openRing(fd, mtu)
	if err == nil {
		*r = *other
	}
	return err
}

func (r *ring) close() {
	if r.memory != nil {
		unix.Munmap(r.memory)
	}
}

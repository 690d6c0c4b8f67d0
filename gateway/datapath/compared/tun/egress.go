package tun

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// egress is a thread's source of the packets that the kernel sends to the TUN device: a ring that a program
// (device.bpf.c) fills ahead of the device, and the device's queue for packets that the ring refers to.
//
// A record wakes no thread. A thread that finds nothing arms its bell, a word that the program reads, before it sleeps.
// The next packet then goes through the queue, which wakes the thread, and the program rings the bell: it notes in
// another word at which position of the ring that packet belongs. Packets after it use the ring again.
//
// The thread may learn of a packet in the queue, from the ring or the bell, before the packet is there. It then waits a
// moment for it, before it takes later packets.
type egress struct {
	consumer []byte // a page: the thread's read position
	producer []byte // a page with the kernel's write position, followed by the records, mapped twice
	mask     uint64
	next     uint64 // position of the next record
	bell     *deviceBell
	bells    []byte
	armed    bool // the bell was armed, and is not known to have been rung
	lost     uint64
	tries    int // how often to look for a packet in the queue before giving up
	givenUp  int // packets given up recently

	// link keeps the program attached: the first thread's, for all threads.
	link link.Link
}

// egressRing is how many bytes of records, of 1,520 bytes each, wait for a busy thread.
const egressRing = 1 << 20

// egressTries take some 50 µs. A packet that is not in the queue by then was dropped: from the program to the queue a
// packet takes 1 or 2 µs.
const egressTries = 192

// bellTaken is a bit that is set in the word of a rung bell. The other bits are a position in the ring.
const bellTaken = 1

// openEgress delivers packets for a TUN device through rings, one for each of its queues. If it fails, all packets use
// the queues, which the kernel then chooses, also if a program chose them before.
func openEgress(device string, queues []int) (all []*egress, err error) {
	defer func() {
		if err != nil {
			for _, e := range all {
				e.close()
			}
			all, err = nil, errors.Join(err, steer(queues[0], -1))
		}
	}()
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", device, err)
	}
	var objs deviceObjects
	if err := loadEgress(&objs, len(queues)); err != nil {
		return nil, err
	}
	defer objs.Close()
	for i := range queues {
		e := new(egress)
		all = append(all, e)
		if err := e.open(&objs, i); err != nil {
			return all, err
		}
	}
	// to_clients sets the hash by which queues are chosen.
	all[0].link, err = link.AttachTCX(
		link.TCXOptions{Program: objs.ToClients, Interface: dev.Index, Attach: ebpf.AttachTCXEgress})
	if err != nil {
		return all, fmt.Errorf("attaching to_clients: %w", err)
	}
	if len(queues) > 1 {
		if err := steer(queues[0], objs.Steer.FD()); err != nil {
			return all, err
		}
	}
	return all, nil
}

// steer sets the program that chooses among a device's queues; -1: the kernel chooses.
func steer(queue, program int) error {
	if err := unix.IoctlSetPointerInt(queue, unix.TUNSETSTEERINGEBPF, program); err != nil {
		return fmt.Errorf("choosing the device's queues: %w", err)
	}
	return nil
}

// loadEgress loads the programs for a number of threads.
func loadEgress(objs *deviceObjects, threads int) error {
	spec, err := loadDevice()
	if err != nil {
		return err
	}
	if err := spec.Variables[deviceVarThreads].Set(uint32(threads)); err != nil {
		return err
	}
	spec.Maps[deviceMapRings].InnerMap.MaxEntries = egressRing
	if err := spec.LoadAndAssign(objs, nil); err != nil {
		return fmt.Errorf("loading to_clients: %w", err)
	}
	return nil
}

// open creates the ring and finds the bell of a thread.
func (e *egress) open(objs *deviceObjects, thread int) error {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "to_clients", Type: ebpf.RingBuf, MaxEntries: egressRing})
	if err != nil {
		return fmt.Errorf("making a ring for packets to clients: %w", err)
	}
	defer ring.Close() // stays mapped, and referenced by the array of rings
	if err := objs.Rings.Put(uint32(thread), ring); err != nil {
		return fmt.Errorf("putting a ring among those for packets to clients: %w", err)
	}
	page := os.Getpagesize()
	if e.consumer, err = unix.Mmap(ring.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if e.producer, err = unix.Mmap(
		ring.FD(), int64(page), page+2*egressRing, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	const size = int(unsafe.Sizeof(deviceBell{}))
	whole := (int(objs.Bells.MaxEntries())*size + page - 1) / page * page
	if e.bells, err = unix.Mmap(objs.Bells.FD(), 0, whole, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	e.bell = (*deviceBell)(unsafe.Pointer(&e.bells[thread*size]))
	e.mask, e.tries = egressRing-1, egressTries
	return nil
}

// written returns the kernel's write position.
func (e *egress) written() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&e.producer[0])))
}

// take returns the next record, read-only until give returns it to the kernel; nil when there is none. queued reports
// instead, once, that a packet in the queue precedes it.
func (e *egress) take() (r *deviceRecord, queued bool) {
	const header = unix.BPF_RINGBUF_HDR_SZ
	// The order matters: a bell is rung before records after it are written.
	written := e.written()
	bell := e.bellWord()
	for {
		if bell&bellTaken != 0 && e.next >= bell&^bellTaken {
			e.armed = false
			atomic.StoreUint64(&e.bell.Rung, 0)
			return nil, true
		}
		if e.next >= written {
			return nil, false
		}
		index := os.Getpagesize() + int(e.next&e.mask)
		n := atomic.LoadUint32((*uint32)(unsafe.Pointer(&e.producer[index])))
		if n&unix.BPF_RINGBUF_BUSY_BIT != 0 {
			return nil, false
		}
		e.next += header + (uint64(n&^unix.BPF_RINGBUF_DISCARD_BIT)+7)&^7
		if n&unix.BPF_RINGBUF_DISCARD_BIT == 0 {
			return (*deviceRecord)(unsafe.Pointer(&e.producer[index+header])), false
		}
	}
}

// bellWord returns the bell's word; 0: not rung, or handled already.
func (e *egress) bellWord() uint64 { return atomic.LoadUint64(&e.bell.Rung) }

// give returns all taken records to the kernel.
func (e *egress) give() {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&e.consumer[0])), e.next)
}

// arm has the next packet go through the queue. It returns false if there are packets that were not taken yet.
func (e *egress) arm() bool {
	if e.bellWord() != 0 {
		return false
	}
	// A bell that is armed, or was rung, is not armed again: another packet could ring before the first ring was handled.
	if !e.armed {
		e.armed = true
		atomic.StoreUint32(&e.bell.Armed, 1)
	}
	if e.next == e.written() {
		return true
	}
	if atomic.SwapUint32(&e.bell.Armed, 0) == 1 {
		e.armed = false
	}
	return false
}

// overflow returns how many packets found the ring full since the last call.
func (e *egress) overflow() int {
	lost := atomic.LoadUint64(&e.bell.Lost)
	n := lost - e.lost
	e.lost = lost
	return int(n)
}

// close detaches the program, if this egress has the link, and unmaps the ring.
func (e *egress) close() error {
	var errs []error
	if e.link != nil {
		errs = append(errs, e.link.Close())
	}
	for _, memory := range [][]byte{e.consumer, e.producer, e.bells} {
		if memory != nil {
			errs = append(errs, unix.Munmap(memory))
		}
	}
	return errors.Join(errs...)
}

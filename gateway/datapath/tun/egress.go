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

// egress is where a thread takes what the kernel sends to the TUN device from: a ring
// that a program (device.bpf.c) fills ahead of the device, and the device's queue for
// what the ring refers to it.
//
// Nobody is woken for a record. A thread that finds nothing arms its bell before it
// sleeps, and the next packet goes by the queue, which wakes it.
//
// Of a packet in the queue the thread learns from the ring or the bell, maybe before
// it is there: then it waits for it, a moment, before it takes what comes after it.
type egress struct {
	consumer []byte // a page: how far the thread has read
	producer []byte // a page: how far the kernel has written; and behind it the records, twice
	mask     uint64
	next     uint64 // where the next record begins
	bell     *deviceBell
	bells    []byte
	armed    bool // the bell was, and nobody is known to have rung it
	lost     uint64
	tries    int // how often a packet is looked for in the queue before it is given up
	late     int // packets that were given up lately

	// link keeps the program in its place: the first thread's does so for all.
	link link.Link
}

// egressRing is how many bytes of records, of 1,520 bytes each, wait for a thread that
// is busy.
const egressRing = 1 << 20

// egressTries take some 50 µs. A packet that is not in the queue then was dropped: from
// the program to the queue it takes one or two.
const egressTries = 192

// somebody is set in the word of a bell that was rung, beside a place in the ring.
const somebody = 1

// openEgress has packets for a TUN device come by rings, one for each of its queues.
// When it fails all come by the queues, which the kernel chooses, even where somebody
// chose before.
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
	// The hash that queues are chosen by is made by to_clients.
	all[0].link, err = link.AttachTCX(link.TCXOptions{Program: objs.ToClients, Interface: dev.Index, Attach: ebpf.AttachTCXEgress})
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

// steer has a program choose among a device's queues; -1: the kernel.
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

// open makes the ring and finds the bell of a thread.
func (e *egress) open(objs *deviceObjects, thread int) error {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Name: "to_clients", Type: ebpf.RingBuf, MaxEntries: egressRing})
	if err != nil {
		return fmt.Errorf("making a ring for packets to clients: %w", err)
	}
	defer ring.Close() // mapped, and among the rings
	if err := objs.Rings.Put(uint32(thread), ring); err != nil {
		return fmt.Errorf("putting a ring among those for packets to clients: %w", err)
	}
	page := os.Getpagesize()
	if e.consumer, err = unix.Mmap(ring.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return os.NewSyscallError("mmap", err)
	}
	if e.producer, err = unix.Mmap(ring.FD(), int64(page), page+2*egressRing, unix.PROT_READ, unix.MAP_SHARED); err != nil {
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

// written is how far the kernel has written.
func (e *egress) written() uint64 {
	return atomic.LoadUint64((*uint64)(unsafe.Pointer(&e.producer[0])))
}

// take returns the next record, until give gives it back; nil when there is none. Its
// memory can only be read. queued says instead, once, that a packet which comes by the
// queue is ahead of it.
func (e *egress) take() (r *deviceRecord, queued bool) {
	const header = unix.BPF_RINGBUF_HDR_SZ
	// In this order: who rang the bell is known before records behind it are written.
	written := e.written()
	bell := e.rung()
	for {
		if bell&somebody != 0 && e.next >= bell&^somebody {
			e.armed = false
			atomic.StoreUint64(&e.bell.Rung, 0)
			return nil, true
		}
		if e.next >= written {
			return nil, false
		}
		at := os.Getpagesize() + int(e.next&e.mask)
		n := atomic.LoadUint32((*uint32)(unsafe.Pointer(&e.producer[at])))
		if n&unix.BPF_RINGBUF_BUSY_BIT != 0 {
			return nil, false
		}
		e.next += header + (uint64(n&^unix.BPF_RINGBUF_DISCARD_BIT)+7)&^7
		if n&unix.BPF_RINGBUF_DISCARD_BIT == 0 {
			return (*deviceRecord)(unsafe.Pointer(&e.producer[at+header])), false
		}
	}
}

// rung says who rang the bell, as its word of that name; 0: nobody, or it was seen.
func (e *egress) rung() uint64 { return atomic.LoadUint64(&e.bell.Rung) }

// give gives all taken records back to the kernel.
func (e *egress) give() {
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&e.consumer[0])), e.next)
}

// arm has the next packet come by the queue. It reports false where there are packets
// that were not taken yet.
func (e *egress) arm() bool {
	if e.rung() != 0 {
		return false
	}
	// Once only: another packet would ring before it is known who did.
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

// overflow is how many packets found no room since it was last asked.
func (e *egress) overflow() int {
	lost := atomic.LoadUint64(&e.bell.Lost)
	n := lost - e.lost
	e.lost = lost
	return int(n)
}

// close takes the program away, if the link is this one's, and the ring.
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

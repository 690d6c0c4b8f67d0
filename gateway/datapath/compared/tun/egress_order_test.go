// Tests that packets from the kernel reach a client in order, although they come by two ways. An eBPF program puts each
// packet that fits a record into the ring of a thread; others go by a queue of the TUN device. A thread that wants to
// sleep arms its bell: the next packet then goes by the queue, which wakes the thread. egressBench is a host that
// forwards packets into the device (egress_test.go).

package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// numberedAnswer returns packet n of a flow to a client, with n as its IP ID and size bytes of data.
func numberedAnswer(n uint16, size int) []byte { return asAnswer(udp(id(n), carrying(text(size)))) }

// receivedIDs returns the IP IDs of the packets that the client received since the last call.
func (b *bench) receivedIDs(t *testing.T) (all []uint16) {
	for _, ip := range splitMessages(t, b.lan.messages(), ethernetLen) {
		all = append(all, binary.BigEndian.Uint16(ip[4:]))
	}
	return all
}

// TestEgressKeepsOrder: packets of one flow keep their order while the thread that takes them sleeps and is woken, by
// them and by others, at any moment. The packets fit into the ring's records, or are mixed with packets of 2,000 bytes,
// which do not.
func TestEgressKeepsOrder(t *testing.T) {
	for name, size := range map[string]int{"short": 100, "2000 bytes and short": 2000} {
		t.Run(name, func(t *testing.T) { keepsOrder(t, size) })
	}
}

// keepsOrder sends bursts of a flow, which end with a short packet after packets of size bytes, while a thread takes
// them and is woken at random, and checks that they arrive in order. Long: the steps of one run, each of which needs
// the state that the one before left.
func keepsOrder(t *testing.T, size int) {
	x := newEgressBench(t, 1)
	x.Run(t, `ip link set a0 mtu 9000; ip link set b0 mtu 9000; ip link set tun7 mtu 9000
ethtool -K a0 tx off tso off gso off >/dev/null; ethtool -K b0 tx off tso off gso off gro off >/dev/null`)
	b := x.reader(t)
	event, err := unix.Eventfd(0, unix.EFD_NONBLOCK)
	must(t, err)
	defer unix.Close(event)
	wake := func() { unix.Write(event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }
	var done atomic.Bool
	var taken atomic.Int64
	var thread sync.WaitGroup
	thread.Go(func() {
		runtime.LockOSThread()
		fds := []unix.PollFd{{Fd: int32(event), Events: unix.POLLIN}, {Fd: int32(x.queues[0]), Events: unix.POLLIN}}
		for !done.Load() {
			n := b.fast.fromKernel(fds[1].Revents != 0, admission.Now())
			taken.Add(int64(n))
			fds[1].Revents = 0
			if n > 0 || !b.fast.egress.arm() {
				continue
			}
			unix.Poll(fds, 1000)
			read(event, make([]byte, 8))
		}
	})
	defer thread.Wait()
	defer done.Store(true)
	random := rand.New(rand.NewPCG(7, 8))
	var got []uint16
	const all = 40000
	for sent := 0; sent < all; {
		if random.IntN(2) == 0 {
			wake()
		}
		var burst [][]byte
		for last := min(all, sent+2+random.IntN(5)); sent < last; sent++ {
			n := 100
			if sent < last-1 {
				n = size
			}
			burst = append(burst, numberedAnswer(uint16(sent), n))
		}
		x.forwardAggregated(burst...)
		got = append(got, b.receivedIDs(t)...)
		netnstest.Await(t, "room for more", func() error {
			if behind := int64(sent) - taken.Load(); behind > 200 {
				return fmt.Errorf("%d packets behind", behind)
			}
			return nil
		})
	}
	netnstest.Await(t, "all packets", func() error {
		if got = append(got, b.receivedIDs(t)...); len(got) < all {
			return fmt.Errorf("%d of %d came", len(got), all)
		}
		return nil
	})
	if !slices.IsSorted(got) {
		t.Error("packets of a flow have overtaken others")
	}
}

// sendOne sends packet n and waits until it is in a ring or the queue.
func (x *egressBench) sendOne(t *testing.T, n uint16) {
	t.Helper()
	e := x.egresses[0]
	writtenBefore, wordBefore := e.written(), e.bellWord()
	x.forwardSingly(numberedAnswer(n, 100))
	netnstest.Await(t, "a packet on its way", func() error {
		if e.written() == writtenBefore && (e.bellWord() == wordBefore || len(x.readable(t)) == 0) {
			return errors.New("nothing has come")
		}
		return nil
	})
}

// TestEgressNoLostWake: the bell is armed, but the thread goes on instead of sleeping. A packet that rings the bell
// meanwhile is not forgotten: the thread may not sleep before it has taken it.
func TestEgressNoLostWake(t *testing.T) {
	x := newEgressBench(t, 1)
	b := x.reader(t)
	if !b.fast.egress.arm() {
		t.Fatal("nothing has come, and a thread cannot sleep")
	}
	b.fast.fromKernel(false, admission.Now())
	x.sendOne(t, 1)
	if b.fast.egress.arm() {
		t.Error("a thread may sleep while a packet waits")
	}
	x.sendOne(t, 2)
	b.fast.fromKernel(true, admission.Now())
	x.sendOne(t, 3)
	b.fast.fromKernel(false, admission.Now())
	if got := b.receivedIDs(t); !slices.Equal(got, []uint16{1, 2, 3}) {
		t.Errorf("came %v", got)
	}
}

// TestEgressRecordsBeforeBell: a packet written into the ring before the bell was rung is taken before the packet that
// rang it.
func TestEgressRecordsBeforeBell(t *testing.T) {
	x := newEgressBench(t, 1)
	b := x.reader(t)
	x.sendOne(t, 1)
	// The first half of arm. Its second half would find the record and disarm the bell; here packet 2 rings before that.
	b.fast.egress.armed = true
	atomic.StoreUint32(&b.fast.egress.bell.Armed, 1)
	x.sendOne(t, 2)
	x.sendOne(t, 3)
	b.fast.fromKernel(false, admission.Now())
	if got := b.receivedIDs(t); !slices.Equal(got, []uint16{1, 2, 3}) {
		t.Errorf("came %v", got)
	}
}

// TestEgressWaitsForQueuedPacket: the bell was rung, and the packet that rang it is not in the queue yet. The thread
// waits for it before it takes the packets in the ring.
func TestEgressWaitsForQueuedPacket(t *testing.T) {
	x := newEgressBench(t, 1)
	b := x.reader(t)
	e := b.fast.egress
	e.arm()
	x.sendOne(t, 1)
	// Take it out, as if it had not arrived yet.
	if read(x.queues[0], make([]byte, bufferLen)) < 0 {
		t.Fatal("the packet is not in the queue")
	}
	x.sendOne(t, 2)
	// Without the program a packet goes through the queue and rings no bell, as the awaited one does.
	must(t, e.link.Close())
	e.link = nil
	var thread sync.WaitGroup
	thread.Go(func() { b.fast.fromKernel(false, admission.Now()) })
	netnstest.Await(t, "a thread that looks for the packet", func() error {
		if e.bellWord() != 0 {
			return errors.New("it has not seen that the bell was rung")
		}
		return nil
	})
	x.forwardSingly(numberedAnswer(1, 100))
	thread.Wait()
	if got := b.receivedIDs(t); !slices.Equal(got, []uint16{1, 2}) {
		t.Errorf("came %v", got)
	}
}

// TestEgressGivesUpMissingPacket: a packet that does not arrive in the queue does not block others, and when it arrives
// later, it does not take another one's place.
func TestEgressGivesUpMissingPacket(t *testing.T) {
	x := newEgressBench(t, 1)
	x.Run(t, "ip link set a0 mtu 9000; ip link set b0 mtu 9000; ip link set tun7 mtu 9000")
	b := x.reader(t)
	e := b.fast.egress
	e.tries = egressTries // as in the daemon: reader lets a thread look for a packet much longer
	e.arm()
	x.sendOne(t, 1)
	// Take it out, as if it had not arrived yet.
	if read(x.queues[0], make([]byte, bufferLen)) < 0 {
		t.Fatal("the packet is not in the queue")
	}
	x.sendOne(t, 2)
	b.fast.fromKernel(true, admission.Now())
	b.fast.fromKernel(false, admission.Now())
	if got := b.receivedIDs(t); !slices.Equal(got, []uint16{2}) || e.givenUp != 1 {
		t.Fatalf("came %v, %d are late", got, e.givenUp)
	}
	if !e.arm() {
		t.Fatal("nothing more has come, and a thread cannot sleep")
	}
	// Without the program a packet goes through the queue and rings no bell, as the late one does.
	must(t, e.link.Close())
	x.forwardSingly(numberedAnswer(1, 100))
	netnstest.Await(t, "the late packet", func() error {
		if len(x.readable(t)) == 0 {
			return errors.New("it is not in the queue")
		}
		return nil
	})
	b.fast.fromKernel(true, admission.Now())
	if got := b.receivedIDs(t); !slices.Equal(got, []uint16{1}) || e.givenUp != 0 {
		t.Errorf("came %v, %d are late", got, e.givenUp)
	}
	e.link = nil
}

// TestEgressWithoutRings: where opening the rings fails, packets use queues that the kernel chooses, whatever program
// chose them before.
func TestEgressWithoutRings(t *testing.T) {
	x := newEgressBench(t, 3)
	x.close()
	first, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SocketFilter, License: "MIT", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	must(t, err)
	defer first.Close()
	usedQueues := func() int {
		for port := range uint16(40) {
			x.forwardSingly(asAnswer(tcp(ports(port, 443), carrying(text(100)))))
		}
		came, which := 0, map[int]bool{}
		netnstest.Await(t, "packets in the queues", func() error {
			for i, fd := range x.queues {
				for read(fd, make([]byte, bufferLen)) > virtioLen+100 { // the kernel's own are shorter
					came++
					which[i] = true
				}
			}
			if came < 40 {
				return fmt.Errorf("%d came", came)
			}
			return nil
		})
		return len(which)
	}
	must(t, steer(x.queues[0], first.FD()))
	if n := usedQueues(); n != 1 {
		t.Fatalf("%d queues are used, although a program always chooses the first", n)
	}
	x.Do(func() { _, err = openEgress("tun8", x.queues) })
	if err == nil {
		t.Error("a device that is not there has rings")
	}
	if n := usedQueues(); n != 3 {
		t.Errorf("%d queues of 3 are used", n)
	}
}

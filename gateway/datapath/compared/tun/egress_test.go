// Tests of packets from the kernel to clients in the mode fast. tcp and udp make a packet from the client to the site,
// changed by edits (packets_test.go).

package tun

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The tests of egress, a thread's source of the packets that the kernel sends to clients. A BPF program (egress.link
// keeps it attached) writes these packets into the thread's ring. Before the thread sleeps it arms its bell. The next
// packet then goes through the TUN device's queue, which wakes the thread, and the program rings the bell: it writes
// into the bell's word where in the ring this packet belongs. Later packets use the ring again.

// egressBench is a host that forwards packets from a wire into a TUN device, tun7.
type egressBench struct {
	*wire
	queues   []int      // descriptors of the device's queues
	egresses []*egress  // one for each queue
	send     *coalescer // sends to the wire
}

// newEgressBench returns a host whose TUN device has a number of queues.
func newEgressBench(t *testing.T, queues int) *egressBench {
	t.Helper()
	netnstest.NeedTCX(t)
	x := &egressBench{wire: newWire(t)}
	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	x.Do(func() {
		for range queues {
			fd, err := attach("tun7", flags)
			must(t, err)
			x.queues = append(x.queues, fd)
		}
		_, err := offload(x.queues[0])
		must(t, err)
	})
	t.Cleanup(func() {
		for _, fd := range x.queues {
			unix.Close(fd)
		}
	})
	x.Run(t, `sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.b0.rp_filter=0
ip addr add 10.1.0.1/24 dev tun7; ip link set tun7 up`)
	x.Do(func() {
		var err error
		x.egresses, err = openEgress("tun7", x.queues)
		must(t, err)
	})
	t.Cleanup(x.close)
	x.send = &coalescer{fd: x.out, udp: true, headerBytes: ethernetLen, srcMAC: [6]byte{2, 0, 0, 0, 1, 2}}
	return x
}

func (x *egressBench) close() {
	for _, e := range x.egresses {
		e.close()
	}
	x.egresses = nil
}

// reader returns a thread that takes packets from the first ring and queue: fast.fromKernel takes a batch of them, and
// lan receives what it sends to clients. The thread waits for announced packets longer than any scheduling delay.
func (x *egressBench) reader(t *testing.T) *bench {
	b := newBench(t)
	b.fast.device, b.fast.egress = x.queues[0], x.egresses[0]
	b.fast.egress.tries = 1 << 22
	for range batch {
		b.fast.buffers = append(b.fast.buffers, make([]byte, bufferLen))
	}
	return b
}

// forwardAggregated makes the host forward packets, successive ones of a flow as one aggregated packet.
func (x *egressBench) forwardAggregated(packets ...[]byte) {
	for _, ip := range packets {
		x.send.add(bytes.Clone(ip), virtio{}, datapath.MAC{2, 0, 0, 0, 1, 1})
	}
	x.send.flush()
}

// forwardSingly makes the host forward packets one by one.
func (x *egressBench) forwardSingly(packets ...[]byte) {
	for _, ip := range packets {
		x.forwardAggregated(ip)
	}
}

// asAnswer returns a packet from the client with its addresses exchanged, as an answer from the site. The checksums
// stay right.
func asAnswer(ip []byte) []byte {
	ip = bytes.Clone(ip)
	copy(ip[12:], site.AsSlice())
	copy(ip[16:], client.AsSlice())
	return ip
}

// hop returns a packet after one hop: the TTL is one less.
func hop(ip []byte) []byte {
	ip = bytes.Clone(ip)
	ip[8]--
	sumHeader(ip)
	return ip
}

// TestEgress: packets that the kernel forwards to clients arrive by ring and queue, complete and in the order of each
// flow. Some rounds are aggregated, and in some the first packet wakes a thread. Without a ring all packets arrive by
// the queue.
func TestEgress(t *testing.T) {
	for name, ring := range map[string]bool{"ring": true, "queue": false} {
		t.Run(name, func(t *testing.T) { comesOut(t, ring) })
	}
}

func comesOut(t *testing.T, ring bool) {
	x := newEgressBench(t, 1)
	b := x.reader(t)
	if !ring {
		b.fast.egress = nil
		x.close()
	}
	random := rand.New(rand.NewPCG(7, 8))
	for round := range 20 {
		var sent, want, got [][]byte
		for _, ip := range mixed(random) {
			sent, want = append(sent, asAnswer(ip)), append(want, hop(asAnswer(ip)))
		}
		if ring && round%2 == 0 && !b.fast.egress.arm() {
			t.Fatal("nothing has come, and a thread cannot sleep")
		}
		forward := x.forwardAggregated
		if round%4 > 1 {
			forward = x.forwardSingly
		}
		forward(sent...)
		netnstest.Await(t, "the packets of a round", func() error {
			for b.fast.fromKernel(false, admission.Now()) > 0 {
				got = append(got, splitMessages(t, b.lan.messages(), ethernetLen)...)
			}
			if len(got) < len(want) {
				return fmt.Errorf("%d of %d came", len(got), len(want))
			}
			return nil
		})
		comparePackets(t, got, want)
	}
}

// readable returns the queues that have a packet.
func (x *egressBench) readable(t *testing.T) (which []int) {
	t.Helper()
	var fds []unix.PollFd
	for _, fd := range x.queues {
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	_, err := unix.Poll(fds, 0)
	must(t, err)
	for i, f := range fds {
		if f.Revents != 0 {
			which = append(which, i)
		}
	}
	return which
}

// record waits for the next record of a ring.
func (x *egressBench) record(t *testing.T, e *egress) (r *deviceRecord) {
	t.Helper()
	netnstest.Await(t, "a record in a ring", func() error {
		var queued bool
		if r, queued = e.take(); r == nil {
			return fmt.Errorf("there is none; a packet in the queue precedes it: %v", queued)
		}
		return nil
	})
	return r
}

// TestEgressWakes: of several sleeping threads, a packet wakes the one whose ring gets the following packets.
func TestEgressWakes(t *testing.T) {
	x := newEgressBench(t, 3)
	buf, woken := make([]byte, bufferLen), map[int]bool{}
	for port := range uint16(40) {
		for _, e := range x.egresses {
			if !e.arm() {
				t.Fatal("a thread cannot sleep although its own ring is empty")
			}
		}
		packet := func(n uint16) []byte { return asAnswer(tcp(ports(port, 443), id(n), carrying(text(100)))) }
		x.forwardSingly(packet(1), packet(2))
		var threads []int
		netnstest.Await(t, "a thread that is woken", func() error {
			if threads = x.readable(t); len(threads) == 0 {
				return errors.New("none is")
			}
			return nil
		})
		e := x.egresses[threads[0]]
		if r, queued := e.take(); r != nil || !queued {
			t.Fatalf("first comes %+v, not the packet that woke the thread", r)
		}
		r := x.record(t, e)
		if len(threads) > 1 || r.Len == 0 {
			t.Fatalf("woken are %v; the record has %d bytes", threads, r.Len)
		}
		n := read(x.queues[threads[0]], buf)
		if first := buf[virtioLen:max(n, virtioLen)]; !bytes.Equal(first[:20], hop(packet(1))[:20]) ||
			!bytes.Equal(r.Packet[:20], hop(packet(2))[:20]) {
			t.Fatalf("by the queue came %x, by the ring %x", first[:20], r.Packet[:20])
		}
		e.give()
		woken[threads[0]] = true
	}
	if len(woken) != len(x.egresses) {
		t.Errorf("of %d threads only %v ever were", len(x.egresses), woken)
	}
}

// TestEgressRingFull: packets that find the ring full are dropped and counted; others stay.
func TestEgressRingFull(t *testing.T) {
	x := newEgressBench(t, 1)
	e := x.egresses[0]
	const more = 30
	const record = 8 + 1512 // bytes in the ring: the kernel's header of a record, and struct record
	sent, lost, came := egressRing/record+more, 0, 0
	for i := range sent {
		x.forwardSingly(asAnswer(udp(id(uint16(i)), carrying(text(100)))))
		if i%100 > 0 && i < sent-1 {
			continue
		}
		netnstest.Await(t, "packets on their way", func() error {
			lost += e.overflow()
			if came = int(e.written() / record); came+lost != i+1 {
				return fmt.Errorf("%d came, %d found no room of %d", came, lost, i+1)
			}
			return nil
		})
	}
	if lost < more || lost > more+1 { // the kernel may leave the room of one record unused
		t.Errorf("%d were lost, want %d", lost, more)
	}
	for i := range came {
		if r, _ := e.take(); r == nil || r.Packet[4] != byte(i>>8) || r.Packet[5] != byte(i) {
			t.Fatalf("record %d is %+v", i, r)
		}
	}
	if r, queued := e.take(); r != nil || queued {
		t.Error("one more came")
	}
}

// TestEgressLongPackets: a packet too long for a record, and a packet of the gateway's own, go through the queue. For
// each the ring has a record of length 0 at its position. Without the ring all packets arrive by the queue.
func TestEgressLongPackets(t *testing.T) {
	x := newEgressBench(t, 1)
	x.Run(t, "ip link set a0 mtu 9000; ip link set b0 mtu 9000; ip link set tun7 mtu 9000")
	e, buf := x.egresses[0], make([]byte, bufferLen)
	readsWhole := func(want []byte) {
		t.Helper()
		netnstest.Await(t, "a packet in the queue", func() error {
			if n := read(x.queues[0], buf); n != virtioLen+len(want) || !bytes.Equal(buf[virtioLen:n], want) {
				return fmt.Errorf("%d bytes", n)
			}
			return nil
		})
	}
	long, longest := asAnswer(udp(carrying(text(5000)))), asAnswer(udp(carrying(text(1500-28))))
	x.forwardSingly(long, longest)
	readsWhole(hop(long))
	x.Run(t, "ping -c 1 -W 0.1 -s 100 10.1.0.10 >/dev/null || true")
	var lens []uint16
	for range 3 {
		lens = append(lens, x.record(t, e).Len)
	}
	if !slices.Equal(lens, []uint16{0, 1500, 0}) {
		t.Errorf("records of %v bytes", lens)
	}
	if n := read(x.queues[0], buf); n != virtioLen+28+100 {
		t.Errorf("the gateway's own has %d bytes", n)
	}
	e.give()
	if !e.arm() {
		t.Error("more has come")
	}
	x.close()
	for range 2 {
		x.forwardSingly(longest)
		readsWhole(hop(longest))
	}
}

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

// egressBench is a host that forwards from a wire into a TUN device, and reads its packets from the device's rings.
type egressBench struct {
	*wire
	queues   []int
	egresses []*egress
	send     *coalescer
}

func newExits(t *testing.T, queues int) *egressBench {
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

// reader is a thread that takes packets from the first ring and queue, and waits for announced packets longer than any
// scheduling delay.
func (x *egressBench) reader(t *testing.T) *bench {
	b := newBench(t)
	b.fast.device, b.fast.exit = x.queues[0], x.egresses[0]
	b.fast.exit.tries = 1 << 22
	for range batch {
		b.fast.buffers = append(b.fast.buffers, make([]byte, bufferLen))
	}
	return b
}

// forward has the host forward packets: runs of a flow aggregated unless single is true.
func (x *egressBench) forward(single bool, packets ...[]byte) {
	for _, ip := range packets {
		x.send.add(bytes.Clone(ip), virtio{}, datapath.MAC{2, 0, 0, 0, 1, 1})
		if single {
			x.send.flush()
		}
	}
	x.send.flush()
}

// asAnswer returns a packet from the client as an answer from the site, with right checksums.
func asAnswer(ip []byte) []byte {
	ip = bytes.Clone(ip)
	copy(ip[12:], site.AsSlice())
	copy(ip[16:], client.AsSlice())
	return ip
}

// hop returns a packet after one hop.
func hop(ip []byte) []byte {
	ip = bytes.Clone(ip)
	ip[8]--
	sumHeader(ip)
	return ip
}

// TestEgress: packets that the kernel forwards to clients arrive by ring and queue, complete and in the order of each
// flow. Aggregated and short packets are mixed, and the packet that wakes a thread is one of them. Without a ring
// everything arrives by the queue.
func TestEgress(t *testing.T) {
	for name, ring := range map[string]bool{"ring": true, "queue": false} {
		t.Run(name, func(t *testing.T) { comesOut(t, ring) })
	}
}

func comesOut(t *testing.T, ring bool) {
	x := newExits(t, 1)
	b := x.reader(t)
	if !ring {
		b.fast.exit = nil
		x.close()
	}
	random := rand.New(rand.NewPCG(7, 8))
	for round := range 20 {
		var sent, want, got [][]byte
		for _, ip := range mixed(random) {
			sent, want = append(sent, asAnswer(ip)), append(want, hop(asAnswer(ip)))
		}
		if ring && round%2 == 0 && !b.fast.exit.arm() {
			t.Fatal("nothing has come, and a thread cannot sleep")
		}
		x.forward(round%4 > 1, sent...)
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
			return fmt.Errorf("there is none; ahead of it comes one by the queue: %v", queued)
		}
		return nil
	})
	return r
}

// TestEgressWakes: of several sleeping threads, a packet wakes the one whose ring gets the following packets.
func TestEgressWakes(t *testing.T) {
	x := newExits(t, 3)
	buf, woken := make([]byte, bufferLen), map[int]bool{}
	for port := range uint16(40) {
		for _, e := range x.egresses {
			if !e.arm() {
				t.Fatal("a thread cannot sleep for the records of another one's packets")
			}
		}
		packet := func(n uint16) []byte { return asAnswer(tcp(ports(port, 443), id(n), carrying(text(100)))) }
		x.forward(true, packet(1), packet(2))
		var threads []int
		netnstest.Await(t, "a thread that is woken", func() error {
			if threads = x.readable(t); len(threads) == 0 {
				return errors.New("none is")
			}
			return nil
		})
		e := x.egresses[threads[0]]
		if r, queued := e.take(); r != nil || !queued {
			t.Fatalf("first comes %+v, not who woke the thread", r)
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
	x := newExits(t, 1)
	e := x.egresses[0]
	const more = 30
	sent, lost, came := egressRing/(8+1512)+more, 0, 0
	for i := range sent {
		x.forward(true, asAnswer(udp(id(uint16(i)), carrying(text(100)))))
		if i%100 > 0 && i < sent-1 {
			continue
		}
		netnstest.Await(t, "packets on their way", func() error {
			lost += e.overflow()
			if came = int(e.written() / (8 + 1512)); came+lost != i+1 {
				return fmt.Errorf("%d came, %d found no room of %d", came, lost, i+1)
			}
			return nil
		})
	}
	if lost < more || lost > more+1 { // a record may be left out for the ring to know itself full
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

// TestEgressLongPackets: packets too long for a record, and the gateway's own, are announced in the ring and complete
// in the queue; without the ring everything arrives by the queue.
func TestEgressLongPackets(t *testing.T) {
	x := newExits(t, 1)
	x.Run(t, "ip link set a0 mtu 9000; ip link set b0 mtu 9000; ip link set tun7 mtu 9000")
	e, buf := x.egresses[0], make([]byte, bufferLen)
	whole := func(want []byte) {
		t.Helper()
		netnstest.Await(t, "a packet in the queue", func() error {
			if n := read(x.queues[0], buf); n != virtioLen+len(want) || !bytes.Equal(buf[virtioLen:n], want) {
				return fmt.Errorf("%d bytes", n)
			}
			return nil
		})
	}
	long, longest := asAnswer(udp(carrying(text(5000)))), asAnswer(udp(carrying(text(1500-28))))
	x.forward(true, long, longest)
	whole(hop(long))
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
		x.forward(true, longest)
		whole(hop(longest))
	}
}

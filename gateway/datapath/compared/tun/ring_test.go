// Tests of the ring in memory by which a packet socket receives frames. wire is a link of this host with itself.

package tun

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

var must = netnstest.Must

// The tests of the receive ring of a packet socket, on a link of this host with itself.

// wire is a link of this host with itself: a frame sent at one end, the interface a0, arrives in a ring at the other,
// b0.
type wire struct {
	*netnstest.Space
	out, in int   // the packet sockets at the two ends
	ring    *ring // of in
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{Space: netnstest.NewSpace(t)}
	w.Run(t, netnstest.Up+netnstest.NoIPv6+
		`ip link add name a0 type veth peer name b0; ip link set a0 up; ip link set b0 address 02:00:00:00:01:01 up; up a0 b0`)
	w.Do(func() {
		var from, to *net.Interface
		var err error
		if from, err = net.InterfaceByName("a0"); err == nil {
			to, err = net.InterfaceByName("b0")
		}
		if err == nil {
			w.out, err = openSocket()
		}
		if err == nil {
			err = unix.Bind(w.out, &unix.SockaddrLinklayer{Ifindex: from.Index})
		}
		if err == nil {
			w.in, err = openSocket()
		}
		if err == nil {
			w.ring, err = openRing(w.in, to.MTU)
		}
		if err == nil {
			err = listen(w.in, to)
		}
		must(t, err)
	})
	t.Cleanup(func() { w.ring.close(); unix.Close(w.in); unix.Close(w.out) })
	return w
}

// send sends a frame with its checksums, not aggregated.
func (w *wire) send(t *testing.T, frame []byte) {
	t.Helper()
	if n := write(w.out, append(make([]byte, virtioLen), frame...)); n < 0 {
		t.Fatal("a frame cannot be sent")
	}
}

// take waits for the next frame. queued: it is truncated, and complete in the socket's queue.
func (w *wire) take(t *testing.T) (frame []byte, queued bool) {
	t.Helper()
	netnstest.Await(t, "a frame in the ring", func() error {
		if frame, queued = w.ring.take(); frame == nil {
			return errors.New("none came")
		}
		return nil
	})
	return frame, queued
}

// numbered returns a frame with a number.
func numbered(n int) []byte {
	return datapathtest.UDP(443, datapathtest.Carrying(fmt.Appendf(nil, "frame %07d.", n)))
}

// TestRing sends more frames than a ring has slots, also after the ring was replaced: each arrives once, complete and
// in order.
func TestRing(t *testing.T) {
	netnstest.OnOneCPU(t)
	w := newWire(t)
	n := 0
	round := func(batch int) {
		t.Helper()
		for i := range batch {
			w.send(t, numbered(n+i))
		}
		for range batch {
			frame, queued := w.take(t)
			if want := numbered(n); queued || !bytes.Equal(frame[frameStart:], want) || !readVirtio(frame).isComplete() {
				t.Fatalf("frame %d: queued %v, virtio %+v\n%x\nwant\n%x", n, queued, readVirtio(frame), frame[frameStart:], want)
			}
			n++
		}
		w.ring.give()
	}
	for n < 2*ringSlots {
		round(100)
	}
	must(t, w.ring.renew(w.in, 1500))
	for n < 3*ringSlots+200 {
		round(100)
	}
	if frame, _ := w.ring.take(); frame != nil {
		t.Errorf("one more came: %x", frame)
	}
}

// fill sends numbered frames that are not taken, and returns how many found no slot.
func (w *wire) fill(t *testing.T, frames int) (lost uint32) {
	t.Helper()
	var came uint32
	for i := range frames {
		w.send(t, numbered(i))
		if i%100 > 0 && i < frames-1 {
			continue
		}
		netnstest.Await(t, "frames on their way", func() error {
			// otherwise a busy machine's queue overflows instead of the ring
			stats, err := unix.GetsockoptTpacketStats(w.in, unix.SOL_PACKET, unix.PACKET_STATISTICS)
			must(t, err)
			came, lost = came+stats.Packets, lost+stats.Drops
			if came != uint32(i+1) {
				return fmt.Errorf("%d of %d came", came, i+1)
			}
			return nil
		})
	}
	return lost
}

// TestRingIsFull: frames that find no slot are lost and counted; the others stay intact.
func TestRingIsFull(t *testing.T) {
	w := newWire(t)
	if w.ring.isStuck(w.in) {
		t.Error("a ring is stuck to which no frame came")
	}
	const more = 50
	if lost := w.fill(t, ringSlots+more); lost != more {
		t.Errorf("%d frames were lost, want %d", lost, more)
	}
	for i := range ringSlots {
		if frame, _ := w.take(t); !bytes.Equal(frame[frameStart:], numbered(i)) {
			t.Fatalf("frame %d is %x", i, frame)
		}
	}
	if frame, _ := w.ring.take(); frame != nil {
		t.Error("a slot is taken twice")
	}
	w.send(t, numbered(0)) // lost: no slot was given back
	if w.ring.isStuck(w.in) {
		t.Error("a ring is stuck though frames were taken from it")
	}
	netnstest.Await(t, "a ring that is stuck", func() error {
		w.send(t, numbered(0))
		if !w.ring.isStuck(w.in) {
			return errors.New("it is not, although frames are lost and none is taken")
		}
		return nil
	})
	w.ring.give()
	w.send(t, numbered(7))
	frame, _ := w.take(t)
	for bytes.Equal(frame[frameStart:], numbered(0)) { // sent before, and late
		frame, _ = w.take(t)
	}
	if !bytes.Equal(frame[frameStart:], numbered(7)) {
		t.Errorf("after all slots were given back came %x", frame)
	}
}

// TestLongFrames: a frame longer than a slot waits complete in the socket.
func TestLongFrames(t *testing.T) {
	w := newWire(t)
	w.Run(t, "ip link set a0 mtu 9000; ip link set b0 mtu 9000")
	long := datapathtest.UDP(443, datapathtest.Carrying(bytes.Repeat([]byte("long "), 1600)))
	w.send(t, numbered(1))
	w.send(t, long)
	w.send(t, numbered(2))
	buf := make([]byte, bufferLen)
	for i, want := range [][]byte{numbered(1), long, numbered(2)} {
		frame, queued := w.take(t)
		if queued != (i == 1) {
			t.Errorf("frame %d: queued %v", i, queued)
		}
		if queued {
			frame = buf[:max(0, read(w.in, buf))]
		}
		if !bytes.Equal(frame[min(frameStart, len(frame)):], want) {
			t.Errorf("frame %d: %d bytes, want %d", i, len(frame)-frameStart, len(want))
		}
	}
}

// TestListenIgnores: frames for other hosts, of other networks on the same wire, and from this host are not received.
func TestListenIgnores(t *testing.T) {
	w := newWire(t)
	w.send(t, datapathtest.UDP(443, datapathtest.Via([6]byte{2, 0, 0, 0, 9, 9})))
	w.send(t, datapathtest.Tagged(numbered(1), 0x8100, 5))
	if n := write(w.in, append(make([]byte, virtioLen), numbered(2)...)); n < 0 {
		t.Fatal("a frame cannot be sent the other way")
	}
	w.send(t, datapathtest.Tagged(numbered(3), 0x8100, 0xe000)) // a priority tag is not another network
	w.send(t, numbered(4))
	for _, want := range []int{3, 4} {
		if frame, _ := w.take(t); !bytes.Equal(frame[frameStart:], numbered(want)) {
			t.Errorf("got %x, want frame %d", frame, want)
		}
	}
}

package datapathtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// Flow sends numbered UDP packets from one namespace to another and records which have arrived; duplicates count once.
// Send and Begin send, and Passes, Stops and Whole check what arrives. A label is what a test's message says about it.
type Flow struct {
	out, in *net.UDPConn
	sent    atomic.Uint64
	arrived sync.Map // number → struct{}
	came    atomic.Uint64
	sending sync.WaitGroup
	done    sync.WaitGroup
	stop    atomic.Bool
	backlog uint64 // packets that the machine's backlogs had dropped when the flow began
}

// FlowBytes is the default payload of a Flow's packet.
const FlowBytes = 100

// NewFlow joins two addresses; it ends with the test.
func NewFlow(t *testing.T, from *netnstest.Space, source netip.Addr, to *netnstest.Space,
	destination netip.Addr) *Flow {
	t.Helper()
	f := &Flow{backlog: backlogDrops(t)}
	var err error
	to.Do(func() {
		if f.in, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(destination, 0))); err == nil {
			err = sockbuf.ReceiveOn(f.in, 8<<20) // packets lost in this buffer would count as lost on the way
		}
	})
	must(t, err)
	from.Do(func() {
		f.out, err = net.DialUDP(
			"udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), f.in.LocalAddr().(*net.UDPAddr))
	})
	must(t, err)
	f.done.Go(f.receive)
	t.Cleanup(func() { f.stop.Store(true); f.out.Close(); f.in.Close(); f.sending.Wait(); f.done.Wait() })
	return f
}

// Up is a flow from a station to the server.
func (w *World) Up(t *testing.T, s Station) *Flow {
	t.Helper()
	return NewFlow(t, s.Space, s.Addr, w.Server, Server)
}

// Down is a flow from the server to a station.
func (w *World) Down(t *testing.T, s Station) *Flow {
	t.Helper()
	return NewFlow(t, w.Server, Server, s.Space, s.Addr)
}

// receive records arriving packets until the socket is closed.
func (f *Flow) receive() {
	b := make([]byte, 2000)
	for {
		n, err := f.in.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < 8 {
			continue
		}
		if _, twice := f.arrived.LoadOrStore(binary.BigEndian.Uint64(b), struct{}{}); !twice {
			f.came.Add(1)
		}
	}
}

// Send sends n packets.
func (f *Flow) Send(n int) {
	for range n {
		f.SendSized(FlowBytes)
	}
}

// SendSized sends a packet with the given payload, and returns its number.
func (f *Flow) SendSized(bytes int) uint64 {
	b := make([]byte, bytes)
	number := f.sent.Add(1)
	binary.BigEndian.PutUint64(b, number)
	for range 3 {
		if _, err := f.out.Write(b); err == nil {
			break
		} // else an ICMP error of an earlier packet was reported, and this one was not sent
	}
	return number
}

// Begin sends some thousand packets a second until Halt.
func (f *Flow) Begin() {
	f.sending.Go(func() {
		for !f.stop.Load() {
			f.Send(1)
			time.Sleep(300 * time.Microsecond)
		}
	})
}

// Halt stops sending and waits for packets in flight.
func (f *Flow) Halt() {
	f.stop.Store(true)
	f.sending.Wait()
	f.Settle()
}

// Whole waits until every sent packet has arrived, but for as many as the machine's backlogs have dropped meanwhile.
func (f *Flow) Whole(t *testing.T, label string) {
	t.Helper()
	netnstest.Await(t, "all packets: "+label, func() error {
		came, sent, dropped := f.Came(), f.Sent(), backlogDrops(t)-f.backlog
		if came+dropped < sent {
			return fmt.Errorf("%d of %d came, and the machine's backlogs dropped %d", came, sent, dropped)
		}
		return nil
	})
}

// backlogDrops is how many packets the kernel has dropped for want of room between a veth and its other end. All
// networks of a machine share a queue on each CPU, so a flood in one is loss in another.
func backlogDrops(t *testing.T) (n uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/softnet_stat")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 {
			dropped, err := strconv.ParseUint(f[1], 16, 64)
			must(t, err)
			n += dropped
		}
	}
	return n
}

// Settle waits until nothing has arrived for a while.
func (f *Flow) Settle() {
	for last, still := uint64(1<<64-1), 0; still < 5; time.Sleep(20 * time.Millisecond) {
		now := f.came.Load()
		if still++; now != last {
			last, still = now, 0
		}
	}
}

// Sent returns the number of sent packets.
func (f *Flow) Sent() uint64 { return f.sent.Load() }

// Came returns the number of different packets that arrived.
func (f *Flow) Came() uint64 { return f.came.Load() }

// CameAfter counts arrived packets with higher numbers.
func (f *Flow) CameAfter(number uint64) (n uint64) {
	f.arrived.Range(func(k, _ any) bool {
		if k.(uint64) > number {
			n++
		}
		return true
	})
	return n
}

// Passes waits until packets arrive that were sent after the call.
func (f *Flow) Passes(t *testing.T, label string) {
	t.Helper()
	from := f.Sent()
	netnstest.Await(t, "packets: "+label, func() error {
		if f.CameAfter(from) < 20 {
			return errors.New("none arrives")
		}
		return nil
	})
}

// Stops checks that no packet sent after the call arrives.
func (f *Flow) Stops(t *testing.T, label string) {
	t.Helper()
	from := f.Sent()
	for f.Sent() < from+100 {
		time.Sleep(time.Millisecond)
	}
	f.Settled(t, from, label)
}

// Ends waits until packets that are being sent no longer arrive.
func (f *Flow) Ends(t *testing.T, label string) {
	t.Helper()
	netnstest.Await(t, "the end of packets: "+label, func() error {
		from := f.Sent()
		for f.Sent() < from+100 {
			time.Sleep(time.Millisecond)
		}
		if n := f.CameAfter(from); n > 0 {
			return fmt.Errorf("%d of %d arrived", n, f.Sent()-from)
		}
		return nil
	})
	f.Stops(t, label)
}

// Settled checks that no packet with a higher number has arrived, or arrives.
func (f *Flow) Settled(t *testing.T, number uint64, label string) {
	t.Helper()
	time.Sleep(100 * time.Millisecond)
	if n := f.CameAfter(number); n > 0 {
		t.Errorf("%s: %d of %d packets arrived", label, n, f.Sent()-number)
	}
}

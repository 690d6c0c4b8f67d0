package queue

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

func TestMain(m *testing.M) {
	netnstest.Main(m, `mount -t tmpfs none /run; ip link set lo up`)
}

var must = netnstest.Must

// queueBench is a namespace where a rule queues packets to UDP port 9 of loopback, unless they have the mark 5. out
// sends them, and in receives those that pass.
type queueBench struct {
	*netnstest.Space
	in, out *net.UDPConn
}

// queueNumber is the number of the queue.
const queueNumber = 7

// newQueueBench returns a bench, in whose namespace it has run further commands.
func newQueueBench(t *testing.T, rules ...string) *queueBench {
	t.Helper()
	p := &queueBench{Space: netnstest.NewSpace(t)}
	p.Run(t, `iptables -A INPUT -p udp --dport 9 -m mark ! --mark 5 -j NFQUEUE --queue-num 7; `+strings.Join(rules, "; "))
	p.Do(func() {
		var err error
		p.in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
		must(t, err)
		must(t, sockbuf.ReceiveOn(p.in, 8<<20))
		p.out, err = net.DialUDP("udp4", nil, p.in.LocalAddr().(*net.UDPAddr))
		must(t, err)
	})
	t.Cleanup(func() { p.in.Close(); p.out.Close() })
	return p
}

// open opens the queue in the namespace, where judge judges packets until the test ends; nil: nobody does.
func (p *queueBench) open(t *testing.T, cfg Config, judge Judge) *Queue {
	t.Helper()
	cfg.Number = queueNumber
	var q *Queue
	var err error
	p.Do(func() { q, err = Open(cfg) })
	must(t, err)
	var done sync.WaitGroup
	if judge != nil {
		done.Go(func() {
			if err := q.Run(judge, nil); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		done.Wait()
	})
	return q
}

// onePacket returns a judge that decides about one packet at a time.
func onePacket(one func(Packet) Verdict) Judge {
	return func(packets []Packet, verdicts []Verdict) {
		for i, p := range packets {
			verdicts[i] = one(p)
		}
	}
}

func (p *queueBench) send(t *testing.T, text string) {
	t.Helper()
	_, err := p.out.Write([]byte(text))
	must(t, err)
}

func (p *queueBench) receive(t *testing.T) string {
	t.Helper()
	b := make([]byte, 70000)
	must(t, p.in.SetReadDeadline(time.Now().Add(2*time.Minute))) // so that a test whose packet never comes ends
	n, err := p.in.Read(b)
	must(t, err)
	return string(b[:n])
}

// TestVerdictsAreObeyed: packets pass (a for accept), are dropped (d), or traverse the rules again with a mark (r), in
// order and at any batch size.
func TestVerdictsAreObeyed(t *testing.T) {
	for name, cfg := range map[string]Config{"one by one": {}, "in batches": {Batch: 32, CopyBytes: 64, GSO: true}} {
		t.Run(name, func(t *testing.T) {
			p := newQueueBench(t)
			var judged atomic.Int64
			p.open(t, cfg, onePacket(func(p Packet) Verdict {
				judged.Add(1)
				if p.Hook != Input || p.In == 0 || len(p.Data) < 29 || p.Data[0]>>4 != 4 || p.Length < len(p.Data) {
					t.Errorf("%+v", p)
				}
				switch p.Data[28] {
				case 'a':
					return Verdict{Kind: Accept}
				case 'r': // the rule does not queue packets with this mark
					return Verdict{Kind: Repeat, Mark: 5}
				}
				return Verdict{}
			}))
			const rounds = 100
			for n := range rounds {
				for _, kind := range "adrdda" {
					p.send(t, fmt.Sprintf("%c%d", kind, n))
				}
			}
			for n := range rounds {
				for _, kind := range "ara" {
					if got, want := p.receive(t), fmt.Sprintf("%c%d", kind, n); got != want {
						t.Fatalf("received %q, want %q", got, want)
					}
				}
			}
			if n := judged.Load(); n != 6*rounds {
				t.Errorf("%d packets were judged, want %d", n, 6*rounds)
			}
		})
	}
}

// TestHold: a packet waits until it is released, however many are judged after it, and a packet held when the queue
// closes is dropped.
func TestHold(t *testing.T) {
	for name, cfg := range map[string]Config{"one by one": {}, "in batches": {Batch: 32, CopyBytes: 64, GSO: true}} {
		t.Run(name, func(t *testing.T) {
			p := newQueueBench(t)
			held := make(chan func(Verdict), 3)
			var q atomic.Pointer[Queue]
			q.Store(p.open(t, cfg, onePacket(func(p Packet) Verdict {
				if p.Data[28] != 'h' {
					return Verdict{Kind: Accept}
				}
				held <- q.Load().Hold(p.ID)
				return Verdict{Kind: Held}
			})))
			for n := range 100 {
				if n%40 == 0 { // three packets
					p.send(t, fmt.Sprintf("h%d", n))
				}
				p.send(t, fmt.Sprintf("a%d", n))
			}
			for n := range 100 {
				if got, want := p.receive(t), fmt.Sprintf("a%d", n); got != want {
					t.Fatalf("received %q, want %q", got, want)
				}
			}
			(<-held)(Verdict{Kind: Accept})
			if got := p.receive(t); got != "h0" {
				t.Errorf("received %q, want the packet that was released", got)
			}
			(<-held)(Verdict{})
			p.send(t, "a again")
			if got := p.receive(t); got != "a again" {
				t.Errorf("received %q, after a held packet was dropped", got)
			}
			must(t, q.Load().Close())
			(<-held)(Verdict{Kind: Accept})
			must(t, p.in.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
			if n, err := p.in.Read(make([]byte, 100)); err == nil {
				t.Errorf("a packet of %d bytes came that was held when the queue was closed", n)
			}
		})
	}
}

// TestCopyBytes: only the beginning is copied, and Length is that of the whole packet.
func TestCopyBytes(t *testing.T) {
	p := newQueueBench(t)
	seen := make(chan Packet, 1)
	p.open(t, Config{CopyBytes: 40}, onePacket(func(p Packet) Verdict { seen <- p; return Verdict{Kind: Accept} }))
	p.send(t, strings.Repeat("x", 1000))
	if got := <-seen; len(got.Data) != 40 || got.Length != 1028 {
		t.Errorf("%d of %d bytes came, want 40 of 1028", len(got.Data), got.Length)
	}
	if got := p.receive(t); len(got) != 1000 {
		t.Errorf("%d bytes arrived, want 1000", len(got))
	}
}

// TestAggregates: with GSO an aggregated packet is delivered unchanged. Without, it is delivered as several packets
// with checksums.
func TestAggregates(t *testing.T) {
	for _, gso := range []bool{true, false} {
		p := newQueueBench(t)
		var packets, aggregated atomic.Int64
		p.open(t, Config{GSO: gso, CopyBytes: 64}, onePacket(func(p Packet) Verdict {
			packets.Add(1)
			if p.GSO {
				aggregated.Add(1)
			}
			if !gso && p.Unsummed {
				t.Error("a packet without its checksum")
			}
			return Verdict{Kind: Accept}
		}))
		rc, err := p.out.SyscallConn()
		must(t, err)
		var set error
		must(t, rc.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1000) }))
		must(t, set)
		p.send(t, strings.Repeat("x", 10_000))
		for range 10 {
			if got := p.receive(t); len(got) != 1000 {
				t.Errorf("%d bytes arrived, want 1000", len(got))
			}
		}
		want := [2]int64{10, 0}
		if gso {
			want = [2]int64{1, 1}
		}
		if got := [2]int64{packets.Load(), aggregated.Load()}; got != want {
			t.Errorf("GSO %v: %d packets, %d of them aggregated; want %v", gso, got[0], got[1], want)
		}
	}
}

// TestFullQueueDrops: a full queue drops packets and counts them. No packet passes for lack of room.
func TestFullQueueDrops(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		kind func(Drops) uint64
	}{
		"queue":  {Config{Packets: 10, Batch: 4}, func(d Drops) uint64 { return d.Full }},
		"buffer": {Config{Packets: 10_000, Buffer: 8192}, func(d Drops) uint64 { return d.Unread }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newQueueBench(t)
			release, waiting := make(chan struct{}), make(chan struct{}, 1000)
			q := p.open(t, c.cfg,
				onePacket(func(Packet) Verdict { waiting <- struct{}{}; <-release; return Verdict{Kind: Accept} }))
			p.send(t, "the first")
			<-waiting
			const more = 200
			for n := range more {
				p.send(t, fmt.Sprint(n))
			}
			var d Drops
			var err error
			p.Do(func() { d, err = q.Drops() })
			must(t, err)
			dropped := c.kind(d)
			if dropped == 0 || dropped >= more || d.Full+d.Unread != dropped {
				t.Errorf("of %d packets these were dropped: %+v", more, d)
			}
			close(release)
			for range more - dropped + 1 {
				p.receive(t)
			}
			p.expectNone(t)
		})
	}
}

// expectNone checks that no packet has come: the next to arrive is one that is sent without the queue.
func (p *queueBench) expectNone(t *testing.T) {
	t.Helper()
	p.Run(t, `iptables -F INPUT`)
	p.send(t, "free")
	if got := p.receive(t); got != "free" {
		t.Errorf("%q came", got)
	}
}

// TestNobodyThere: without a listener packets are dropped, also those that wait in the queue when the listener closes.
func TestNobodyThere(t *testing.T) {
	p := newQueueBench(t)
	p.send(t, "before")
	held, release := make(chan struct{}), make(chan struct{})
	q := p.open(t, Config{}, onePacket(func(Packet) Verdict { close(held); <-release; return Verdict{Kind: Accept} }))
	p.send(t, "judged last")
	<-held
	p.send(t, "waiting")
	closed := make(chan error)
	go func() { closed <- q.Close() }()
	netnstest.Await(t, "the end", func() error {
		if !q.closing.Load() {
			return errors.New("not closing")
		}
		return nil
	})
	close(release)
	must(t, <-closed)
	must(t, q.Close()) // a second call has no effect
	p.send(t, "after")
	p.expectNone(t)
	p.open(t, Config{}, nil) // the queue can be opened again
}

// TestOneListener: a queue that has a socket cannot be opened by another.
func TestOneListener(t *testing.T) {
	p := newQueueBench(t)
	p.open(t, Config{}, nil)
	p.Do(func() {
		q, err := Open(Config{Number: queueNumber})
		if err == nil || !strings.Contains(err.Error(), "another process has it") {
			t.Errorf("a second listener: %v, %v", q, err)
		}
	})
}

// TestAwaitVerdicts: AwaitVerdicts waits while a packet is judged, and returns at once while none is.
func TestAwaitVerdicts(t *testing.T) {
	p := newQueueBench(t)
	judging, decide := make(chan struct{}), make(chan struct{})
	q := p.open(t, Config{},
		onePacket(func(Packet) Verdict { judging <- struct{}{}; <-decide; return Verdict{Kind: Accept} }))
	q.AwaitVerdicts() // nothing to wait for
	p.send(t, "one")
	<-judging
	settled := make(chan struct{})
	go func() { q.AwaitVerdicts(); close(settled) }()
	select {
	case <-settled:
		t.Error("settled while a packet was judged")
	case decide <- struct{}{}:
	}
	<-settled
}

// BenchmarkVerdict measures the time of sending a packet through the queue and judging it.
func BenchmarkVerdict(b *testing.B) {
	for name, cfg := range map[string]Config{"one by one": {}, "batches": {Batch: 64, CopyBytes: 128, GSO: true}} {
		b.Run(name, func(b *testing.B) {
			s := netnstest.NewSpace(b)
			if out, err := s.Try(`iptables -A OUTPUT -p udp --dport 9 -j NFQUEUE --queue-num 7`); err != nil {
				b.Fatal(out)
			}
			var q *Queue
			var out *net.UDPConn
			var err error
			s.Do(func() {
				q, err = Open(Config{
					Number: queueNumber, Batch: cfg.Batch, CopyBytes: cfg.CopyBytes, GSO: cfg.GSO, Packets: 100_000})
				if err == nil {
					out, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
				}
			})
			if err != nil {
				b.Fatal(err)
			}
			judged := make(chan int, 1024)
			go q.Run(func(p []Packet, _ []Verdict) { judged <- len(p) }, nil)
			payload := make([]byte, 1400)
			b.ResetTimer()
			waiting := 0
			for range b.N {
				out.Write(payload)
				for waiting++; waiting >= 256; {
					waiting -= <-judged
				}
			}
			for waiting > 0 {
				waiting -= <-judged
			}
			b.StopTimer()
			q.Close()
			out.Close()
		})
	}
}

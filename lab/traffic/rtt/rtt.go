// Package rtt measures round-trip time under load: a prober that sends small UDP
// datagrams at a fixed rate, and the echo that answers it. Linux only.
package rtt

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Round trips are timed in user space with the monotonic clock. The kernel could stamp
// arriving packets, but then stamps every packet of the machine (net_enable_timestamp),
// at a cost to the router that is measured. Instead the threads here ask the scheduler
// to run them promptly.

const (
	minSize    = 28 // of a probe: magic, prober's id, sequence number, time sent
	maxSockets = 65536
	maxSamples = 1 << 20 // 16 MB, and as many of the window before; nearly 3 hours at the usual rate
)

var magic = [4]byte{'G', 'W', 'R', 'T'}

// config is one prober.
type config struct {
	sockets int           // client sockets the probes rotate over
	rate    float64       // probes per second, all sockets together
	size    int           // UDP payload bytes, minSize or more
	timeout time.Duration // a probe not answered by then is lost
}

// Times are the round-trip times over a window, microseconds. Percentiles are exact
// (nearest rank over all samples); zero when nothing was answered.
type Times struct {
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Probes int     `json:"probes"` // answered or lost; not those still on their way
	Lost   int     `json:"lost"`
}

// Prober measures round-trip times until Close. Snapshot can be called after Close too.
type Prober struct {
	*socket.Thread
	cfg   config
	id    uint64
	start time.Time
	fds   []int
	// Only the thread that sends and receives uses these three.
	pending []probe // ring, by sequence number
	oldest  uint64  // the first sequence number that is neither answered nor lost
	next    uint64  // sequence number of the next probe

	mu             sync.Mutex // guards what follows
	samples        []answer   // of the present window
	began          int64      // when it began, ns since start
	before         []answer   // of the window before it
	beforeBegan    int64      // when that began
	answered, lost int        // probes
}

// answer is a round trip.
type answer struct {
	at int64 // when it ended, ns since the prober's start
	ns int64 // how long it took
}

type probe struct {
	sentNs   int64
	answered bool
}

// Probe starts to send 100 datagrams of 64 bytes a second to an echo (see ServeEcho),
// over connected non-blocking UDP sockets in turn. One not answered within a second is
// lost. dialUDP is called once per socket; the prober owns what it returns. Close or the
// end of ctx ends it.
func Probe(ctx context.Context, sockets int, dialUDP func(i int) (fd int, err error)) (*Prober, error) {
	return startProbing(ctx, config{sockets, 100, 64, time.Second}, dialUDP)
}

func startProbing(ctx context.Context, cfg config, dialUDP func(i int) (int, error)) (p *Prober, err error) {
	if cfg.sockets < 1 || cfg.sockets > maxSockets {
		return nil, fmt.Errorf("rtt prober: %d sockets, want 1 to %d", cfg.sockets, maxSockets)
	}
	// Twice what can be on its way, so that a slot is free when it is reused.
	ring := int(2*cfg.rate*cfg.timeout.Seconds()) + 16
	p = &Prober{cfg: cfg, id: rand.Uint64(), start: time.Now(), pending: make([]probe, ring)}
	if p.Thread, err = socket.NewThread(); err != nil {
		return nil, fmt.Errorf("rtt prober: %w", err)
	}
	for i := range cfg.sockets {
		fd, err := dialUDP(i)
		if err == nil {
			p.fds = append(p.fds, fd)
			err = p.Add(fd, int32(i+1), unix.EPOLLIN)
		}
		if err != nil {
			p.closeSockets()
			p.Close()
			return nil, fmt.Errorf("rtt prober: client %d: %w", i, err)
		}
	}
	p.Start(ctx, "gw-probe", p.loop)
	return p, nil
}

// Snapshot is the window since the last Reset, or since Probe.
func (p *Prober) Snapshot() Times {
	p.mu.Lock()
	s := durations(p.samples)
	r := Times{Probes: p.answered + p.lost, Lost: p.lost}
	p.mu.Unlock()
	slices.Sort(s)
	r.P50, r.P99 = nearestRank(s, 0.50), nearestRank(s, 0.99)
	return r
}

// Course returns the median round-trip time of each step of the window that the last Reset ended, microseconds; 0 where
// no answer came. A round trip belongs to the step in which its answer came.
func (p *Prober) Course(step time.Duration) (medians []float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rest := p.before; len(rest) > 0; {
		end := p.beforeBegan + int64(len(medians)+1)*int64(step)
		n := slices.IndexFunc(rest, func(a answer) bool { return a.at >= end })
		if n < 0 {
			n = len(rest)
		}
		medians = append(medians, nearestRank(slices.Sorted(slices.Values(durations(rest[:n]))), 0.50))
		rest = rest[n:]
	}
	return medians
}

func durations(list []answer) []int64 {
	out := make([]int64, len(list))
	for i, a := range list {
		out[i] = a.ns
	}
	return out
}

// Reset begins a new window.
func (p *Prober) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.samples = p.samples, p.before[:0]
	p.beforeBegan, p.began = p.began, int64(time.Since(p.start))
	p.answered, p.lost = 0, 0
}

// nearestRank is the smallest sample that at least the fraction q of sorted ns
// does not exceed, in microseconds.
func nearestRank(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[max(1, int(math.Ceil(q*float64(len(sorted)))))-1]) / 1e3
}

// loop sends on schedule and collects answers in between.
func (p *Prober) loop() {
	runPromptly()
	defer p.closeSockets()
	gap := float64(time.Second) / p.cfg.rate
	wait := p.Watch()
	events := make([]unix.EpollEvent, 64)
	buf := make([]byte, p.cfg.size+1) // one more: what is longer is no probe
	for slot := int64(0); !p.Stopping(); {
		now := int64(time.Since(p.start))
		due := int64(float64(slot) * gap)
		if now >= due {
			p.expire(now)
			p.send(buf[:p.cfg.size])
			// Slots that were slept through are not made up for.
			slot = max(slot+1, int64(float64(now)/gap))
			continue
		}
		if !socket.Sleep(wait, time.Duration(due-now)) {
			continue
		}
		ready, err := p.Wait(events, 0)
		if err != nil {
			return
		}
		for _, ev := range ready {
			if ev.Fd != socket.BellID {
				p.receive(p.fds[ev.Fd-1], buf)
			}
		}
	}
}

// send sends the next probe. A probe that the kernel refuses is counted as lost when its time is over.
func (p *Prober) send(b []byte) {
	slot := &p.pending[p.next%uint64(len(p.pending))]
	be := binary.BigEndian
	copy(b, magic[:])
	be.PutUint64(b[4:], p.id)
	be.PutUint64(b[12:], p.next)
	clear(b[minSize:])
	fd := p.fds[p.next%uint64(len(p.fds))]
	p.next++
	*slot = probe{sentNs: int64(time.Since(p.start))}
	be.PutUint64(b[20:], uint64(slot.sentNs))
	_, _ = socket.SendSome(fd, b)
}

// receive takes the answers waiting in one socket.
func (p *Prober) receive(fd int, buf []byte) {
	for {
		n, err := unix.Read(fd, buf)
		if err != nil { // EAGAIN, or an ICMP error: its probe will count as lost
			return
		}
		now := int64(time.Since(p.start))
		if n != p.cfg.size || [4]byte(buf[:4]) != magic || binary.BigEndian.Uint64(buf[4:]) != p.id {
			continue
		}
		seq := binary.BigEndian.Uint64(buf[12:])
		if seq < p.oldest || seq >= p.next {
			continue // too late: already lost
		}
		if slot := &p.pending[seq%uint64(len(p.pending))]; !slot.answered {
			slot.answered = true
			p.record(answer{now, now - slot.sentNs})
		}
	}
}

func (p *Prober) record(a answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered++
	if len(p.samples) < maxSamples {
		p.samples = append(p.samples, a)
	}
}

// expire counts the probes as lost that were not answered in time.
func (p *Prober) expire(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; p.oldest < p.next; p.oldest++ {
		slot := p.pending[p.oldest%uint64(len(p.pending))]
		if slot.answered {
			continue
		}
		if now-slot.sentNs < int64(p.cfg.timeout) {
			return
		}
		p.lost++
	}
}

func (p *Prober) closeSockets() {
	for _, fd := range p.fds {
		unix.Close(fd)
	}
}

// runPromptly asks for the calling thread to be run soon after it wakes: the
// highest niceness and, from Linux 6.12 on, short slices. Not a real-time policy:
// such a thread, waiting for a lock of Go's runtime whose holder it has pushed
// off the CPU, would wait for ever. Best effort; unprivileged it changes nothing.
func runPromptly() {
	const slice = 100_000 // ns, the shortest the scheduler takes
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Nice: -20, Runtime: slice}
	if unix.SchedSetAttr(0, &attr, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)
	}
}

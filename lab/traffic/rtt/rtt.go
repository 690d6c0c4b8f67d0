// Package rtt measures round-trip time under load: a prober that sends small UDP
// datagrams at a fixed rate, and the echo that answers it. Linux only.
package rtt

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Round trips are timed in user space with the monotonic clock. The kernel could
// stamp arriving packets, but asking for it makes it stamp every packet of the
// machine, the router's too (net_enable_timestamp), which is a cost on the scales.
// Instead the threads here ask the scheduler to run them promptly.

// Limits and defaults of the prober.
const (
	defaultRate = 100
	maxRate     = 10000
	minSize     = 28 // magic, prober's id, sequence number, time sent
	maxSize     = 1472
	maxSockets  = 65536
	maxSamples  = 1 << 20 // 8 MB; nearly 3 hours at the default rate
)

var magic = [4]byte{'G', 'W', 'R', 'T'}

// Config is one prober. The zero value probes over one socket.
type Config struct {
	Sockets int           // client sockets the probes rotate over, default 1
	Rate    float64       // probes per second, all sockets together, default 100, at most 10,000
	Size    int           // UDP payload bytes, default 64, 28 to 1472
	Timeout time.Duration // a probe not answered by then is lost, default 1 s
}

// Times are the round-trip times over a window, microseconds. Percentiles are exact
// (nearest rank over all samples); zero when nothing was answered.
type Times struct {
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
	Probes int     `json:"probes"` // answered or lost; not those still on their way
	Lost   int     `json:"lost"`
}

// Prober measures round-trip times until it is closed.
type Prober struct {
	cfg     Config
	id      uint64
	fds     []int
	poll    *socket.Poller
	pending []probe // ring by sequence number; the thread's
	oldest  uint64  // first sequence number not accounted for; the thread's
	next    uint64  // the thread's

	mu      sync.Mutex
	samples []int64 // ns, guarded by mu
	lost    int     // guarded by mu
	over    int     // answered probes beyond maxSamples, guarded by mu

	stopping  atomic.Bool
	done      chan struct{}
	cancel    context.CancelFunc // ends the watch over Probe's ctx
	closeOnce sync.Once
}

type probe struct {
	sentNs   int64
	answered bool
}

// Probe starts to send small datagrams to an echo (see ServeEcho), at a fixed
// rate, over connected non-blocking UDP sockets in turn. dialUDP is called once
// per socket; the prober owns what it returns. Close or the end of ctx ends it.
func Probe(ctx context.Context, cfg Config, dialUDP func(i int) (fd int, err error)) (*Prober, error) {
	cfg.Sockets = cmp.Or(cfg.Sockets, 1)
	cfg.Rate = cmp.Or(cfg.Rate, defaultRate)
	cfg.Size = cmp.Or(cfg.Size, 64)
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Second)
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("rtt prober: %w", err)
	}
	var id [8]byte
	rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	// Twice what can be on its way, so that a slot is free when it is reused.
	ring := int(2*cfg.Rate*cfg.Timeout.Seconds()) + 16
	p := &Prober{cfg: cfg, id: binary.BigEndian.Uint64(id[:]), pending: make([]probe, ring), done: make(chan struct{})}
	poll, err := socket.NewPoller()
	if err != nil {
		return nil, fmt.Errorf("rtt prober: %w", err)
	}
	p.poll = poll
	for i := range cfg.Sockets {
		if err := p.dial(i, dialUDP); err != nil {
			p.closeSockets()
			return nil, fmt.Errorf("rtt prober: client %d: %w", i, err)
		}
	}
	ctx, p.cancel = context.WithCancel(ctx)
	go p.loop()
	context.AfterFunc(ctx, func() { p.Close() })
	return p, nil
}

func (c Config) check() error {
	switch {
	case c.Sockets < 1 || c.Sockets > maxSockets:
		return fmt.Errorf("%d sockets, want 1 to %d", c.Sockets, maxSockets)
	case !(c.Rate > 0 && c.Rate <= maxRate):
		return fmt.Errorf("%g probes a second, want more than 0 and at most %d", c.Rate, maxRate)
	case c.Size < minSize || c.Size > maxSize:
		return fmt.Errorf("probes of %d bytes, want %d to %d", c.Size, minSize, maxSize)
	case c.Timeout < time.Millisecond || c.Timeout > time.Minute:
		return fmt.Errorf("time-out of %s, want 1ms to 1m", c.Timeout)
	}
	return nil
}

func (p *Prober) dial(i int, dialUDP func(i int) (int, error)) error {
	fd, err := dialUDP(i)
	if err != nil {
		return err
	}
	p.fds = append(p.fds, fd)
	return p.poll.Add(fd, int32(i+1), unix.EPOLLIN)
}

// Snapshot is the window since the last Reset, or since Probe.
func (p *Prober) Snapshot() Times {
	p.mu.Lock()
	s := slices.Clone(p.samples)
	r := Times{Probes: len(p.samples) + p.over + p.lost, Lost: p.lost}
	p.mu.Unlock()
	slices.Sort(s)
	r.P50, r.P99 = nearestRank(s, 0.50), nearestRank(s, 0.99)
	return r
}

// Reset begins a new window.
func (p *Prober) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.samples, p.lost, p.over = p.samples[:0], 0, 0
}

// Close ends the prober and its sockets; Snapshot stays. It may be called twice.
func (p *Prober) Close() error {
	p.closeOnce.Do(func() {
		p.stopping.Store(true)
		p.poll.Ring()
		<-p.done
		p.cancel()
	})
	return nil
}

// nearestRank is the smallest sample that at least the fraction q of sorted ns
// does not exceed, in microseconds.
func nearestRank(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := max(0, int(math.Ceil(q*float64(len(sorted))))-1)
	return float64(sorted[i]) / 1e3
}

// loop sends on schedule and collects answers in between.
func (p *Prober) loop() {
	defer close(p.done)
	socket.OwnThread("gw-probe")
	runPromptly()
	defer p.closeSockets()
	start := time.Now()
	gap := float64(time.Second) / p.cfg.Rate
	wait := p.poll.Watch()
	events := make([]unix.EpollEvent, 64)
	buf := make([]byte, maxSize)
	for slot := int64(0); !p.stopping.Load(); {
		now := int64(time.Since(start))
		due := int64(float64(slot) * gap)
		if now >= due {
			p.expire(now)
			p.send(buf[:p.cfg.Size], start)
			// Slots that were slept through are not made up for.
			slot = max(slot+1, int64(float64(now)/gap))
			continue
		}
		if !socket.Sleep(wait, time.Duration(due-now)) {
			continue
		}
		ready, err := p.poll.Wait(events, 0)
		if err != nil {
			return
		}
		for _, ev := range ready {
			if ev.Fd != socket.BellID {
				p.receive(p.fds[ev.Fd-1], buf, start)
			}
		}
	}
}

// send emits the next probe. One that the kernel refuses counts as lost in time.
func (p *Prober) send(b []byte, start time.Time) {
	slot := &p.pending[p.next%uint64(len(p.pending))]
	be := binary.BigEndian
	copy(b, magic[:])
	be.PutUint64(b[4:], p.id)
	be.PutUint64(b[12:], p.next)
	clear(b[minSize:])
	fd := p.fds[p.next%uint64(len(p.fds))]
	p.next++
	*slot = probe{sentNs: int64(time.Since(start))}
	be.PutUint64(b[20:], uint64(slot.sentNs))
	_, _ = socket.SendSome(fd, b)
}

// receive takes the answers waiting in one socket.
func (p *Prober) receive(fd int, buf []byte, start time.Time) {
	for {
		n, err := unix.Read(fd, buf)
		if err != nil { // EAGAIN, or an ICMP error that the probe's loss will tell
			return
		}
		now := int64(time.Since(start))
		if n != p.cfg.Size || [4]byte(buf[:4]) != magic || binary.BigEndian.Uint64(buf[4:]) != p.id {
			continue
		}
		seq := binary.BigEndian.Uint64(buf[12:])
		if seq < p.oldest || seq >= p.next {
			continue // too late: already lost
		}
		if slot := &p.pending[seq%uint64(len(p.pending))]; !slot.answered {
			slot.answered = true
			p.record(now - slot.sentNs)
		}
	}
}

func (p *Prober) record(ns int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.samples) == maxSamples {
		p.over++
		return
	}
	p.samples = append(p.samples, ns)
}

// expire accounts for probes whose time is over.
func (p *Prober) expire(now int64) {
	lost := 0
	for p.oldest < p.next {
		slot := p.pending[p.oldest%uint64(len(p.pending))]
		if !slot.answered && now-slot.sentNs < int64(p.cfg.Timeout) {
			break
		}
		if !slot.answered {
			lost++
		}
		p.oldest++
	}
	if lost > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lost += lost
	}
}

func (p *Prober) closeSockets() {
	for _, fd := range p.fds {
		unix.Close(fd)
	}
	p.poll.Close()
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

// DialUDP returns a connected non-blocking UDP socket in the calling thread's
// network namespace, bound to local unless that is the zero address.
func DialUDP(local netip.Addr, remote netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(socket.Family(remote.Addr()), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("creating a UDP socket: %w", err)
	}
	if local.IsValid() {
		err = unix.Bind(fd, socket.Addr(netip.AddrPortFrom(local, 0)))
	}
	if err == nil {
		err = unix.Connect(fd, socket.Addr(remote))
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("connecting UDP to %s: %w", remote, err)
	}
	return fd, nil
}

// ListenUDP returns a bound non-blocking UDP socket for ServeEcho, in the
// calling thread's network namespace. Port 0 takes any.
func ListenUDP(addr netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(socket.Family(addr.Addr()), unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("creating a UDP socket: %w", err)
	}
	if err := unix.Bind(fd, socket.Addr(addr)); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("listening on UDP %s: %w", addr, err)
	}
	return fd, nil
}

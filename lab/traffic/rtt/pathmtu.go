package rtt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// MTU has the sizes of the largest packets on a path to an echo, bytes with their IPv4 headers.
type MTU struct {
	// the longest packet that went to the echo and back without being cut into fragments by its sender; 0: no packet
	Passes int `json:"passes"`
	// Known is the path's MTU that the kernel has learnt from ICMP (RFC 1191). TCP makes its packets this long.
	Known int `json:"known"`
}

// BlackHole reports whether packets vanish without an ICMP message although the kernel thinks that they are short
// enough (RFC 2923).
func (m MTU) BlackHole() bool { return m.Passes < m.Known }

// Limits of the search for the largest packet. Packets may be lost on a busy machine, so each size is tried several
// times. The wait for an answer is several times that for the slowest answer so far.
const (
	sizeTries   = 4
	sizeTimeout = 300 * time.Millisecond
	slowFactor  = 4
	leastSize   = 68 // that every link takes (RFC 791)
	udpHeaders  = 20 + 8
)

// PathMTU looks for the largest packet, of at most most bytes, that comes back from an echo. fd is a non-blocking
// socket that is connected to the echo; the caller closes it.
func PathMTU(ctx context.Context, fd, most int) (m MTU, err error) {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE); err != nil {
		return m, fmt.Errorf("sending packets of any length: %w", err)
	}
	p := sizeProber{fd: fd}
	p.returns(ctx, leastSize) // and how long that takes
	passes := func(size int) bool {
		if err == nil && p.returns(ctx, size) {
			m.Passes = max(m.Passes, size)
			return true
		}
		return false
	}
	known := func() int {
		if m.Known, err = unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU); err != nil {
			err = fmt.Errorf("asking for the path's MTU: %w", err)
		}
		m.Known = min(m.Known, most)
		return m.Known
	}
	for size := most; !passes(size); size = m.Known {
		if known() >= size || err != nil { // nobody has named a smaller one
			break
		}
	}
	known()
	lo, hi := leastSize-1, m.Known // packets of lo bytes pass, packets of hi bytes do not
	for m.Passes == 0 && hi-lo > 1 && err == nil && ctx.Err() == nil {
		middle := (lo + hi) / 2
		if p.returns(ctx, middle) {
			lo = middle
		} else {
			hi = middle
		}
	}
	if m.Passes == 0 && lo >= leastSize {
		m.Passes = lo
	}
	return m, errors.Join(err, context.Cause(ctx))
}

// sizeProber sends packets of chosen lengths over a socket.
type sizeProber struct {
	fd      int
	slowest time.Duration // of the answers so far
}

// returns sends a few packets of size bytes and reports whether one comes back.
func (p *sizeProber) returns(ctx context.Context, size int) bool {
	fd, start := p.fd, time.Now()
	packet, answer := make([]byte, size-udpHeaders), make([]byte, 1<<16)
	copy(packet, magic[:])
	for range sizeTries {
		if _, err := socket.SendSome(fd, packet); err != nil { // an error of the packet before, or one too long for the link
			_, _ = socket.SendSome(fd, packet)
		}
		for end := time.Now().Add(max(sizeTimeout, slowFactor*p.slowest)); ; {
			left := time.Until(end)
			if left <= 0 || ctx.Err() != nil {
				break
			}
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if n, err := unix.Poll(fds, int(left.Milliseconds())+1); n == 0 || err != nil {
				continue
			}
			n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EMSGSIZE) {
				return false
			}
			if err == nil && n == len(packet) {
				p.slowest = max(p.slowest, time.Since(start))
				return true
			}
		}
	}
	return false
}

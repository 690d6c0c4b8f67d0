// Package iperf3 is all the lab knows of iperf3, the studies' tool: its argument
// vectors, checked against iperf3 3.12. Running it is the agent's work. What it
// says of itself comes at its end, after the windows, so throughput is read off
// the router's links instead.
package iperf3

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Ways in which an iperf3 client holds its rate.
const (
	// PaceTimer is iperf3's own: -b, blocks sent by a 1 ms timer until the average is reached.
	PaceTimer = "timer"
	// PaceSocket is the kernel's: --fq-rate, evenly spaced segments, few retransmits.
	PaceSocket = "socket"
)

// Server is one iperf3 server. It carries one test at a time and turns a
// second client away, so every client has a server and port of its own.
type Server struct {
	Bind netip.Addr // address to listen on; the zero value is any
	Port uint16     // default 5201
	// IdleSeconds restarts a server whose test got stuck, default 30. Longer
	// than any pause a client makes between connecting and sending.
	IdleSeconds int
}

// Args is the argument vector, program name first. There is no -1 in it: a
// server that ends after one test is gone when a trial is redone, and would wait
// for ever for a client that never came. The agent ends it by a signal.
func (s Server) Args() []string {
	s.Port = cmp.Or(s.Port, 5201)
	s.IdleSeconds = cmp.Or(s.IdleSeconds, 30)
	argv := []string{"iperf3", "-s", "-p", strconv.Itoa(int(s.Port)), "--idle-timeout", strconv.Itoa(s.IdleSeconds)}
	if s.Bind.IsValid() {
		argv = append(argv, "-B", s.Bind.String())
	}
	return argv
}

// Client is one iperf3 client with one stream.
type Client struct {
	Server netip.Addr
	Port   uint16     // default 5201
	Local  netip.Addr // address to send from; the zero value leaves it to the kernel
	UDP    bool
	// RateBps is this client's payload, bits per second (see Share); 0 is as fast as possible.
	RateBps   float64
	Direction string // Up (default) or traffic.Down
	Pacing    string // of TCP: PaceTimer (default) or PaceSocket, which is for Up only
	// Bytes per write: a TCP burst under PaceTimer, default traffic.DefaultBurst segments of
	// Ethernet, or a UDP datagram's payload, default as long as one such segment.
	Bytes      int
	Seconds    int    // default 10
	Congestion string // of TCP, default "cubic"
}

// Args is the argument vector, program name first. It refuses combinations
// that iperf3 takes without doing them.
func (c Client) Args() ([]string, error) {
	c.Port = cmp.Or(c.Port, 5201)
	c.Direction = cmp.Or(c.Direction, traffic.Up)
	c.Pacing = cmp.Or(c.Pacing, PaceTimer)
	c.Seconds = cmp.Or(c.Seconds, 10)
	c.Congestion = cmp.Or(c.Congestion, "cubic")
	segment, segments := traffic.SegmentBytes(traffic.EthernetMTU, false), 1
	if !c.UDP {
		segments = traffic.DefaultBurst
	}
	c.Bytes = cmp.Or(c.Bytes, segments*segment)
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("iperf3 client: %w", err)
	}
	argv := []string{"iperf3", "-c", c.Server.String(), "-p", strconv.Itoa(int(c.Port)), "-t", strconv.Itoa(c.Seconds),
		"-l", strconv.Itoa(c.Bytes), "-i", "0", "--connect-timeout", "5000", "--json"}
	rate := strconv.FormatInt(int64(math.Round(c.RateBps)), 10)
	switch {
	case c.UDP:
		argv = append(argv, "-u", "-b", rate)
	case c.Pacing == PaceSocket:
		argv = append(argv, "-C", c.Congestion, "-b", "0", "--fq-rate", rate)
	default:
		argv = append(argv, "-C", c.Congestion, "-b", rate)
	}
	if c.Local.IsValid() {
		argv = append(argv, "-B", c.Local.String())
	}
	if c.Direction == traffic.Down {
		argv = append(argv, "-R")
	}
	return argv, nil
}

func (c Client) check() error {
	switch {
	case !c.Server.IsValid():
		return errors.New("no server address")
	case c.Direction != traffic.Up && c.Direction != traffic.Down:
		return fmt.Errorf("direction %q, want %q or %q", c.Direction, traffic.Up, traffic.Down)
	case c.Pacing != PaceTimer && c.Pacing != PaceSocket:
		return fmt.Errorf("pacing %q, want %q or %q", c.Pacing, PaceTimer, PaceSocket)
	case !(c.RateBps >= 0 && c.RateBps <= 1e13):
		return fmt.Errorf("rate of %g bit/s, want 0 to 1e13", c.RateBps)
	case c.Seconds < 1 || c.Seconds > 86400:
		return fmt.Errorf("%d s, want 1 to 86400", c.Seconds)
	case c.UDP && (c.Bytes < 16 || c.Bytes > traffic.MaxDatagram):
		return fmt.Errorf("datagrams of %d bytes, want 16 to %d", c.Bytes, traffic.MaxDatagram)
	case c.Bytes < 1 || c.Bytes > traffic.MaxBurstBytes:
		return fmt.Errorf("blocks of %d bytes, want 1 to %d", c.Bytes, traffic.MaxBurstBytes)
	case c.Pacing == PaceSocket && c.UDP:
		return errors.New("socket pacing is for TCP")
	case c.Pacing == PaceSocket && c.Direction == traffic.Down:
		// It stays a setting of the client's socket: the server sends unpaced.
		return errors.New("socket pacing (--fq-rate) has no effect on downloads (-R): use pacing \"timer\"")
	case c.Pacing == PaceSocket && c.RateBps == 0:
		return errors.New("socket pacing needs a rate")
	}
	return nil
}

// Share splits an offered load evenly, bits per second. iperf3 takes whole bits:
// the rounding is below one bit per second and client.
func Share(offeredBps float64, clients int) float64 {
	if clients < 1 {
		return 0
	}
	return offeredBps / float64(clients)
}

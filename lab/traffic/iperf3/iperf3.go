// Package iperf3 builds the argument vectors of iperf3, the tool of the published studies. They are checked against
// iperf3 3.12. Running it is the agent's work. Its own counts come at its end, after the windows, so throughput is read
// off the router's links.
package iperf3

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Server returns the argument vector of an iperf3 server, program name first. A server carries one test at a time and
// refuses a second client, so every client has a server and port of its own. The option -1 is not used: with it the
// server would end after one test, and be missing when a trial is repeated. The agent ends the server by a signal.
func Server(addr netip.AddrPort) []string {
	// A server whose test got stuck restarts after 30 s, longer than any pause a client
	// makes between connecting and sending.
	return []string{
		"iperf3", "-s", "-p", strconv.Itoa(int(addr.Port())), "--idle-timeout", "30", "-B", addr.Addr().String()}
}

// Client is one iperf3 client with one stream.
type Client struct {
	Server netip.AddrPort
	Local  netip.Addr // address to send from; the zero value leaves it to the kernel
	UDP    bool
	// RateBps is this client's payload, bits per second; 0 is as fast as possible.
	RateBps   float64
	Direction string // result.Up (default) or result.Down
	// Paced has the kernel hold the rate of TCP, Up only: --fq-rate, evenly spaced segments,
	// few retransmits. Otherwise a 1 ms timer of iperf3 sends blocks until the average of -b
	// is reached.
	Paced bool
	// Bytes per write: a TCP burst by the timer, default traffic.DefaultBurst segments of
	// Ethernet, or a UDP datagram's payload, default as long as one such segment.
	Bytes   int
	Seconds int
}

// Args returns the argument vector, program name first. It refuses combinations of options that iperf3 accepts but does
// not carry out.
func (c Client) Args() ([]string, error) {
	c.Direction = cmp.Or(c.Direction, result.Up)
	segment, segments := traffic.SegmentBytes(traffic.EthernetMTU, false), 1
	if !c.UDP {
		segments = traffic.DefaultBurst
	}
	c.Bytes = cmp.Or(c.Bytes, segments*segment)
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("iperf3 client: %w", err)
	}
	argv := []string{
		"iperf3", "-c", c.Server.Addr().String(), "-p", strconv.Itoa(int(c.Server.Port())), "-t", strconv.Itoa(c.Seconds),
		"-l", strconv.Itoa(c.Bytes), "-i", "0", "--connect-timeout", "5000", "--json"}
	rate := strconv.FormatInt(int64(math.Round(c.RateBps)), 10) // iperf3 takes whole bits
	switch {
	case c.UDP:
		argv = append(argv, "-u", "-b", rate)
	case c.Paced:
		argv = append(argv, "-C", "cubic", "-b", "0", "--fq-rate", rate)
	default:
		argv = append(argv, "-C", "cubic", "-b", rate)
	}
	if c.Local.IsValid() {
		argv = append(argv, "-B", c.Local.String())
	}
	if c.Direction == result.Down {
		argv = append(argv, "-R")
	}
	return argv, nil
}

func (c Client) check() error {
	switch {
	case !c.Server.IsValid():
		return errors.New("no server address")
	case c.Direction != result.Up && c.Direction != result.Down:
		return fmt.Errorf("direction %q, want %q or %q", c.Direction, result.Up, result.Down)
	case !(c.RateBps >= 0 && c.RateBps <= 1e13):
		return fmt.Errorf("rate of %g bit/s, want 0 to 1e13", c.RateBps)
	case c.Seconds < 1 || c.Seconds > 86400:
		return fmt.Errorf("%d s, want 1 to 86400", c.Seconds)
	case c.UDP && (c.Bytes < 16 || c.Bytes > traffic.MaxDatagram):
		return fmt.Errorf("datagrams of %d bytes, want 16 to %d", c.Bytes, traffic.MaxDatagram)
	case c.Bytes < 1 || c.Bytes > traffic.MaxBurstBytes:
		return fmt.Errorf("blocks of %d bytes, want 1 to %d", c.Bytes, traffic.MaxBurstBytes)
	case c.Paced && c.UDP:
		return errors.New("socket pacing is for TCP")
	case c.Paced && c.Direction == result.Down:
		// It stays a setting of the client's socket: the server sends unpaced.
		return errors.New("socket pacing (--fq-rate) has no effect on downloads (-R): use pacing \"timer\"")
	case c.Paced && c.RateBps == 0:
		return errors.New("socket pacing needs a rate")
	}
	return nil
}

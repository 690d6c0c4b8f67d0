package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strconv"
)

// This file is all the lab knows of iperf3: its argument vectors and its JSON
// report, checked against iperf3 3.12. Running it is the agent's work.

// Ways in which an iperf3 client holds its rate.
const (
	// PaceTimer is iperf3's own: -b, blocks sent by a 1 ms timer until the average is reached.
	PaceTimer = "timer"
	// PaceSocket is the kernel's: --fq-rate, evenly spaced segments, few retransmits.
	PaceSocket = "socket"
)

// Iperf3Server is one iperf3 server. It carries one test at a time and turns a
// second client away, so every client has a server and port of its own.
type Iperf3Server struct {
	Bind netip.Addr // address to listen on; the zero value is any
	Port uint16     // default 5201
	// IdleSeconds restarts a server whose test got stuck, default 30. Longer
	// than any pause a client makes between connecting and sending.
	IdleSeconds int
}

// Args is the argument vector, program name first. There is no -1 in it: a
// server that ends after one test is gone when a trial is redone, and would wait
// for ever for a client that never came. The agent ends it by a signal.
func (s Iperf3Server) Args() []string {
	setDefault(&s.Port, 5201)
	setDefault(&s.IdleSeconds, 30)
	argv := []string{"iperf3", "-s", "-p", strconv.Itoa(int(s.Port)), "--idle-timeout", strconv.Itoa(s.IdleSeconds)}
	if s.Bind.IsValid() {
		argv = append(argv, "-B", s.Bind.String())
	}
	return argv
}

// Iperf3Client is one iperf3 client with one stream.
type Iperf3Client struct {
	Server netip.Addr
	Port   uint16     // default 5201
	Local  netip.Addr // address to send from; the zero value leaves it to the kernel
	UDP    bool
	// RateBps is this client's payload, bits per second (see Share); 0 is as fast as possible.
	RateBps   float64
	Direction string // Up (default) or Down
	Pacing    string // of TCP: PaceTimer (default) or PaceSocket, which is for Up only
	// Bytes per write: a TCP burst under PaceTimer, default 63,712 (44 segments
	// of 1448), or a UDP datagram's payload, default 1448.
	Bytes      int
	Seconds    int    // default 10
	Congestion string // of TCP, default "cubic"
}

// Args is the argument vector, program name first. It refuses combinations
// that iperf3 takes without doing them.
func (c Iperf3Client) Args() ([]string, error) {
	setDefault(&c.Port, 5201)
	setDefault(&c.Direction, Up)
	setDefault(&c.Pacing, PaceTimer)
	setDefault(&c.Seconds, 10)
	setDefault(&c.Congestion, "cubic")
	if c.UDP {
		setDefault(&c.Bytes, 1448)
	} else {
		setDefault(&c.Bytes, 44*1448)
	}
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
	if c.Direction == Down {
		argv = append(argv, "-R")
	}
	return argv, nil
}

func (c Iperf3Client) check() error {
	switch {
	case !c.Server.IsValid():
		return errors.New("no server address")
	case c.Direction != Up && c.Direction != Down:
		return fmt.Errorf("direction %q, want %q or %q", c.Direction, Up, Down)
	case c.Pacing != PaceTimer && c.Pacing != PaceSocket:
		return fmt.Errorf("pacing %q, want %q or %q", c.Pacing, PaceTimer, PaceSocket)
	case !(c.RateBps >= 0 && c.RateBps <= 1e13):
		return fmt.Errorf("rate of %g bit/s, want 0 to 1e13", c.RateBps)
	case c.Seconds < 1 || c.Seconds > 86400:
		return fmt.Errorf("%d s, want 1 to 86400", c.Seconds)
	case c.UDP && (c.Bytes < 16 || c.Bytes > 65507):
		return fmt.Errorf("datagrams of %d bytes, want 16 to 65507", c.Bytes)
	case c.Bytes < 1 || c.Bytes > MaxBurstBytes:
		return fmt.Errorf("blocks of %d bytes, want 1 to %d", c.Bytes, MaxBurstBytes)
	case c.Pacing == PaceSocket && c.UDP:
		return errors.New("socket pacing is for TCP")
	case c.Pacing == PaceSocket && c.Direction == Down:
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

// Iperf3Report is what one client reported.
type Iperf3Report struct {
	Bytes     int64   // payload that arrived
	SentBytes int64   // payload sent
	Seconds   float64 // as the receiver counts them
	BitsPerS  float64 // payload that arrived, per second

	Retransmits int64 // TCP; -1 when the sender could not tell

	Datagrams   int64   // UDP, sent
	Lost        int64   // UDP
	LossRatio   float64 // UDP: Lost / Datagrams
	JitterMs    float64 // UDP, RFC 1889
	OutOfOrder  int64   // UDP
	Congestion  string  // TCP, of the sender
	LocalCPUPct float64 // of one core, client process
	PeerCPUPct  float64 // of one core, server process

	// Error is iperf3's own account of why the test failed; empty when it did
	// not. The figures are then of the time before, as far as the client knew them.
	Error string
}

// iperf3JSON is the part of iperf3's report that is read here.
type iperf3JSON struct {
	Start *struct {
		Version string `json:"version"`
	} `json:"start"`
	End struct {
		Streams []struct {
			UDP struct {
				OutOfOrder int64 `json:"out_of_order"`
			} `json:"udp"`
		} `json:"streams"`
		Sum      *iperf3Sum `json:"sum"` // UDP only
		Sent     iperf3Sum  `json:"sum_sent"`
		Received iperf3Sum  `json:"sum_received"`
		CPU      struct {
			Host   float64 `json:"host_total"`
			Remote float64 `json:"remote_total"`
		} `json:"cpu_utilization_percent"`
		Congestion string `json:"sender_tcp_congestion"`
	} `json:"end"`
	Error string `json:"error"`
}

type iperf3Sum struct {
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds"`
	BitsPerS    float64 `json:"bits_per_second"`
	Retransmits *int64  `json:"retransmits"`
	JitterMs    float64 `json:"jitter_ms"`
	Lost        int64   `json:"lost_packets"`
	Packets     int64   `json:"packets"`
}

// maxReport bounds what is read of a report: an hour of one-second intervals of
// a hundred streams is less.
const maxReport = 64 << 20

// ParseIperf3 reads a client's --json output. A test that iperf3 reports as
// failed is no error here: Report.Error says why. An error means that the text
// is no iperf3 report, or one without results or a reason.
func ParseIperf3(r io.Reader) (Iperf3Report, error) {
	var j iperf3JSON
	if err := json.NewDecoder(io.LimitReader(r, maxReport)).Decode(&j); err != nil {
		return Iperf3Report{}, fmt.Errorf("reading iperf3's report: %w", err)
	}
	if j.Start == nil {
		return Iperf3Report{}, errors.New("reading iperf3's report: no \"start\" in it")
	}
	e := &j.End
	out := Iperf3Report{
		Bytes: e.Received.Bytes, SentBytes: e.Sent.Bytes, Seconds: e.Received.Seconds, BitsPerS: e.Received.BitsPerS,
		Retransmits: -1, LocalCPUPct: e.CPU.Host, PeerCPUPct: e.CPU.Remote, Congestion: e.Congestion, Error: j.Error,
	}
	if e.Sent.Retransmits != nil {
		out.Retransmits = *e.Sent.Retransmits
	}
	if e.Sum != nil { // only UDP has it; TCP's sums have no datagrams
		out.Datagrams, out.Lost, out.JitterMs = e.Sum.Packets, e.Sum.Lost, e.Sum.JitterMs
		if out.Datagrams > 0 {
			out.LossRatio = float64(out.Lost) / float64(out.Datagrams)
		}
		for _, st := range e.Streams {
			out.OutOfOrder += st.UDP.OutOfOrder
		}
	}
	if err := out.plausible(); err != nil {
		return Iperf3Report{}, fmt.Errorf("reading iperf3's report: %w", err)
	}
	return out, nil
}

// plausible refuses figures that would spoil a mean without being noticed.
func (r Iperf3Report) plausible() error {
	switch {
	case r.Bytes < 0 || r.SentBytes < 0 || r.Seconds < 0 || r.BitsPerS < 0 || r.Datagrams < 0 || r.Lost < 0:
		return errors.New("a count below zero")
	case r.Lost > r.Datagrams:
		return fmt.Errorf("%d of %d datagrams lost", r.Lost, r.Datagrams)
	case r.Error == "" && r.Seconds == 0:
		return errors.New("neither results nor an error in it")
	}
	return nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/result"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// Traffic is one cell's load: every client gets an equal share.
type Traffic struct {
	Kind      string `json:"kind"` // one of traffic.Kinds
	UDP       bool   `json:"udp"`
	Paced     bool   `json:"paced"`     // iperf3: by the socket, not by its own timer
	Direction string `json:"direction"` // result.Up, result.Down, or result.Both for streams
	Clients   int    `json:"clients"`   // of this host; for the server of all hosts
	// of the larger lab of a pair: both labs get the settings for this number
	MostClients   int        `json:"most_clients"`
	ClientHosts   int        `json:"client_hosts"` // that load the server, each by a generator of its own; zero is 1
	Workers       int        `json:"workers"`      // processes that share each host's streams: the function Workers
	OfferedMbps   float64    `json:"offered_mbps"` // payload, all those clients together
	BurstSegments int        `json:"burst_segments"`
	MTU           int        `json:"mtu,omitempty"` // of the path, where it is less than the clients'; 0: it is not
	MaxSeconds    int        `json:"max_seconds"`   // the load ends by itself after this
	Server        netip.Addr `json:"server"`
	// ShortPerSecond connections a second of ShortBytes each are opened beside, from
	// all clients in turn; zero: none.
	ShortPerSecond float64       `json:"short_per_second,omitempty"`
	ShortBytes     int           `json:"short_bytes,omitempty"`
	ShortAfter     time.Duration `json:"short_after,omitempty"` // from the load's start to a host's first
	Frames         *Frames       `json:"frames,omitempty"`      // this host's part; nil for other kinds of traffic
}

// Ports on the server. shortPort is for short connections, echoPort for round-trip probes. trafficPort is for the
// streams of one process; iperf3 has one port a client from there on. workersPort is for streams of several processes,
// one port a worker from there on.
const (
	shortPort   = 5200
	trafficPort = 5201
	workersPort = trafficPort + 1
	echoPort    = 7
)

// directions are the directions of a load's streams.
func (t Traffic) directions() []string {
	if t.Direction == result.Both {
		return []string{result.Up, result.Down}
	}
	return []string{t.Direction}
}

// Streams is the number of streams of a load on a host with that number of clients.
func (t Traffic) Streams() int { return t.Clients * len(t.directions()) }

// TrafficStats is what one host's side of the traffic has done so far.
type TrafficStats struct {
	MonotonicNs   int64 `json:"monotonic_ns"` // the host's clock when the counters were read
	ReceivedBytes int64 `json:"received_bytes"`
	// Datagrams and Bursts are of streams over UDP. The sender counts sent datagrams and bursts, the receiver all else.
	Datagrams traffic.Datagrams `json:"datagrams,omitzero"`
	Bursts    int64             `json:"bursts,omitzero"`
	Connect   traffic.Delays    `json:"connect_us"` // of the streams from here; of several processes the slowest
	FirstByte traffic.Delays    `json:"first_byte_us"`
	Shares    traffic.Shares    `json:"shares"` // of the streams that end here, since MarkTraffic
	// Open: the TCP windows of all streams that send from here have grown enough that bursts leave whole. Always true
	// where none send.
	Open       bool       `json:"open"`
	Broken     int        `json:"broken"` // streams or processes that ended early
	FirstError string     `json:"first_error,omitempty"`
	Frames     FrameStats `json:"frames,omitzero"`
	// ThreadNs is the CPU time of each traffic thread or process; the busiest
	// says how close the generator is to its limit.
	ThreadNs map[string]int64 `json:"thread_ns"`
}

// trafficState is the traffic a host takes part in.
type trafficState struct {
	inProcess streams // of the agent's own process

	mu                      sync.Mutex // guards what follows; the agent's exported methods hold it
	nearWorkers, farWorkers []*worker  // send or serve where one process has too few files
	echo                    *rtt.Echo
	prober                  *rtt.Prober
	answers                 *short.Server    // of short connections
	short                   *short.Generator // nil while none are opened
	programs                []string         // names of spawned iperf3 processes
	frames                  *frameLoad       // nil: the host has no part in one
}

// lock locks mu and returns its Unlock, for defer s.lock()().
func (s *trafficState) lock() func() {
	s.mu.Lock()
	return s.mu.Unlock
}

// close ends what sends from this host, and workers: all else ends with the agent.
func (s *trafficState) close() {
	defer s.lock()()
	s.inProcess.Stop(context.Background())
	s.frames.stop()
	s.stopShort()
	if s.prober != nil {
		s.prober.Close()
	}
	for _, w := range s.workers() {
		w.close()
	}
}

// load is both ends of a kind of traffic. StopTraffic stops the sending end.
type load struct {
	serve func(*Agent, context.Context, Traffic) error
	start func(*Agent, context.Context, Traffic, *client.Pool) error
}

// loads is how an agent carries out each kind of traffic.
var loads = map[string]load{
	traffic.KindStreams: {(*Agent).serveStreams, (*Agent).startStreams},
	traffic.KindIperf3:  {(*Agent).serveIperf3, (*Agent).startIperf3},
	traffic.KindFrames:  {(*Agent).serveFrames, (*Agent).startFrames},
}

func (t Traffic) kind() (load, error) {
	k, known := loads[t.Kind]
	if !known {
		return k, fmt.Errorf("unknown kind of traffic %q (known: %s)", t.Kind, strings.Join(traffic.Kinds(nil), ", "))
	}
	return k, nil
}

// ServeTraffic prepares the server host. Streams of later loads find the same
// server; iperf3 servers are started anew for each.
func (a *Agent) ServeTraffic(ctx context.Context, t Traffic) error {
	k, err := t.kind()
	if err != nil {
		return err
	}
	s := &a.traffic
	defer s.lock()()
	if err := s.serveEcho(t.Server); err != nil {
		return err
	}
	if t.ShortPerSecond > 0 && s.answers == nil {
		if s.answers, err = short.Serve(ctx, netip.AddrPortFrom(t.Server, shortPort)); err != nil {
			return err
		}
	}
	return k.serve(a, ctx, t)
}

// ServeEcho prepares the server host for round-trip probes, without traffic.
func (a *Agent) ServeEcho(_ context.Context, server netip.Addr) error {
	defer a.traffic.lock()()
	return a.traffic.serveEcho(server)
}

func (s *trafficState) serveEcho(server netip.Addr) (err error) {
	if s.echo == nil {
		s.echo, err = rtt.ServeEcho(netip.AddrPortFrom(server, echoPort))
	}
	return err
}

// StartTraffic starts the load from the client host, and from the server where that sends frames.
func (a *Agent) StartTraffic(ctx context.Context, t Traffic) error {
	k, err := t.kind()
	pool, without := a.clients()
	if t.Frames != nil {
		without = nil // frames need addresses alone
	}
	if err = errors.Join(err, without); err != nil {
		return err
	}
	defer a.traffic.lock()()
	if err := a.traffic.startShort(ctx, t, pool); err != nil {
		return err
	}
	return k.start(a, ctx, t, pool)
}

var errTraffic = errors.New("traffic runs already")

// startShort begins to open short connections, from all clients in turn.
func (s *trafficState) startShort(ctx context.Context, t Traffic, pool *client.Pool) (err error) {
	switch {
	case t.ShortPerSecond == 0:
		return nil
	case s.short != nil:
		return errTraffic
	}
	to := netip.AddrPortFrom(t.Server, shortPort).String()
	cfg := short.Config{PerSecond: t.ShortPerSecond, After: t.ShortAfter, Bytes: t.ShortBytes}
	s.short, err = short.Start(context.WithoutCancel(ctx), cfg, func(ctx context.Context, n int) (net.Conn, error) {
		return pool.Clients[n%len(pool.Clients)].DialContext(ctx, "tcp", to)
	})
	return err
}

func (s *trafficState) stopShort() {
	if s.short != nil {
		s.short.Close()
		s.short = nil
	}
}

// ShortStats counts the short connections since the load began.
func (a *Agent) ShortStats(context.Context) (s short.Stats) {
	defer a.traffic.lock()()
	if a.traffic.short != nil {
		s = a.traffic.short.Stats()
	}
	return s
}

// TrafficStats reads the counters of this host's side.
func (a *Agent) TrafficStats(ctx context.Context) (TrafficStats, error) {
	defer a.traffic.lock()()
	out := a.traffic.inProcess.Stats(ctx)
	var adding sync.Mutex
	err := onEachWorker(a.traffic.workers(), func(_ int, w *worker) error {
		part, err := ask[TrafficStats](ctx, w.Conn, "Stats")
		adding.Lock()
		defer adding.Unlock()
		out.add(part)
		for name, ns := range part.ThreadNs {
			side, thread, _ := strings.Cut(name, " ")
			out.ThreadNs[fmt.Sprintf("%s worker %d %s", side, w.num, thread)] = ns
		}
		return err
	})
	if err != nil {
		return out, fmt.Errorf("reading the streams' counters: %w", err)
	}
	a.programStats(&out)
	return out, a.traffic.frames.read(&out)
}

// MarkTraffic has shares counted from now on.
func (a *Agent) MarkTraffic(ctx context.Context) error {
	defer a.traffic.lock()()
	a.traffic.inProcess.Mark(ctx)
	if err := onEachWorker(a.traffic.workers(), func(_ int, w *worker) error { return w.do(ctx, "Mark") }); err != nil {
		return fmt.Errorf("marking the streams: %w", err)
	}
	return a.traffic.frames.mark()
}

// StopTraffic ends the load on this host.
func (a *Agent) StopTraffic(ctx context.Context) error {
	defer a.traffic.lock()()
	a.traffic.stopShort()
	err := errors.Join(a.traffic.stopStreams(), a.traffic.frames.stop())
	a.traffic.frames = nil
	var wg sync.WaitGroup
	errs := make([]error, len(a.traffic.programs))
	for i, name := range a.traffic.programs {
		wg.Go(func() { _, errs[i] = a.End(ctx, Ending{Name: name}) })
	}
	wg.Wait()
	a.traffic.programs = nil
	return errors.Join(append(errs, err)...)
}

// StartRTT begins probing the server from the clients in turn.
func (a *Agent) StartRTT(ctx context.Context, server netip.Addr) error {
	pool, err := a.clients()
	if err != nil {
		return err
	}
	defer a.traffic.lock()()
	if a.traffic.prober != nil {
		return nil
	}
	// Eight to fifteen clients stand for all: their sockets stay open for the whole block.
	const most = 8
	step := max(1, len(pool.Clients)/most)
	probes := bundle{Config: traffic.Config{UDP: true}, To: netip.AddrPortFrom(server, echoPort)}
	for i := 0; i < len(pool.Clients); i += step {
		if ip := pool.Clients[i].LocalIP(); ip.IsValid() {
			probes.clients, probes.From = append(probes.clients, pool.Clients[i]), append(probes.From, ip)
		}
	}
	a.traffic.prober, err = rtt.Probe(context.WithoutCancel(ctx), len(probes.From), func(i int) (int, error) {
		return probes.dial(ctx, i)
	})
	return err
}

// PathMTU looks for the largest packet that the first client can send to the server, which has served traffic.
func (a *Agent) PathMTU(ctx context.Context, server netip.Addr) (m rtt.MTU, err error) {
	pool, err := a.clients()
	if err != nil {
		return m, err
	}
	probe := bundle{Config: traffic.Config{UDP: true}, To: netip.AddrPortFrom(server, echoPort), clients: pool.Clients[:1],
		From: []netip.Addr{pool.Clients[0].LocalIP()}}
	fd, err := probe.dial(ctx, 0)
	if err != nil {
		return m, err
	}
	defer unix.Close(fd)
	return rtt.PathMTU(ctx, fd, pool.Kind().MTU)
}

// TakeRTT returns round-trip times since the last call and starts anew.
func (a *Agent) TakeRTT(context.Context) (r rtt.Times, err error) {
	defer a.traffic.lock()()
	if a.traffic.prober == nil {
		return r, errors.New("no round-trip probes run")
	}
	r = a.traffic.prober.Snapshot()
	a.traffic.prober.Reset()
	return r, nil
}

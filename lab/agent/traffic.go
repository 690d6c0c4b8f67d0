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

// Traffic describes a load: what the clients of a host send to the server or receive from it. All clients have equal
// shares of it.
type Traffic struct {
	Kind      string `json:"kind"` // one of traffic.Kinds
	UDP       bool   `json:"udp"`
	Paced     bool   `json:"paced"`     // iperf3's connections are paced by the kernel's sockets, not by iperf3's timer
	Direction string `json:"direction"` // result.Up, result.Down, or result.Both for streams
	Clients   int    `json:"clients"`   // of this host; for the server, of all client hosts
	// MostClients is the larger number of clients of the two labs of a pair, so that both labs get the same settings.
	MostClients   int     `json:"most_clients"`
	ClientHosts   int     `json:"client_hosts"` // hosts with clients, each with a generator; zero is 1
	Workers       int     `json:"workers"`      // processes that share each host's streams: see ProcessesFor
	OfferedMbps   float64 `json:"offered_mbps"` // payload, all Clients together
	BurstSegments int     `json:"burst_segments"`
	MTU           int     `json:"mtu,omitempty"` // of the path, bytes, if less than that of the clients' links; else 0
	MaxSeconds    int     `json:"max_seconds"`   // after this time the load ends by itself
	Server        Server  `json:"server"`
	// ShortPerSecond is how many short connections a second the clients open in turn, beside the load. Zero: none.
	ShortPerSecond float64       `json:"short_per_second,omitempty"`
	ShortBytes     int           `json:"short_bytes,omitempty"` // that each of them transfers
	ShortAfter     time.Duration `json:"short_after,omitempty"` // from the start of the load to the first one
	Frames         *Frames       `json:"frames,omitempty"`      // this host's part; nil for other kinds of traffic
}

// Server is where the clients' traffic goes: the server's IPv4 address, its IPv6 address, or both. Each client uses the
// one of the family that it sends by.
type Server struct {
	Addr4 netip.Addr `json:"addr,omitzero"`
	Addr6 netip.Addr `json:"addr6,omitzero"`
}

// ServerFor returns the server's addresses for clients of a family.
func ServerFor(f client.Family, addr4, addr6 netip.Addr) (s Server) {
	if f.Has4() {
		s.Addr4 = addr4
	}
	if f.Has6() {
		s.Addr6 = addr6
	}
	return s
}

// listen returns the address at which a program of the server's host listens: with both families any, which a socket
// of IPv6 takes connections of IPv4 at too.
func (s Server) listen(port uint16) netip.AddrPort {
	switch {
	case !s.Addr6.IsValid():
		return netip.AddrPortFrom(s.Addr4, port)
	case !s.Addr4.IsValid():
		return netip.AddrPortFrom(s.Addr6, port)
	}
	return netip.AddrPortFrom(netip.IPv6Unspecified(), port)
}

// port returns where a client with an address sends.
func (s Server) port(from netip.Addr, port uint16) netip.AddrPort {
	if from.Is6() {
		return netip.AddrPortFrom(s.Addr6, port)
	}
	return netip.AddrPortFrom(s.Addr4, port)
}

// Ports of the server.
const (
	pulsePort   = 6               // pulses
	echoPort    = 7               // probes of the round-trip time
	shortPort   = 5200            // short connections
	trafficPort = 5201            // streams of one process; with iperf3 the first of one port a client
	workersPort = trafficPort + 1 // streams of several processes: the first of one port a worker
)

// directions lists the directions in which a load sends.
func (t Traffic) directions() []string {
	if t.Direction == result.Both {
		return []string{result.Up, result.Down}
	}
	return []string{t.Direction}
}

// Streams is the number of streams of a load on a host with that number of clients.
func (t Traffic) Streams() int { return t.Clients * len(t.directions()) }

// TrafficStats counts what one host has sent and received of a load, from its start.
type TrafficStats struct {
	MonotonicNs   int64 `json:"monotonic_ns"` // the host's clock when the counters were read
	ReceivedBytes int64 `json:"received_bytes"`
	// Datagrams are those of streams over UDP, and frames. The sender counts sent ones, the receiver all else.
	Datagrams traffic.Datagrams `json:"datagrams,omitzero"`
	Bursts    int64             `json:"bursts,omitzero"` // sent, of streams over UDP
	// Connect and FirstByte are the times that the streams from this host took. With several processes they are
	// those of the slowest.
	Connect   traffic.Delays `json:"connect_us"`
	FirstByte traffic.Delays `json:"first_byte_us"`
	Shares    traffic.Shares `json:"shares"` // bytes of each stream that ends here, since MarkTraffic
	// Open means that the congestion windows of all TCP streams that send from here have grown enough for whole bursts.
	// It is true where none send.
	Open       bool       `json:"open"`
	Broken     int        `json:"broken"` // streams or processes that ended early
	FirstError string     `json:"first_error,omitempty"`
	Frames     FrameStats `json:"frames,omitzero"`
	// ThreadNs is the CPU time of each thread or process that makes or receives the load. The
	// busiest shows how close the generator is to its limit.
	ThreadNs map[string]int64 `json:"thread_ns"`
}

// trafficState is a host's part in the load that runs now.
type trafficState struct {
	inProcess streams // of the agent's own process

	mu                      sync.Mutex // guards what follows; the agent's exported methods hold it
	nearWorkers, farWorkers []*worker  // for generators, and for servers, where one process may open too few files
	echo                    *rtt.Echo
	prober                  *rtt.Prober
	answers                 *short.Server    // of short connections
	short                   *short.Generator // nil while none are opened
	programs                []string         // names of spawned iperf3 processes
	frames                  *frameLoad       // nil while none runs
}

// lock locks mu and returns the function that unlocks it: defer s.lock()().
func (s *trafficState) lock() func() {
	s.mu.Lock()
	return s.mu.Unlock
}

// close ends generators and workers. Servers end with the agent's process.
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

// loadEnds starts the two ends of a kind of traffic: serve the server's, start the clients'. The caller holds the lock
// of the agent's trafficState.
type loadEnds struct {
	serve func(*Agent, context.Context, Traffic) error
	start func(*Agent, context.Context, Traffic, *client.Pool) error
}

// loads has the functions for each kind of traffic.
var loads = map[string]loadEnds{
	traffic.KindStreams: {(*Agent).serveStreams, (*Agent).startStreams},
	traffic.KindIperf3:  {(*Agent).serveIperf3, (*Agent).startIperf3},
	traffic.KindFrames:  {(*Agent).serveFrames, (*Agent).startFrames},
}

// ends returns the functions for the load's kind.
func (t Traffic) ends() (loadEnds, error) {
	k, known := loads[t.Kind]
	if !known {
		return k, fmt.Errorf("unknown kind of traffic %q (known: %s)", t.Kind, strings.Join(traffic.Kinds(nil), ", "))
	}
	return k, nil
}

// ServeTraffic prepares the server's host for a load: it starts the servers that do not run yet.
func (a *Agent) ServeTraffic(ctx context.Context, t Traffic) error {
	k, err := t.ends()
	if err != nil {
		return err
	}
	s := &a.traffic
	defer s.lock()()
	if err := s.serveEcho(t.Server); err != nil {
		return err
	}
	if t.ShortPerSecond > 0 && s.answers == nil {
		if s.answers, err = short.Serve(ctx, t.Server.listen(shortPort)); err != nil {
			return err
		}
	}
	return k.serve(a, ctx, t)
}

// ServeEcho prepares the server's host for probes of the round-trip time, without a load.
func (a *Agent) ServeEcho(_ context.Context, server Server) error {
	defer a.traffic.lock()()
	return a.traffic.serveEcho(server)
}

// serveEcho starts the echo server, unless it runs. The caller holds the lock.
func (s *trafficState) serveEcho(server Server) (err error) {
	if s.echo == nil {
		s.echo, err = rtt.ServeEcho(server.listen(echoPort))
	}
	return err
}

// StartTraffic starts a load on a host with clients. A load of frames needs it on the server's host too.
func (a *Agent) StartTraffic(ctx context.Context, t Traffic) error {
	k, err := t.ends()
	pool, without := a.clients()
	if t.Frames != nil {
		without = nil // a host can send frames without clients: Frames has their addresses
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
	cfg := short.Config{PerSecond: t.ShortPerSecond, After: t.ShortAfter, Bytes: t.ShortBytes}
	s.short, err = short.Start(context.WithoutCancel(ctx), cfg, func(ctx context.Context, n int) (net.Conn, error) {
		c := pool.Clients[n%len(pool.Clients)]
		return c.DialContext(ctx, "tcp", t.Server.port(c.LocalIP(), shortPort).String())
	})
	return err
}

// stopShort ends the short connections.
func (s *trafficState) stopShort() {
	if s.short != nil {
		s.short.Close()
		s.short = nil
	}
}

// ShortStats returns the counts of the short connections since the load began; all zero without any.
func (a *Agent) ShortStats(context.Context) (s short.Stats) {
	defer a.traffic.lock()()
	if a.traffic.short != nil {
		s = a.traffic.short.Stats()
	}
	return s
}

// TrafficStats adds up the counters of the load on this host: of this process, workers and programs.
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

// MarkTraffic makes TrafficStats.Shares count from now on.
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

// StartRTT begins to measure the round-trip time to the server, from some of the clients in turn. When it runs already
// it does nothing.
func (a *Agent) StartRTT(ctx context.Context, server Server) error {
	pool, err := a.clients()
	if err != nil {
		return err
	}
	defer a.traffic.lock()()
	if a.traffic.prober != nil {
		return nil
	}
	// At most fifteen clients probe, because each needs an open socket until the agent ends.
	const wanted = 8
	step := max(1, len(pool.Clients)/wanted)
	probes := bundle{Config: traffic.Config{UDP: true}, Server: server, Port: echoPort}
	for i := 0; i < len(pool.Clients); i += step {
		if ip := pool.Clients[i].LocalIP(); ip.IsValid() {
			probes.clients, probes.Local = append(probes.clients, pool.Clients[i]), append(probes.Local, ip)
		}
	}
	a.traffic.prober, err = rtt.Probe(context.WithoutCancel(ctx), len(probes.Local), func(i int) (int, error) {
		return probes.dial(ctx, i)
	})
	return err
}

// PathMTU finds the largest packet that the first client can send to the server and back. ServeTraffic must have been
// called on the server's host.
func (a *Agent) PathMTU(ctx context.Context, server Server) (m rtt.MTU, err error) {
	pool, err := a.clients()
	if err != nil {
		return m, err
	}
	probe := bundle{
		Config: traffic.Config{UDP: true}, Server: server, Port: echoPort, clients: pool.Clients[:1],
		Local: []netip.Addr{pool.Clients[0].LocalIP()}}
	fd, err := probe.dial(ctx, 0)
	if err != nil {
		return m, err
	}
	defer unix.Close(fd)
	return rtt.PathMTU(ctx, fd, pool.Kind().MTU)
}

// TakeRTT returns the round-trip times measured since the last call.
func (a *Agent) TakeRTT(context.Context) (r rtt.Times, err error) {
	defer a.traffic.lock()()
	if a.traffic.prober == nil {
		return r, errors.New("no round-trip probes run")
	}
	r = a.traffic.prober.Snapshot()
	a.traffic.prober.Reset()
	return r, nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/rtt"
	"github.com/gateweigh/gateweigh/lab/traffic/short"
)

// Traffic is one cell's load: every client gets an equal share.
type Traffic struct {
	Kind          string     `json:"kind"` // one of traffic.Kinds
	UDP           bool       `json:"udp"`
	Paced         bool       `json:"paced"`        // iperf3: by the socket, not by its own timer
	Direction     string     `json:"direction"`    // traffic.Up, traffic.Down, or Both for streams
	Clients       int        `json:"clients"`      // of this host; for the server of all hosts
	MostClients   int        `json:"most_clients"` // of the larger lab of a pair: what so many need is set in both
	ClientHosts   int        `json:"client_hosts"` // that load the server, each by a generator of its own; zero is 1
	Workers       int        `json:"workers"`      // processes that share the streams of each host: see Workers
	OfferedMbps   float64    `json:"offered_mbps"` // payload, all those clients together
	BurstSegments int        `json:"burst_segments"`
	MaxSeconds    int        `json:"max_seconds"` // the load ends by itself after this
	Server        netip.Addr `json:"server"`
	// ShortPerSecond connections a second of ShortBytes each are opened beside, from
	// all clients in turn; zero: none.
	ShortPerSecond float64       `json:"short_per_second,omitempty"`
	ShortBytes     int           `json:"short_bytes,omitempty"`
	ShortAfter     time.Duration `json:"short_after,omitempty"` // when the first of a host is due
}

// Ports on the server: streams use the first, or one a worker from the second on;
// iperf3 uses one a client.
const (
	shortPort   = 5200
	trafficPort = 5201
	workersPort = trafficPort + 1
	echoPort    = 7
)

// Both is the direction of a load that goes half each way, with a stream a client
// for either.
const Both = "both"

// directions are those of a load's streams.
func (t Traffic) directions() []string {
	if t.Direction == Both {
		return []string{traffic.Up, traffic.Down}
	}
	return []string{t.Direction}
}

// Streams is how many streams a load of so many clients has on each host.
func (t Traffic) Streams() int { return t.Clients * len(t.directions()) }

// TrafficStats is what one host's side of the traffic has done so far.
type TrafficStats struct {
	MonotonicNs   int64 `json:"monotonic_ns"` // the host's clock when the counters were read
	ReceivedBytes int64 `json:"received_bytes"`
	// Datagrams and Bursts are of streams over UDP: counted by the end that each is
	// known to, and bursts by the end that sends.
	Datagrams traffic.Datagrams `json:"datagrams,omitzero"`
	Bursts    int64             `json:"bursts,omitzero"`
	Connect   traffic.Delays    `json:"connect_us"` // of the streams from here; of several processes the slowest
	FirstByte traffic.Delays    `json:"first_byte_us"`
	Shares    traffic.Shares    `json:"shares"` // of the streams that end here, since MarkTraffic
	// Open is that the streams that send from here have their windows open: bursts
	// leave whole from then on. Always true where none send.
	Open       bool   `json:"open"`
	Broken     int    `json:"broken"` // streams or processes that ended early
	FirstError string `json:"first_error,omitempty"`
	// ThreadNs is the CPU time of each traffic thread or process; the busiest
	// says how close the generator is to its limit.
	ThreadNs map[string]int64 `json:"thread_ns"`
}

// trafficState is the traffic a host takes part in.
type trafficState struct {
	mu         sync.Mutex // guards what follows
	server     *traffic.Server
	udp        bool                 // server's protocol
	runs       int                  // generators of all client hosts together that load server
	generators []*traffic.Generator // one a direction
	// farWorkers and nearWorkers do the same where one process has too few files.
	farWorkers, nearWorkers []*worker
	echo                    *rtt.Echo
	prober                  *rtt.Prober
	answers                 *short.Server    // of short connections
	short                   *short.Generator // nil while none are opened
	programs                []string         // names of spawned iperf3 processes
}

func (t *trafficState) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.generators {
		g.Close()
	}
	if t.prober != nil {
		t.prober.Close()
	}
	if t.server != nil {
		t.server.Close()
	}
	if t.echo != nil {
		t.echo.Close()
	}
	if t.short != nil {
		t.short.Close()
	}
	if t.answers != nil {
		t.answers.Close()
	}
	t.generators, t.prober, t.server, t.echo, t.short, t.answers = nil, nil, nil, nil, nil, nil
	for _, w := range append(t.nearWorkers, t.farWorkers...) {
		w.close()
	}
	t.nearWorkers, t.farWorkers = nil, nil
}

// loads is how an agent carries out each kind of traffic. The caller holds the traffic's lock.
var loads = map[string]load{
	traffic.KindStreams: {(*Agent).serveStreams, (*Agent).startStreams},
	traffic.KindIperf3:  {(*Agent).serveIperf3, (*Agent).startIperf3},
}

// load is both ends of a kind of traffic. stopGenerators and the end of programs stop both.
type load struct {
	serve func(*Agent, context.Context, Traffic) error
	start func(*Agent, context.Context, Traffic, *client.Pool) error
}

func (t Traffic) kind() (load, error) {
	k, known := loads[t.Kind]
	if !known {
		return k, fmt.Errorf("unknown kind of traffic %q (known: %s)", t.Kind, strings.Join(traffic.Kinds(nil), ", "))
	}
	return k, nil
}

// trafficServe prepares the server host. Streams of later runs find the same
// server; iperf3 servers are started anew for each.
func (a *Agent) trafficServe(ctx context.Context, t Traffic) (none, error) {
	a.traffic.mu.Lock()
	defer a.traffic.mu.Unlock()
	if a.traffic.echo == nil {
		echo, err := rtt.ServeEcho(netip.AddrPortFrom(t.Server, echoPort))
		if err != nil {
			return none{}, err
		}
		a.traffic.echo = echo
	}
	if err := a.traffic.serveShort(ctx, t); err != nil {
		return none{}, err
	}
	k, err := t.kind()
	if err != nil {
		return none{}, err
	}
	return none{}, k.serve(a, ctx, t)
}

// trafficStart starts the load from the client host.
func (a *Agent) trafficStart(ctx context.Context, t Traffic) (none, error) {
	pool, err := a.clients()
	if err != nil {
		return none{}, err
	}
	a.traffic.mu.Lock()
	defer a.traffic.mu.Unlock()
	if err := a.traffic.startShort(ctx, t, pool); err != nil {
		return none{}, err
	}
	k, err := t.kind()
	if err != nil {
		return none{}, err
	}
	return none{}, k.start(a, ctx, t, pool)
}

// trafficStats reads the counters of this host's side.
func (a *Agent) trafficStats(ctx context.Context, _ none) (TrafficStats, error) {
	a.traffic.mu.Lock()
	defer a.traffic.mu.Unlock()
	out := a.traffic.streamStats()
	if err := a.traffic.addWorkerStats(ctx, &out); err != nil {
		return out, err
	}
	a.programStats(&out)
	return out, nil
}

// trafficMark has shares counted from now on.
func (a *Agent) trafficMark(ctx context.Context, _ none) (none, error) {
	a.traffic.mu.Lock()
	defer a.traffic.mu.Unlock()
	a.traffic.mark()
	for _, list := range [][]*worker{a.traffic.nearWorkers, a.traffic.farWorkers} {
		if err := eachWorker(list, func(_ int, w *worker) error { return w.call(ctx, "mark", none{}, nil) }); err != nil {
			return none{}, fmt.Errorf("marking the streams: %w", err)
		}
	}
	return none{}, nil
}

// trafficStop ends the load on this host. Without one it does nothing.
func (a *Agent) trafficStop(ctx context.Context, _ none) (none, error) {
	a.traffic.mu.Lock()
	defer a.traffic.mu.Unlock()
	a.traffic.stopShort()
	err := a.traffic.stopGenerators()
	var wg sync.WaitGroup
	for _, name := range a.traffic.programs {
		wg.Go(func() { a.kill(ctx, name) })
	}
	wg.Wait()
	a.traffic.programs = nil
	return none{}, err
}

// rttStart begins probing the server from the clients in turn.
func (a *Agent) rttStart(ctx context.Context, server netip.Addr) (none, error) {
	pool, err := a.clients()
	if err != nil {
		return none{}, err
	}
	a.traffic.mu.Lock()
	defer a.traffic.mu.Unlock()
	if a.traffic.prober != nil {
		return none{}, nil
	}
	to := netip.AddrPortFrom(server, echoPort)
	// A few clients stand for all: their sockets stay open for the whole block.
	const most = 8
	step := max(1, len(pool.Clients)/most)
	chosen := slices.Collect(func(yield func(*client.Client) bool) {
		for i := 0; i < len(pool.Clients); i += step {
			if !yield(pool.Clients[i]) {
				return
			}
		}
	})
	a.traffic.prober, err = rtt.Probe(context.WithoutCancel(ctx), len(chosen), func(i int) (int, error) {
		return dialStream(ctx, traffic.Config{UDP: true}, chosen[i], to)
	})
	return none{}, err
}

// rttTake returns round-trip times since the last call and starts anew.
func (a *Agent) rttTake(context.Context, none) (rtt.Times, error) {
	a.traffic.mu.Lock()
	defer a.traffic.mu.Unlock()
	if a.traffic.prober == nil {
		return rtt.Times{}, errors.New("no round-trip probes run")
	}
	r := a.traffic.prober.Snapshot()
	a.traffic.prober.Reset()
	return r, nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// Listener is where a server of streams takes them.
type Listener struct {
	At netip.AddrPort `json:"at"`
	// Runs is how many generators load it: one a client host and direction.
	Runs int  `json:"runs"`
	UDP  bool `json:"udp,omitzero"`
}

// streams are those of one process: the agent's, which calls the methods, or a
// worker's, where they are the verbs.
type streams struct {
	mu         sync.Mutex           // guards what follows
	generators []*traffic.Generator // one a direction
	server     *traffic.Server
	from       Listener // server's
}

// Serve starts the server, once for each protocol in turn. It outlives the request.
func (s *streams) Serve(ctx context.Context, l Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.from
	if s.from = l; s.server != nil {
		if before.UDP == l.UDP {
			return nil
		}
		s.server.Close()
		s.server = nil
	}
	server, err := traffic.Serve(context.WithoutCancel(ctx), l.At, l.UDP)
	if err == nil {
		s.server = server
	}
	return err
}

// Start starts one generator more. It outlives the request; only connecting ends with that.
func (s *streams) Start(ctx context.Context, b bundle) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	g, err := traffic.Start(run, b.Config, b.dial)
	if err != nil || !stop() {
		cancel()
		return errors.Join(err, context.Cause(ctx))
	}
	s.generators = append(s.generators, g)
	return nil
}

// Stats reads the counters.
func (s *streams) Stats(context.Context) TrafficStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := TrafficStats{MonotonicNs: meter.MonotonicNs(), ThreadNs: map[string]int64{}, Open: true}
	add := func(side string, s traffic.Stats) {
		out.add(TrafficStats{
			ReceivedBytes: s.ReceivedBytes, Datagrams: s.Datagrams, Bursts: s.Bursts, Open: s.Open, Connect: s.Connect,
			FirstByte: s.FirstByte, Shares: s.Shares, Broken: s.Broken, FirstError: s.FirstError,
		})
		for _, t := range s.Threads {
			out.ThreadNs[side+" "+t.Name] += t.CPUNs
		}
	}
	for _, g := range s.generators {
		add("client", g.Stats())
	}
	if s.server != nil {
		for _, run := range s.server.Stats(s.from.Runs) {
			add("server", run)
		}
	}
	return out
}

// Mark counts shares anew.
func (s *streams) Mark(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.generators {
		g.Mark()
	}
	if s.server != nil {
		s.server.Mark(s.from.Runs)
	}
}

// Stop ends the generators.
func (s *streams) Stop(context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.generators {
		err = errors.Join(err, g.Close())
	}
	s.generators = nil
	return err
}

// serveStreams prepares the far end of streams, which later loads find again.
func (a *Agent) serveStreams(ctx context.Context, t Traffic) (err error) {
	if err := t.prepareHost(); err != nil {
		return err
	}
	listener := Listener{netip.AddrPortFrom(t.Server, trafficPort), max(1, t.ClientHosts) * len(t.directions()), t.UDP}
	if t.Workers <= 1 {
		return a.traffic.inProcess.Serve(ctx, listener)
	}
	if a.traffic.farWorkers, err = addWorkers(a.opts.Host, a.traffic.farWorkers, t.Workers); err != nil {
		return err
	}
	return onEachWorker(a.traffic.farWorkers, func(i int, w *worker) error {
		listener := listener
		listener.At = netip.AddrPortFrom(t.Server, workersPort+uint16(i))
		return w.do(ctx, "Serve", listener)
	})
}

// prepareHost sets what a host needs for so many streams.
func (t Traffic) prepareHost() error {
	if max(t.Clients, t.MostClients) <= WindowsAtOnce || t.UDP {
		return nil
	}
	return client.SetSysctls(manyStreamSysctls)
}

// startStreams starts the streams of the host's clients, one bundle a direction and process.
func (a *Agent) startStreams(ctx context.Context, t Traffic, pool *client.Pool) (err error) {
	s := &a.traffic
	if err := t.prepareHost(); err != nil {
		return err
	}
	if len(s.inProcess.generators)+len(s.nearWorkers) > 0 {
		return errTraffic
	}
	all := bundle{To: netip.AddrPortFrom(t.Server, trafficPort)}
	for i := range t.Clients {
		c := pool.Clients[i%len(pool.Clients)]
		if t.Workers > 1 && c.NetNS() != nil {
			return fmt.Errorf("%d streams need several processes, and clients with namespaces of their own "+
				"cannot use them: choose kind %s", t.Clients, client.Largest())
		}
		all.clients, all.From = append(all.clients, c), append(all.From, c.LocalIP())
	}
	if t.Workers > 1 {
		all.To = netip.AddrPortFrom(t.Server, workersPort)
		s.nearWorkers, err = addWorkers(a.opts.Host, nil, t.Workers)
	}
	for _, cfg := range t.configs(pool.Kind().MTU) {
		all.Config = cfg
		switch {
		case err != nil:
		case t.Workers > 1:
			parts := all.split(t.Workers)
			err = onEachWorker(s.nearWorkers, func(i int, w *worker) error { return w.do(ctx, "Start", parts[i]) })
		default:
			err = s.inProcess.Start(ctx, all)
		}
	}
	if err != nil {
		return errors.Join(err, s.stopStreams())
	}
	return nil
}

// configs are the generators of a load, one a direction; mtu is the clients'.
func (t Traffic) configs(mtu int) (list []traffic.Config) {
	directions := t.directions()
	if t.MTU > 0 {
		mtu = min(mtu, t.MTU)
	}
	for _, direction := range directions {
		list = append(list, traffic.Config{
			Streams: t.Clients, UDP: t.UDP, RateBps: t.OfferedMbps * 1e6 / float64(len(directions)), Direction: direction,
			BurstSegments: t.BurstSegments, MSS: traffic.SegmentBytes(mtu, t.UDP), MaxSeconds: t.MaxSeconds,
		})
	}
	return list
}

// stopStreams ends what generates on this host, and the workers that do.
func (s *trafficState) stopStreams() error {
	err := errors.Join(s.inProcess.Stop(context.Background()), onEachWorker(s.nearWorkers, func(_ int, w *worker) error {
		defer w.close()
		return w.do(context.Background(), "Stop")
	}))
	s.nearWorkers = nil
	return err
}

// bundle is streams of one process: one from each of the addresses.
type bundle struct {
	Config traffic.Config `json:"config"`
	From   []netip.Addr   `json:"from"`
	To     netip.AddrPort `json:"to"`

	clients []*client.Client // in whose namespaces the sockets are made; a worker has none
}

// split shares streams out over n workers; worker i sends to the port of the server's
// worker i.
func (b bundle) split(n int) []bundle {
	list := make([]bundle, n)
	for i := range list {
		lo, hi := len(b.From)*i/n, len(b.From)*(i+1)/n
		part := bundle{Config: b.Config, From: b.From[lo:hi], To: netip.AddrPortFrom(b.To.Addr(), b.To.Port()+uint16(i))}
		part.Config.Streams, part.Config.RateBps = hi-lo, b.Config.RateBps*float64(hi-lo)/float64(len(b.From))
		list[i] = part
	}
	return list
}

// dial connects stream i: a traffic.DialFunc.
func (b bundle) dial(ctx context.Context, i int) (fd int, err error) {
	open := func() (err error) {
		fd, err = traffic.NewSocket(b.To.Addr(), b.Config.UDP)
		return err
	}
	if b.clients != nil {
		err = b.clients[i].Do(open)
	} else {
		err = open()
	}
	if err != nil {
		return -1, err
	}
	if err := traffic.Connect(ctx, fd, b.From[i], b.To); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// add adds a part's streams. Threads have names of their own, and are left to the caller.
func (s *TrafficStats) add(p TrafficStats) {
	s.ReceivedBytes += p.ReceivedBytes
	s.Datagrams, s.Bursts = s.Datagrams.Add(p.Datagrams), s.Bursts+p.Bursts
	s.Open = s.Open && p.Open
	s.Connect, s.FirstByte = s.Connect.Worst(p.Connect), s.FirstByte.Worst(p.FirstByte)
	s.Shares = s.Shares.With(p.Shares)
	if s.Broken += p.Broken; s.FirstError == "" {
		s.FirstError = p.FirstError
	}
}

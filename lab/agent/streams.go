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

// Listener says where a server of streams listens.
type Listener struct {
	Addr netip.AddrPort `json:"at"`
	// Generators is the number of generators that send to the server: one for each client host and direction.
	Generators int  `json:"runs"`
	UDP        bool `json:"udp,omitzero"` // else TCP
}

// streams is both ends of the streams in one process: a server, and generators, which simulate the clients. With few
// streams they are in the agent. Otherwise they are in workers, to which the agent sends the methods as requests.
type streams struct {
	mu         sync.Mutex           // guards what follows
	generators []*traffic.Generator // one a direction
	server     *traffic.Server
	listener   Listener // of server
}

// Serve starts the server. When it runs already it keeps the server, unless the protocol changes. The server goes on
// after the request.
func (s *streams) Serve(ctx context.Context, l Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.listener
	if s.listener = l; s.server != nil {
		if before.UDP == l.UDP {
			return nil
		}
		s.server.Close()
		s.server = nil
	}
	server, err := traffic.Serve(context.WithoutCancel(ctx), l.Addr, l.UDP)
	if err == nil {
		s.server = server
	}
	return err
}

// Start starts one more generator and connects its streams. The generator goes on after the request, but if the request
// is cancelled while the streams connect, it ends.
func (s *streams) Start(ctx context.Context, b bundle) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	generating, cancel := context.WithCancel(context.WithoutCancel(ctx))
	detach := context.AfterFunc(ctx, cancel)
	g, err := traffic.Start(generating, b.Config, b.dial)
	if err != nil || !detach() {
		cancel()
		return errors.Join(err, context.Cause(ctx))
	}
	s.generators = append(s.generators, g)
	return nil
}

// Stats adds up the counters of the generators and the server.
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
		for _, stats := range s.server.Stats(s.listener.Generators) {
			add("server", stats)
		}
	}
	return out
}

// Mark makes TrafficStats.Shares count from now on.
func (s *streams) Mark(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.generators {
		g.Mark()
	}
	if s.server != nil {
		s.server.Mark(s.listener.Generators)
	}
}

// Stop ends the generators. The server goes on.
func (s *streams) Stop(context.Context) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.generators {
		err = errors.Join(err, g.Close())
	}
	s.generators = nil
	return err
}

// serveStreams prepares the server's end of streams. Later loads use the same server.
func (a *Agent) serveStreams(ctx context.Context, t Traffic) (err error) {
	if err := t.prepareHost(); err != nil {
		return err
	}
	listener := Listener{t.Server.listen(trafficPort), max(1, t.ClientHosts) * len(t.directions()), t.UDP}
	if t.Workers <= 1 {
		return a.traffic.inProcess.Serve(ctx, listener)
	}
	if a.traffic.farWorkers, err = addWorkers(a.opts.Host, a.traffic.farWorkers, t.Workers); err != nil {
		return err
	}
	return onEachWorker(a.traffic.farWorkers, func(i int, w *worker) error {
		listener := listener
		listener.Addr = t.Server.listen(workersPort + uint16(i))
		return w.do(ctx, "Serve", listener)
	})
}

// prepareHost sets the sysctls that a host needs for many streams.
func (t Traffic) prepareHost() error {
	if max(t.Clients, t.MostClients) <= WindowsAtOnce || t.UDP {
		return nil
	}
	return client.SetSysctls(manyStreamSysctls)
}

// startStreams starts the streams of the host's clients: for each direction one bundle, or one in each worker.
func (a *Agent) startStreams(ctx context.Context, t Traffic, pool *client.Pool) (err error) {
	s := &a.traffic
	if err := t.prepareHost(); err != nil {
		return err
	}
	if len(s.inProcess.generators)+len(s.nearWorkers) > 0 {
		return errTraffic
	}
	all := bundle{Server: t.Server, Port: trafficPort}
	for i := range t.Clients {
		c := pool.Clients[i%len(pool.Clients)]
		if t.Workers > 1 && c.NetNS() != nil {
			return fmt.Errorf("%d streams need several processes, and clients with namespaces of their own "+
				"cannot use them: choose kind %s", t.Clients, client.LargestKind())
		}
		all.clients, all.Local = append(all.clients, c), append(all.Local, c.LocalIP())
	}
	if t.Workers > 1 {
		all.Port = workersPort
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

// configs are the settings of a load's generators, one a direction. mtu is that of the clients' links, bytes.
func (t Traffic) configs(mtu int) (list []traffic.Config) {
	directions := t.directions()
	if t.MTU > 0 {
		mtu = min(mtu, t.MTU)
	}
	for _, direction := range directions {
		list = append(list, traffic.Config{
			Streams: t.Clients, UDP: t.UDP, RateBps: t.OfferedMbps * 1e6 / float64(len(directions)), Direction: direction,
			BurstSegments: t.BurstSegments, MSS: t.segmentBytes(mtu), MaxSeconds: t.MaxSeconds,
		})
	}
	return list
}

// segmentBytes is the payload of the load's full packets where the clients' links take mtu bytes.
func (t Traffic) segmentBytes(mtu int) int {
	if t.Server.Addr6.IsValid() {
		mtu = client.IPv6.PacketMTU(mtu)
	}
	return traffic.SegmentBytes(mtu, t.UDP)
}

// stopStreams ends the generators of this host, and the workers that have generators.
func (s *trafficState) stopStreams() error {
	err := errors.Join(s.inProcess.Stop(context.Background()), onEachWorker(s.nearWorkers, func(_ int, w *worker) error {
		defer w.close()
		return w.do(context.Background(), "Stop")
	}))
	s.nearWorkers = nil
	return err
}

// bundle is the streams of one generator. Stream i is that of client i.
type bundle struct {
	Config traffic.Config `json:"config"`
	Local  []netip.Addr   `json:"from"` // addresses of the clients
	Server Server         `json:"to"`
	Port   uint16         `json:"port"` // of the server

	clients []*client.Client // in whose namespaces the sockets are made; nil in a worker, which stays in the host's
}

// split shares streams out over n workers. Worker i sends to the port of worker i on the
// server's host.
func (b bundle) split(n int) []bundle {
	list := make([]bundle, n)
	for i := range list {
		lo, hi := len(b.Local)*i/n, len(b.Local)*(i+1)/n
		part := bundle{Config: b.Config, Local: b.Local[lo:hi], Server: b.Server, Port: b.Port + uint16(i)}
		part.Config.Streams, part.Config.RateBps = hi-lo, b.Config.RateBps*float64(hi-lo)/float64(len(b.Local))
		list[i] = part
	}
	return list
}

// dial connects stream i, as a traffic.DialFunc.
func (b bundle) dial(ctx context.Context, i int) (fd int, err error) {
	to := b.Server.port(b.Local[i], b.Port)
	open := func() (err error) {
		fd, err = traffic.NewSocket(to.Addr(), b.Config.UDP)
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
	if err := traffic.Connect(ctx, fd, b.Local[i], to); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// add adds the counters of other streams of the same host. It leaves out ThreadNs: callers have to choose names for the
// threads.
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

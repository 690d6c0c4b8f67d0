package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

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

// serveStreams prepares the far end of streams, which later loads find again. The
// caller holds the traffic's lock.
func (a *Agent) serveStreams(ctx context.Context, t Traffic) (err error) {
	if err := t.prepareHost(); err != nil {
		return err
	}
	at := Listener{netip.AddrPortFrom(t.Server, trafficPort), max(1, t.ClientHosts) * len(t.directions()), t.UDP}
	if t.Workers <= 1 {
		return a.traffic.serve(ctx, at)
	}
	if a.traffic.farWorkers, err = addWorkers(a.opts.Host, a.traffic.farWorkers, t.Workers); err != nil {
		return err
	}
	return eachWorker(a.traffic.farWorkers, func(i int, w *worker) error {
		own := at
		own.At = netip.AddrPortFrom(t.Server, workersPort+uint16(i))
		return w.call(ctx, "serve", own, nil)
	})
}

// serve starts the process's own server, once for each protocol in turn.
func (t *trafficState) serve(ctx context.Context, l Listener) (err error) {
	t.runs = l.Runs
	if t.server != nil && t.udp == l.UDP {
		return nil
	}
	if t.server != nil {
		t.server.Close()
		t.server = nil
	}
	// The server outlives the request; it ends with the agent.
	server, err := traffic.Serve(context.WithoutCancel(ctx), l.At, l.UDP)
	if err != nil {
		return err
	}
	t.server, t.udp = server, l.UDP
	return nil
}

// prepareHost sets what a host needs for so many streams.
func (t Traffic) prepareHost() error {
	if max(t.Clients, t.MostClients) <= WindowsAtOnce || t.UDP {
		return nil
	}
	return client.SetSysctls(sysctlsOfMany)
}

// startStreams starts the streams of the host's clients. The caller holds the
// traffic's lock.
func (a *Agent) startStreams(ctx context.Context, t Traffic, pool *client.Pool) (err error) {
	if err := t.prepareHost(); err != nil {
		return err
	}
	if len(a.traffic.generators)+len(a.traffic.nearWorkers) > 0 {
		return errTraffic
	}
	if t.Workers > 1 {
		err = a.startWorkers(ctx, t, pool)
	} else {
		to := netip.AddrPortFrom(t.Server, trafficPort)
		for _, cfg := range t.configs(pool.Kind().MTU) {
			err = errors.Join(err, a.traffic.generate(ctx, cfg, func(ctx context.Context, i int) (int, error) {
				return dialStream(ctx, cfg, pool.Clients[i%len(pool.Clients)], to)
			}))
		}
	}
	if err != nil {
		return errors.Join(err, a.traffic.stopGenerators())
	}
	return nil
}

var errTraffic = errors.New("traffic runs already")

// configs are the generators of a load, one a direction; mtu is the clients'.
func (t Traffic) configs(mtu int) (list []traffic.Config) {
	each := t.directions()
	for _, direction := range each {
		list = append(list, traffic.Config{
			Streams: t.Clients, UDP: t.UDP, RateBps: t.OfferedMbps * 1e6 / float64(len(each)), Direction: direction,
			BurstSegments: t.BurstSegments, MSS: traffic.SegmentBytes(mtu, t.UDP), MaxSeconds: t.MaxSeconds,
		})
	}
	return list
}

// startWorkers starts the streams in processes that share them. The caller holds
// the traffic's lock.
func (a *Agent) startWorkers(ctx context.Context, t Traffic, pool *client.Pool) (err error) {
	from := make([]netip.Addr, t.Clients)
	for i := range from {
		c := pool.Clients[i%len(pool.Clients)]
		if c.NetNS() != nil {
			return fmt.Errorf("%d streams need several processes, and clients with namespaces of their own cannot use them: choose kind %s", t.Clients, client.Largest())
		}
		from[i] = c.LocalIP()
	}
	if a.traffic.nearWorkers, err = addWorkers(a.opts.Host, nil, t.Workers); err != nil {
		return err
	}
	for _, cfg := range t.configs(pool.Kind().MTU) {
		parts := bundles(cfg, from, netip.AddrPortFrom(t.Server, workersPort), t.Workers)
		err = errors.Join(err, eachWorker(a.traffic.nearWorkers, func(i int, w *worker) error { return w.call(ctx, "start", parts[i], nil) }))
	}
	return err
}

// generate starts one more of the process's own generators.
func (t *trafficState) generate(ctx context.Context, cfg traffic.Config, dial traffic.DialFunc) error {
	// The generator outlives the request; only connecting ends with it.
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	g, err := traffic.Start(run, cfg, dial)
	if err != nil || !stop() {
		cancel()
		return errors.Join(err, context.Cause(ctx))
	}
	t.generators = append(t.generators, g)
	return nil
}

// stopGenerators ends what generates on this host, workers and all.
func (t *trafficState) stopGenerators() (err error) {
	for _, g := range t.generators {
		err = errors.Join(err, g.Close())
	}
	err = errors.Join(err, eachWorker(t.nearWorkers, func(_ int, w *worker) error {
		defer w.close()
		return w.call(context.Background(), "stop", none{}, nil)
	}))
	t.generators, t.nearWorkers = nil, nil
	return err
}

func dialStream(ctx context.Context, cfg traffic.Config, c *client.Client, to netip.AddrPort) (int, error) {
	fd := -1
	err := c.Do(func() (err error) {
		fd, err = traffic.NewSocket(to.Addr(), cfg.UDP)
		return err
	})
	if err != nil {
		return -1, err
	}
	return connectStream(ctx, fd, c.LocalIP(), to)
}

// connectStream connects fd, and closes it when that fails.
func connectStream(ctx context.Context, fd int, from netip.Addr, to netip.AddrPort) (int, error) {
	if err := traffic.Connect(ctx, fd, from, to); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// streamStats reads the counters of the process's own generator and server.
func (t *trafficState) streamStats() TrafficStats {
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
	for _, g := range t.generators {
		add("client", g.Stats())
	}
	if t.server != nil {
		for _, s := range t.server.Stats(t.runs) {
			add("server", s)
		}
	}
	return out
}

// add puts a part's streams to those there are. Threads have names of their own, and are
// left to the caller.
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

// mark has the process's own streams count their shares anew. The caller holds the
// traffic's lock.
func (t *trafficState) mark() {
	for _, g := range t.generators {
		g.Mark()
	}
	if t.server != nil {
		t.server.Mark(t.runs)
	}
}

// addWorkerStats adds those of the workers.
func (t *trafficState) addWorkerStats(ctx context.Context, out *TrafficStats) error {
	for _, list := range [][]*worker{t.nearWorkers, t.farWorkers} {
		parts := make([]TrafficStats, len(list))
		err := eachWorker(list, func(i int, w *worker) error { return w.call(ctx, "stats", none{}, &parts[i]) })
		if err != nil {
			return fmt.Errorf("reading the streams' counters: %w", err)
		}
		for i, p := range parts {
			out.add(p)
			for name, ns := range p.ThreadNs {
				side, thread, _ := strings.Cut(name, " ")
				out.ThreadNs[fmt.Sprintf("%s worker %d %s", side, i+1, thread)] = ns
			}
		}
	}
	return nil
}

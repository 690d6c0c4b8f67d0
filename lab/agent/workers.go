package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

const (
	// StreamsPerWorker are streams of one process. A common hard limit is 20,000 open
	// files, and raising it takes a capability that containers lack: where it is lower
	// there are more workers.
	StreamsPerWorker = 16_000
	leastStreams     = 256 // streams of a process whatever its limit: the load then says what it lacks
)

// sysctlsOfMany are set, below /proc/sys/net, where more than WindowsAtOnce streams
// send. The kernel makes buffers smaller the longer a path's shortest round trip
// was; a stream with a burst every few seconds has met a quiet path hardly ever,
// and its bursts would come in pieces.
var sysctlsOfMany = map[string]string{"ipv4/tcp_tso_rtt_log": "30"}

// WindowsAtOnce is how many streams open their windows together when a load begins:
// within its warm-up.
const WindowsAtOnce = 250

// Workers is how many processes on each host it takes for so many streams of one host, where each
// may have so many open files (0: no limit, see Hello); with one the agent does it itself.
func Workers(streams int, files int64) int {
	fit := StreamsPerWorker
	if files > 0 && files < StreamsPerWorker+client.FilesBeside {
		fit = max(leastStreams, int(files)-client.FilesBeside)
	}
	return max(1, (streams+fit-1)/fit)
}

// LeastFiles is the lowest limit of open files under which a process takes so many streams.
func LeastFiles(streams int) int {
	if streams <= leastStreams {
		return 2 * leastStreams
	}
	return streams + client.FilesBeside
}

// worker is a process of an agent that holds a part of its streams, in the agent's
// own network namespace and on its CPUs. It ends with the agent: its input does.
//
//	agent ── stdin, stdout: JSON lines ──► gateweigh agent-worker
type worker struct {
	*Conn
	pid  int
	gone <-chan struct{} // closed when the process has ended
}

// startWorker starts one for a host.
func startWorker(host string) (*worker, error) {
	c, err := StartChild([]string{WorkerCommand}, nil, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("starting a worker for streams: %w", err)
	}
	conn, gone := c.Talk("traffic worker of host " + host)
	return &worker{conn, c.Process.Pid, gone}, nil
}

func (w *worker) close() {
	w.Close()
	<-w.Done()
	<-w.gone
}

// addWorkers makes a host's list of workers n long.
func addWorkers(host string, list []*worker, n int) ([]*worker, error) {
	for len(list) < n {
		w, err := startWorker(host)
		if err != nil {
			return list, err
		}
		list = append(list, w)
	}
	return list, nil
}

// eachWorker asks all workers at once.
func eachWorker(list []*worker, fn func(i int, w *worker) error) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, w := range list {
		wg.Go(func() {
			if err := fn(i, w); err != nil {
				errs[i] = fmt.Errorf("worker %d: %w", i+1, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// bundle is a worker's part of a load: streams from each of the addresses.
type bundle struct {
	Config traffic.Config `json:"config"`
	From   []netip.Addr   `json:"from"`
	To     netip.AddrPort `json:"to"`
}

// bundles shares a load out over n workers; worker i sends to the port of the
// server's worker i.
func bundles(cfg traffic.Config, from []netip.Addr, to netip.AddrPort, n int) []bundle {
	list := make([]bundle, n)
	for i := range list {
		lo, hi := len(from)*i/n, len(from)*(i+1)/n
		b := bundle{cfg, from[lo:hi], netip.AddrPortFrom(to.Addr(), to.Port()+uint16(i))}
		b.Config.Streams, b.Config.RateBps = hi-lo, cfg.RateBps*float64(hi-lo)/float64(len(from))
		list[i] = b
	}
	return list
}

// workerMain is the body of a worker.
func workerMain(ctx context.Context) error {
	runtime.GOMAXPROCS(processors)
	var s streamsWorker
	defer s.state.close()
	return serve(ctx, os.Stdin, os.Stdout, map[string]handler{
		"serve": method(s.serve),
		"start": method(s.start),
		"stats": method(s.stats),
		"mark":  method(s.mark),
		"stop":  method(s.stop),
	})
}

// streamsWorker is the traffic of one worker: a server or a generator.
type streamsWorker struct{ state trafficState }

func (s *streamsWorker) serve(ctx context.Context, at Listener) (none, error) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return none{}, s.state.serve(ctx, at)
}

// start starts one bundle more.
func (s *streamsWorker) start(ctx context.Context, b bundle) (none, error) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return none{}, s.state.generate(ctx, b.Config, func(ctx context.Context, i int) (int, error) {
		fd, err := traffic.NewSocket(b.To.Addr(), b.Config.UDP)
		if err != nil {
			return -1, err
		}
		return connectStream(ctx, fd, b.From[i], b.To)
	})
}

func (s *streamsWorker) stats(context.Context, none) (TrafficStats, error) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.streamStats(), nil
}

func (s *streamsWorker) mark(context.Context, none) (none, error) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.state.mark()
	return none{}, nil
}

func (s *streamsWorker) stop(context.Context, none) (none, error) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return none{}, s.state.stopGenerators()
}

// workersNs is the CPU time of all workers so far. The caller holds no lock.
func (t *trafficState) workersNs() (ns int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range [][]*worker{t.nearWorkers, t.farWorkers} {
		for _, w := range list {
			if p, err := meter.ReadProcess(w.pid); err == nil { // otherwise it is ending now
				ns += p.RunNs
			}
		}
	}
	return ns
}

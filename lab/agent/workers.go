package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/meter"
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
// was; a stream with a burst every few seconds has hardly ever met a quiet path,
// so its bursts would leave in pieces.
var sysctlsOfMany = map[string]string{"ipv4/tcp_tso_rtt_log": "30"}

// WindowsAtOnce is how many streams open their windows together when a load begins:
// within its warm-up.
const WindowsAtOnce = 250

// Workers is the number of processes that the streams of one host need with a limit of
// open files (0: no limit, see Hello). With 1 the agent runs all streams itself.
func Workers(streams int, files int64) int {
	fit := StreamsPerWorker
	if files > 0 && files < StreamsPerWorker+client.FilesBeside {
		fit = max(leastStreams, int(files)-client.FilesBeside)
	}
	return max(1, (streams+fit-1)/fit)
}

// LeastFiles is the lowest limit of open files with which a process runs that many streams.
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
	num  int // from 1 among those of its end
	pid  int
	gone <-chan struct{} // closed when the process has ended
}

func (w *worker) close() {
	w.Close()
	<-w.Done()
	<-w.gone
}

// addWorkers makes a host's list of workers n long.
func addWorkers(host string, list []*worker, n int) ([]*worker, error) {
	for len(list) < n {
		c, err := StartChild([]string{WorkerCommand}, nil, os.Stderr)
		if err != nil {
			return list, fmt.Errorf("starting a worker for streams: %w", err)
		}
		conn, gone := c.Talk("traffic worker of host " + host)
		list = append(list, &worker{conn, len(list) + 1, c.Process.Pid, gone})
	}
	return list, nil
}

// workers are all of the host's.
func (s *trafficState) workers() []*worker { return slices.Concat(s.nearWorkers, s.farWorkers) }

// each asks all workers at once.
func each(list []*worker, fn func(i int, w *worker) error) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, w := range list {
		wg.Go(func() {
			if err := fn(i, w); err != nil {
				errs[i] = fmt.Errorf("worker %d: %w", w.num, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// workerMain is the body of a worker.
func workerMain(ctx context.Context) error {
	runtime.GOMAXPROCS(processors)
	var s streams
	return serve(ctx, os.Stdin, os.Stdout, workerVerbs, always(&s))
}

// workersNs is the CPU time of all workers so far. The caller holds no lock.
func (s *trafficState) workersNs() (ns int64) {
	defer s.lock()()
	for _, w := range s.workers() {
		if p, err := meter.ReadProcess(w.pid); err == nil { // otherwise it is ending now
			ns += p.RunNs
		}
	}
	return ns
}

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
	// StreamsPerWorker is the largest number of streams of one process. A common hard limit is 20,000 open files, and
	// containers may not raise it. Where the limit is lower, ProcessesFor returns more processes.
	StreamsPerWorker = 16_000
	// minStreamsPerWorker is the number of streams of one process under any limit of open files. If the limit is too low
	// for them, the load fails with an error that says so.
	minStreamsPerWorker = 256
)

// manyStreamSysctls are settings below /proc/sys/net for loads of more than WindowsAtOnce TCP streams. The kernel cuts
// a stream's data into pieces that are smaller the longer the stream's shortest round trip was (tcp_tso_rtt_log). Among
// many streams, one that sends a burst every few seconds rarely meets an idle path, so all its round trips are long.
// Without the setting its bursts would leave in pieces.
var manyStreamSysctls = map[string]string{"ipv4/tcp_tso_rtt_log": "30"}

// WindowsAtOnce is the number of streams whose congestion windows open together during the warm-up of a load.
const WindowsAtOnce = 250

// ProcessesFor returns the number of processes that the streams of one host need. maxOpenFiles is the limit for each
// process, see Hello; 0: none. With 1 process, the agent runs all streams itself.
func ProcessesFor(streams int, maxOpenFiles int64) int {
	fit := StreamsPerWorker
	if maxOpenFiles > 0 && maxOpenFiles < StreamsPerWorker+client.ReservedFiles {
		fit = max(minStreamsPerWorker, int(maxOpenFiles)-client.ReservedFiles)
	}
	return max(1, (streams+fit-1)/fit)
}

// MinOpenFiles returns the lowest limit of open files under which one process can run that many streams.
func MinOpenFiles(streams int) int {
	if streams <= minStreamsPerWorker {
		return 2 * minStreamsPerWorker
	}
	return streams + client.ReservedFiles
}

// worker is a process that holds a part of an agent's streams. It runs in the agent's network namespace and on its
// CPUs. It ends with the agent, because its input does.
//
//	agent ── stdin, stdout: JSON lines ──► gateweigh agent-worker
type worker struct {
	*Conn
	num    int // position in its list, from 1
	pid    int
	exited <-chan struct{} // closed when the process has ended
}

func (w *worker) close() {
	w.Close()
	<-w.Done()
	<-w.exited
}

// addWorkers starts workers until the list has n, and returns the list. Errors name the host.
func addWorkers(host string, list []*worker, n int) ([]*worker, error) {
	for len(list) < n {
		c, err := StartChild([]string{WorkerCommand}, nil, os.Stderr)
		if err != nil {
			return list, fmt.Errorf("starting a worker for streams: %w", err)
		}
		conn, exited := c.Connect("traffic worker of host " + host)
		list = append(list, &worker{conn, len(list) + 1, c.Process.Pid, exited})
	}
	return list, nil
}

// workers lists all workers of the host.
func (s *trafficState) workers() []*worker { return slices.Concat(s.nearWorkers, s.farWorkers) }

// onEachWorker calls fn for all workers at the same time, and joins the errors.
func onEachWorker(list []*worker, fn func(i int, w *worker) error) error {
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

// workerMain runs a worker until its input ends.
func workerMain(ctx context.Context) error {
	runtime.GOMAXPROCS(maxProcs)
	var s streams
	return serve(ctx, os.Stdin, os.Stdout, workerVerbs, sameReceiver(&s))
}

// workersNs returns the CPU time of all workers since they started, ns. The caller must not hold the lock.
func (s *trafficState) workersNs() (ns int64) {
	defer s.lock()()
	for _, w := range s.workers() {
		if p, err := meter.ReadProcess(w.pid); err == nil { // an error: it is ending now
			ns += p.RunNs
		}
	}
	return ns
}

package realtime

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// watchPeriod is how often a watched CPU is looked at: 0.5 % of its time.
const watchPeriod = 200 * time.Microsecond

// Watch notices that a CPU works for nobody: another guest of the machine has it, or firmware. A thread that goes before
// all others of the lab wakes every 200 µs; as long as it comes late the CPU was away, or the kernel was in work that
// nothing interrupts, such as a batch of received frames.
type Watch struct {
	thread  *socket.Thread
	longest atomic.Int64 // ns, since Longest was called
}

// StartWatch watches a CPU until ctx ends or Close. Without the right to real-time priority the error wraps ErrDenied.
func StartWatch(ctx context.Context, cpu int) (*Watch, error) {
	thread, err := socket.NewThread()
	if err != nil {
		return nil, err
	}
	w := &Watch{thread: thread}
	ready := make(chan error, 1)
	thread.Start(ctx, "gw-watch", func() {
		err := prepareWatch(cpu)
		ready <- err
		if err == nil {
			w.run()
		}
	})
	if err := <-ready; err != nil {
		w.Close()
		return nil, fmt.Errorf("watching CPU %d: %w", cpu, err)
	}
	return w, nil
}

func prepareWatch(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("moving a thread there: %w", err)
	}
	return Give(0, Watcher)
}

func (w *Watch) run() {
	bell := w.thread.Bell()
	due := time.Now()
	for !w.thread.Stopping() {
		due = due.Add(watchPeriod)
		socket.Sleep(bell, time.Until(due))
		late := time.Since(due)
		for was := w.longest.Load(); int64(late) > was && !w.longest.CompareAndSwap(was, int64(late)); was = w.longest.Load() {
		}
		if late > watchPeriod {
			due = time.Now()
		}
	}
}

// Longest is the longest time for which the CPU was away since the call before.
func (w *Watch) Longest() time.Duration { return time.Duration(w.longest.Swap(0)) }

// Close ends the watch.
func (w *Watch) Close() { _ = w.thread.Close() } // fails never

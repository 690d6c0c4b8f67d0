// Package burn takes a given share of the time of CPUs, so that all else that runs on them has
// the rest. Each CPU gets a thread of its own that works in slices, mostly of 100 µs, and sleeps between
// them. The thread reads its own task clock after each slice and sleeps until that is the
// share it was asked for: what it took too little or too much in one slice, the next sleep
// makes up for (a closed loop).
//
//	            slice          sleep           slice
//	CPU  ───┤ burner 100 µs ├─ 33 µs ─┤ burner 100 µs ├─ 33 µs ─┤   share 0.75
//	                         all others                all others
//
// How says how a thread competes for its CPU.
package burn

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/realtime"
)

// Bounds of a share. The kernel stops real-time programs that take more than 95 % of a CPU
// (kernel.sched_rt_runtime_us) for the rest of a second.
const (
	Least = 0.01
	Most  = 0.95
)

// Slice is how long a burner works at a time; one that is Program works longer.
const Slice = 100 * time.Microsecond

// LongestSlice is the longest that a burner works at a time: with real-time priority nothing else runs on its CPU
// meanwhile.
const LongestSlice = 50 * time.Millisecond

// How is how a burner competes for its CPU.
type How string // default RealTime

const (
	// RealTime has the CPU as soon as it wakes, before any program or kernel thread of ordinary priority (SCHED_FIFO).
	RealTime How = "real-time"
	// Eager goes before most ordinary programs (nice -20).
	Eager How = "eager"
	// Program is a program of the router's own that works for 10 ms at a time, as study 4's CPUkiller: with the niceness
	// that all programs of the lab have.
	Program How = "program"
)

// manner is what a How consists of.
type manner struct {
	slice time.Duration
	// What a burner was kept from for longer it never catches up with.
	debt time.Duration
	nice int
}

var manners = map[How]manner{
	// With real-time priority only the hypervisor and higher priorities keep it, and a burst as long as that would be no
	// slow CPU.
	RealTime: {slice: Slice, debt: 20 * time.Millisecond},
	// Other programs have their turns of some milliseconds.
	Eager:   {slice: Slice, debt: time.Second, nice: -20},
	Program: {slice: 10 * time.Millisecond, debt: time.Second, nice: -20},
}

// Load is the share of a CPU's time to take.
type Load struct {
	CPU   int     `json:"cpu"`
	Share float64 `json:"share"` // Least to Most
}

// CPUTime is the time that a burner has had of its CPU so far, by the kernel's accounts.
type CPUTime struct {
	CPU      int   `json:"cpu"`
	BurnedNs int64 `json:"burned_ns"` // task clock of the burner's thread
	AtNs     int64 `json:"at_ns"`     // the machine's monotonic clock
}

// Share is the share of its CPU's time, 0 to 1, that a burner had between a and b. It is 0 when no time has passed.
func Share(a, b CPUTime) float64 {
	if b.AtNs <= a.AtNs {
		return 0
	}
	return float64(b.BurnedNs-a.BurnedNs) / float64(b.AtNs-a.AtNs)
}

// Burner is a set of threads that burn. It ends with Stop, or with its process.
type Burner struct {
	loads []Load
	tids  []int
	stop  atomic.Bool
	ended sync.WaitGroup
}

// Start starts a thread for each load. Of RealTime an error wraps realtime.ErrDenied where that is
// not permitted. On error nothing burns.
//
// slice is how long a thread works at a time; 0: as its way does.
func Start(loads []Load, how How, slice time.Duration) (*Burner, error) {
	how = cmp.Or(how, RealTime)
	m, known := manners[how]
	if !known {
		return nil, fmt.Errorf("unknown way %q to burn", how)
	}
	if slice != 0 && (slice < Slice || slice > LongestSlice) {
		return nil, fmt.Errorf("a burner works for %s to %s at a time, not %s", Slice, LongestSlice, slice)
	}
	m.slice = cmp.Or(slice, m.slice)
	m.debt = max(m.debt, 2*m.slice)
	for _, l := range loads {
		if !(l.Share >= Least && l.Share <= Most) {
			return nil, fmt.Errorf("a burner takes %g to %g of a CPU, not %g", Least, Most, l.Share)
		}
		if most := realTimeShare(); how == RealTime && l.Share > most {
			return nil, fmt.Errorf(
				"the kernel gives real-time programs %g of a CPU (kernel.sched_rt_runtime_us), which is less than %g", most,
				l.Share)
		}
	}
	b := &Burner{loads: loads, tids: make([]int, len(loads))}
	started := make(chan error)
	for i := range loads {
		b.ended.Go(func() { b.thread(i, how, m, started) })
	}
	var errs []error
	for range loads {
		errs = append(errs, <-started)
	}
	if err := errors.Join(errs...); err != nil {
		b.Stop()
		return nil, err
	}
	return b, nil
}

// Stop ends the threads and waits for them. Twice is harmless.
func (b *Burner) Stop() {
	b.stop.Store(true)
	b.ended.Wait()
}

// Read reads the task clocks of all threads, in the order of the loads.
func (b *Burner) Read() ([]CPUTime, error) {
	list := make([]CPUTime, len(b.loads))
	for i, l := range b.loads {
		burned, err := clock(clockOf(b.tids[i]))
		if err != nil {
			return nil, fmt.Errorf("reading the task clock of the burner on CPU %d: %w", l.CPU, err)
		}
		at, err := clock(unix.CLOCK_MONOTONIC)
		if err != nil {
			return nil, err
		}
		list[i] = CPUTime{l.CPU, burned, at}
	}
	return list, nil
}

// thread is the life of one thread. The thread is never unlocked from its goroutine, so it ends with it
// and nothing else runs with its priority.
func (b *Burner) thread(i int, how How, m manner, started chan<- error) {
	runtime.LockOSThread()
	b.tids[i] = unix.Gettid()
	err := prepare(b.loads[i].CPU, how)
	started <- err
	if err == nil {
		b.burn(b.loads[i].Share, m)
	}
}

// prepare binds this thread to its CPU and gives it its priority.
func prepare(cpu int, how How) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("binding a burner to CPU %d, which this process may not use: %w", cpu, err)
	}
	if how != RealTime {
		// as far as it is permitted: the loop makes up for the rest
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, manners[how].nice)
		return nil
	}
	if err := realtime.Give(0, realtime.Burner); err != nil {
		return fmt.Errorf("burner on CPU %d: %w", cpu, err)
	}
	return nil
}

// burn is the loop. Its clocks cannot fail: a thread reads its own.
func (b *Burner) burn(share float64, m manner) {
	own := int32(unix.CLOCK_THREAD_CPUTIME_ID)
	used, _ := clock(own)
	start, _ := clock(unix.CLOCK_MONOTONIC)
	start -= int64(float64(used) / share) // as if it had burned its share ever since
	for !b.stop.Load() {
		for target := used + int64(m.slice); used < target; used, _ = clock(own) {
			work()
		}
		wake := start + int64(float64(used)/share)
		if now, _ := clock(unix.CLOCK_MONOTONIC); now-wake > int64(m.debt) {
			start += now - wake - int64(m.debt)
		} else if wake > now {
			sleepUntil(wake)
		}
	}
}

// work keeps the CPU busy for a few microseconds without touching memory, which routers may need.
//
//go:noinline
func work() {
	state := uint64(88172645463325252)
	for range 1500 {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
	}
	runtime.KeepAlive(state)
}

// clock reads a clock, ns.
func clock(id int32) (int64, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(id, &ts)
	return ts.Nano(), err
}

// clockOf is the task clock of a thread of this process (see pthread_getcpuclockid).
func clockOf(tid int) int32 {
	const perThread, scheduled = 4, 2
	return int32(^tid<<3 | perThread | scheduled)
}

// sleepUntil sleeps until a moment of the monotonic clock, or less.
func sleepUntil(ns int64) {
	ts := unix.NsecToTimespec(ns)
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
}

// realTimeShare is the largest share of a CPU that the kernel gives to real-time programs
// (kernel.sched_rt_runtime_us), 1 without a limit.
func realTimeShare() float64 {
	runtimeUs, err1 := sysctl("sched_rt_runtime_us")
	periodUs, err2 := sysctl("sched_rt_period_us")
	if err1 != nil || err2 != nil || runtimeUs < 0 || periodUs <= 0 {
		return 1
	}
	return float64(runtimeUs) / float64(periodUs)
}

func sysctl(name string) (int, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/" + name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(raw)))
}

package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// taskClock counts the time a thread has a CPU, from the moment the scheduler
// switches to it to the moment it switches away (perf_event_open(2),
// PERF_COUNT_SW_TASK_CLOCK; no hardware counter is needed). It is the descriptor of a
// perf event.
//
// schedstat is not exact enough. When a thread wakes up that is to preempt the running thread, the scheduler stops its
// clock at the wake-up and does not read it again at the switch (rq_clock_skip_update). Until the switch the running
// thread works on: a polling thread finishes its batch of packets. schedstat adds that time to the thread that waits.
// So with two routers on one CPU, one would be charged for work of the other.
type taskClock int

// openTaskClock opens a clock that counts the CPU time of thread tid from now on. With inherit it also counts all
// threads and processes that the thread starts from now on, and their descendants. It keeps the time of those that end.
func openTaskClock(tid int, inherit bool) (taskClock, error) {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK}
	attr.Size = uint32(unsafe.Sizeof(attr))
	if inherit {
		attr.Bits |= unix.PerfBitInherit
	}
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w (the kernel needs CONFIG_PERF_EVENTS, the process CAP_PERFMON)", err)
	}
	if err != nil {
		return 0, fmt.Errorf("opening the task clock of thread %d: %w", tid, err)
	}
	return taskClock(fd), nil
}

// ns is the time counted so far, nanoseconds.
func (c taskClock) ns() (int64, error) {
	var buf [8]byte
	n, err := unix.Read(int(c), buf[:])
	if err == nil && n != len(buf) {
		err = fmt.Errorf("%d bytes instead of %d", n, len(buf))
	}
	if err != nil {
		return 0, fmt.Errorf("reading a task clock: %w", err)
	}
	return int64(binary.NativeEndian.Uint64(buf[:])), nil
}

func (c taskClock) close() { unix.Close(int(c)) }

// pollingThread is one NAPI thread: its time by the task clock, its waiting and its
// slices by schedstat, whose file stays open.
type pollingThread struct {
	tid   int
	file  *os.File
	clock taskClock
}

// openPollingThread opens the counters of the NAPI thread with the id tid.
func openPollingThread(tid int) (pollingThread, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/schedstat", tid))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("opening schedstat of %d (the kernel needs CONFIG_SCHED_INFO): %w", tid, err)
	}
	if err != nil {
		return pollingThread{}, err
	}
	clock, err := openTaskClock(tid, false)
	if err != nil {
		file.Close()
	}
	return pollingThread{tid, file, clock}, err
}

// read reads what the thread has used so far.
func (t pollingThread) read() (Thread, error) {
	var buf [128]byte
	n, err := t.file.ReadAt(buf[:], 0)
	if err != io.EOF {
		return Thread{}, fmt.Errorf("reading schedstat of %d: %w", t.tid, err)
	}
	th, err := ParseSchedstat(buf[:n])
	if err != nil {
		return th, err
	}
	th.TID = t.tid
	th.RunNs, err = t.clock.ns()
	return th, err
}

func (t pollingThread) close() {
	t.file.Close()
	t.clock.close()
}

// followed is a process whose CPU time is counted by task clocks, together with that of its descendants.
type followed struct {
	Process             // as it was read when it was first seen; the clocks count from then on
	clocks  []taskClock // one for each thread that it had then
}

// follow opens a task clock for each thread of a process. p has the counters of the process up to now.
func follow(p Process) (*followed, error) {
	f := &followed{Process: p}
	tids, _ := threads(p.PID) // an error: the process has ended meanwhile
	for _, tid := range tids {
		c, err := openTaskClock(tid, true)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			f.close()
			return nil, err
		}
		f.clocks = append(f.clocks, c)
	}
	return f, nil
}

// read returns the process with the CPU time of all its clocks added.
func (f *followed) read() (Process, error) {
	p := f.Process
	for _, c := range f.clocks {
		ns, err := c.ns()
		if err != nil {
			return p, err
		}
		p.RunNs += ns
	}
	return p, nil
}

func (f *followed) close() {
	for _, c := range f.clocks {
		c.close()
	}
}

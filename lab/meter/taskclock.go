package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TaskClock counts the time a thread has a CPU, from the moment the scheduler
// switches to it to the moment it switches away (perf_event_open(2),
// PERF_COUNT_SW_TASK_CLOCK; no hardware counter is needed).
//
// schedstat will not do for that. When a wake-up is to preempt the running
// thread, the scheduler stops its clock at the wake-up and does not read it
// again at the switch (rq_clock_skip_update): all the time until the running
// thread can be interrupted, for a polling thread until it has finished its
// batch, is billed to the thread that still waits. With two routers on a CPU
// one pays for the other.
type TaskClock struct{ fd int }

// OpenTaskClock counts for thread tid from now on. With inherit also for every
// thread and process it starts from now on, and theirs, also after they ended.
func OpenTaskClock(tid int, inherit bool) (*TaskClock, error) {
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
		return nil, fmt.Errorf("opening the task clock of thread %d: %w", tid, err)
	}
	return &TaskClock{fd}, nil
}

// Ns is the time counted so far, nanoseconds.
func (c *TaskClock) Ns() (int64, error) {
	var buf [8]byte
	n, err := unix.Read(c.fd, buf[:])
	if err == nil && n != len(buf) {
		err = fmt.Errorf("%d bytes instead of %d", n, len(buf))
	}
	if err != nil {
		return 0, fmt.Errorf("reading a task clock: %w", err)
	}
	return int64(binary.NativeEndian.Uint64(buf[:])), nil
}

// Close ends the counting.
func (c *TaskClock) Close() error { return unix.Close(c.fd) }

// followed is a process whose time is counted by task clocks, with all that
// descends from it.
type followed struct {
	Process
	base   int64 // ns it had used before it was followed
	clocks []*TaskClock
}

// follow opens a task clock for each thread of a process.
func follow(p Process) (*followed, error) {
	f := &followed{Process: p, base: p.RunNs}
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID))
	if err != nil {
		return f, nil // it has ended meanwhile
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		c, err := OpenTaskClock(tid, true)
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

func (f *followed) read() (Process, error) {
	p := f.Process
	p.RunNs = f.base
	for _, c := range f.clocks {
		ns, err := c.Ns()
		if err != nil {
			return p, err
		}
		p.RunNs += ns
	}
	return p, nil
}

func (f *followed) close() {
	for _, c := range f.clocks {
		c.Close()
	}
}

// Runs the program perf: a Recorder samples stacks, and Read reads what it recorded.

package profile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Ways to unwind the stacks of user code. The kernel's stacks are always complete.
const (
	UnwindFP    = "frame pointers"      // free, and right for Go
	UnwindDWARF = "copies of the stack" // right for C of distributions, which has no frame pointers
)

// Settings of a recording.
const (
	FrequencyHz  = 1999   // samples a second; a prime, so that samples do not run in step with the scheduler's tick
	stackBytes   = 16384  // copied of a user stack (UnwindDWARF): CoovaChilli has buffers of 9 KiB on the way of a packet
	bufferSize   = "8M"   // for each sampled CPU, because perf may wait 50 ms for the endpoints' CPU
	maxDataBytes = "512M" // size at which perf stops by itself; no window reaches it
	startTimeout = 20 * time.Second
	endTimeout   = 30 * time.Second
)

// Recorder is a process "perf record" that samples some CPUs of the machine. It runs from Start to Stop, and never
// longer than this process.
type Recorder struct {
	cmd     *exec.Cmd
	control *os.File      // commands to perf, and its answers; perf ends by a signal if this end is closed when it answers
	ended   chan struct{} // closed once perf has ended
	status  error         // how perf ended; valid once ended is closed
	output  bytes.Buffer  // what perf printed
}

// Available returns an error if perf is not installed, which says what to install.
func Available() error {
	if _, err := exec.LookPath("perf"); err != nil {
		return errors.New("perf is not on PATH: install the package linux-perf")
	}
	return nil
}

// PerfVersion returns the output of "perf version"; "" if perf does not answer.
func PerfVersion(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, "perf", "version").Output()
	return strings.TrimSpace(string(out))
}

// Start begins to sample everything that runs on the CPUs cpus, into the file data. When it returns, perf takes
// samples, with time stamps of CLOCK_MONOTONIC. unwind is UnwindFP or UnwindDWARF. perf itself runs on agentCPUs; nil:
// on any CPU. Idle CPUs sleep as they do in trials. Kept awake they would lose fewer samples, but the routers would
// cost something else than in trials.
func Start(ctx context.Context, data, unwind string, cpus, agentCPUs []int) (_ *Recorder, err error) {
	if err := Available(); err != nil {
		return nil, err
	}
	graph := "fp"
	if unwind == UnwindDWARF {
		graph = "dwarf," + strconv.Itoa(stackBytes)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	r := &Recorder{ended: make(chan struct{}), control: os.NewFile(uintptr(ends[0]), "to perf")}
	perfEnd := os.NewFile(uintptr(ends[1]), "of perf")
	sampled := strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
	// The modifier I of the event leaves the idle task out. Build ids are not needed, because functions are named right
	// afterwards, on this machine.
	r.cmd = exec.CommandContext(
		ctx, "perf", "record", "--cpu", sampled, "--event", "cpu-clock:I", "--freq", strconv.Itoa(FrequencyHz),
		"--call-graph", graph, "--clockid", "CLOCK_MONOTONIC", "--delay", "-1", "--control", "fd:3,3",
		"--mmap-pages", bufferSize, "--max-size", maxDataBytes, "--no-buildid", "--no-buildid-cache", "--output", data)
	r.cmd.Env = perfEnv()
	r.cmd.ExtraFiles = []*os.File{perfEnd}
	r.cmd.Stderr, r.cmd.Stdout = &r.output, &r.output
	r.cmd.WaitDelay = time.Second
	// perf has a process group of its own, so that Ctrl-C reaches only the lab, which then ends perf in order.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = r.launch(agentCPUs)
	perfEnd.Close() // now only perf has this end, so that reads of the other end stop when perf ends
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting perf: %w", err), r.control.Close())
	}
	if err := r.enable(ctx); err != nil {
		return nil, errors.Join(err, r.Kill())
	}
	return r, nil
}

// perfEnv returns an environment in which perf ignores the user's settings and asks no server for debug files.
func perfEnv() []string {
	return append(os.Environ(), "PERF_CONFIG=/dev/null", "DEBUGINFOD_URLS=", "LC_ALL=C")
}

// launch starts perf on the given CPUs, from a thread that lives as long as perf. The kernel sends Pdeathsig already
// when the thread that started a process ends.
func (r *Recorder) launch(cpus []int) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, because no other goroutine may run on this thread, which is bound to cpus
		if len(cpus) > 0 {
			var set unix.CPUSet
			for _, c := range cpus {
				set.Set(c)
			}
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				started <- fmt.Errorf("binding perf to CPUs %v: %w", cpus, err)
				return
			}
		}
		err := r.cmd.Start()
		started <- err
		if err == nil {
			r.status = r.cmd.Wait()
			close(r.ended)
		}
	}()
	return <-started
}

// enable tells perf to begin to sample, and returns once perf has answered.
func (r *Recorder) enable(ctx context.Context) error {
	if _, err := r.control.WriteString("enable\n"); err != nil {
		return r.endedEarly()
	}
	r.control.SetReadDeadline(time.Now().Add(startTimeout))
	defer context.AfterFunc(ctx, func() { r.control.SetReadDeadline(time.Now()) })()
	switch _, err := r.control.Read(make([]byte, 64)); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("perf did not begin within %s", startTimeout)
	}
	return r.endedEarly()
}

// Stop ends the recording. When it returns, perf has ended. Without an error the data is complete.
func (r *Recorder) Stop(ctx context.Context) error {
	_, err := r.control.WriteString("stop\n")
	select {
	case <-r.ended:
	case <-ctx.Done():
	case <-time.After(endTimeout):
		return errors.Join(fmt.Errorf("perf did not end within %s", endTimeout), r.Kill())
	}
	switch {
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), r.Kill())
	case err != nil:
		return r.endedEarly()
	case r.status != nil:
		err = fmt.Errorf("perf record: %w%s", r.status, lastLine(r.output.String()))
	}
	return errors.Join(err, r.control.Close())
}

// Kill ends perf at once; its data is of no use. Twice is harmless.
func (r *Recorder) Kill() error {
	defer r.control.Close()
	if err := r.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-r.ended
	return nil
}

// endedEarly waits for the end of a perf that ends without being told to, and returns how it ended. It has failed, or
// its data has reached maxDataBytes.
func (r *Recorder) endedEarly() error {
	<-r.ended // perf reads no commands any more, so it is about to end
	r.control.Close()
	how := "exit status 0"
	if r.status != nil {
		how = r.status.Error()
	}
	return fmt.Errorf("perf ended by itself: %s%s", how, lastLine(r.output.String()))
}

// lastLine returns the end of a program's output in one line, as the end of an error message: ": " and at most 500
// bytes. It is empty if the program printed nothing.
func lastLine(text string) string {
	const most = 500
	words := strings.Join(strings.Fields(text), " ")
	if words == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(words[max(0, len(words)-most):], "")
}

// Read reads a recording from the file data: its samples, with the names of functions.
func Read(ctx context.Context, data string) (*Recording, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("still reading after 5 minutes"))
	defer cancel()
	cmd := exec.CommandContext(ctx, "perf", append(scriptArgs, "--input", data)...)
	cmd.Env = perfEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var output bytes.Buffer
	cmd.Stderr = &output
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting perf script: %w", err)
	}
	rec, err := ParseScript(out, NewSymbols().Name)
	if err != nil {
		cancel() // the rest is not read
	}
	if werr := cmd.Wait(); err == nil && werr != nil {
		if ctx.Err() != nil {
			werr = context.Cause(ctx)
		}
		err = fmt.Errorf("perf script: %w%s", werr, lastLine(output.String()))
	}
	return rec, err
}

// Unwind chooses how to unwind the stacks of the given processes: UnwindFP if all of them are Go programs, otherwise
// UnwindDWARF.
func Unwind(pids []int) string {
	for _, pid := range pids {
		exe := fmt.Sprintf("/proc/%d/exe", pid)
		if _, err := os.Stat(exe); err == nil && !IsGo(exe) { // else it has ended
			return UnwindDWARF
		}
	}
	return UnwindFP
}

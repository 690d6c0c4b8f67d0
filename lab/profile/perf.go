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

// How stacks of user code are unwound. The kernel's are always whole.
const (
	UnwindFP    = "frame pointers"      // free, and right for Go
	UnwindDWARF = "copies of the stack" // right for C of distributions, which has no frame pointers
)

// What a recording takes: a prime-like rate that does not run in step with the
// scheduler's tick, 16 KiB of user stack (CoovaChilli keeps buffers of 9 KiB in
// frames on the way of a packet), and bounds that no window reaches in order.
const (
	FrequencyHz  = 1999
	stackBytes   = 16384
	bufferSize   = "8M"   // a CPU: perf may wait 50 ms for the endpoints' CPU
	maxDataBytes = "512M" // perf stops by itself there
	startTimeout = 20 * time.Second
	endTimeout   = 30 * time.Second
)

// Recorder is a perf record that samples some CPUs of the machine. It is alive
// from Start to Stop, and never longer than this process.
type Recorder struct {
	cmd     *exec.Cmd
	control *os.File // commands to perf, and its answers: it ends by a signal if they cannot be written
	ended   chan struct{}
	status  error // valid once ended is closed
	output  bytes.Buffer
}

// Available is an error that says what to install when there is no perf.
func Available() error {
	if _, err := exec.LookPath("perf"); err != nil {
		return errors.New("perf is not on PATH: install the package linux-perf")
	}
	return nil
}

// PerfVersion is what perf says of itself, "" when it does not answer.
func PerfVersion(ctx context.Context) string {
	out, _ := exec.CommandContext(ctx, "perf", "version").Output()
	return strings.TrimSpace(string(out))
}

// Start begins to sample everything that runs on the given CPUs: when it
// returns, samples are being taken, with time stamps of CLOCK_MONOTONIC. perf
// itself runs on the CPUs own, nil leaves it free. CPUs sleep as they do in
// trials: kept awake they would lose fewer samples, but be other routers.
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
	theirs := os.NewFile(uintptr(ends[1]), "of perf")
	sampled := strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
	// I leaves the idle task out. Build ids are not needed: what was sampled is
	// named right afterwards, on this machine.
	r.cmd = exec.CommandContext(
		ctx, "perf", "record", "--cpu", sampled, "--event", "cpu-clock:I", "--freq", strconv.Itoa(FrequencyHz),
		"--call-graph", graph, "--clockid", "CLOCK_MONOTONIC", "--delay", "-1", "--control", "fd:3,3",
		"--mmap-pages", bufferSize, "--max-size", maxDataBytes, "--no-buildid", "--no-buildid-cache", "--output", data)
	r.cmd.Env = perfEnv()
	r.cmd.ExtraFiles = []*os.File{theirs}
	r.cmd.Stderr, r.cmd.Stdout = &r.output, &r.output
	r.cmd.WaitDelay = time.Second
	// A group of its own: Ctrl-C reaches the lab, which ends perf in order.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = r.launch(agentCPUs)
	theirs.Close() // perf alone has it now: reading the other end ends with perf
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting perf: %w", err), r.control.Close())
	}
	if err := r.enable(ctx); err != nil {
		return nil, errors.Join(err, r.Kill())
	}
	return r, nil
}

// perfEnv keeps the user's settings and servers of debug files out.
func perfEnv() []string {
	return append(os.Environ(), "PERF_CONFIG=/dev/null", "DEBUGINFOD_URLS=", "LC_ALL=C")
}

// launch starts perf on a thread that lives as long as it does: the kernel sends
// Pdeathsig when the thread that started a process ends, not only the program.
func (r *Recorder) launch(cpus []int) error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: its CPUs are perf's
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

// enable has perf begin, and returns when it has answered.
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

// Stop ends the recording; its data is complete when Stop returns without an
// error. In any case perf has ended.
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

// endedEarly says how perf ended without being asked to: it has failed, or its
// data has reached maxDataBytes.
func (r *Recorder) endedEarly() error {
	<-r.ended // it reads no commands any more, so the end is near
	r.control.Close()
	how := "exit status 0"
	if r.status != nil {
		how = r.status.Error()
	}
	return fmt.Errorf("perf ended by itself: %s%s", how, lastLine(r.output.String()))
}

// lastLine is the end of what a program printed, as the end of a message.
func lastLine(text string) string {
	const most = 500
	words := strings.Join(strings.Fields(text), " ")
	if words == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(words[max(0, len(words)-most):], "")
}

// Read turns a recording's data into samples with names.
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

// Unwind chooses how to unwind the stacks of the given processes: by frame
// pointers when all of them are Go programs.
func Unwind(pids []int) string {
	for _, pid := range pids {
		exe := fmt.Sprintf("/proc/%d/exe", pid)
		if _, err := os.Stat(exe); err == nil && !IsGo(exe) { // else it has ended
			return UnwindDWARF
		}
	}
	return UnwindFP
}

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	endGrace   = 3 * time.Second
	killGrace  = 10 * time.Second // of SIGKILL: the kernel ends a process when it has a CPU for it
	endOutput  = 1 << 20          // bytes of a program's output that End returns
	groupPause = 2 * time.Millisecond
)

// Ending says how a spawned command is to be ended.
type Ending struct {
	Name string `json:"name"`
	// Signals are sent to the program's process group, one after the other until all of it has ended. SIGKILL comes
	// last by itself. Empty: SIGTERM, or none for a command that is Abrupt.
	Signals []syscall.Signal `json:"signals,omitempty"`
	// Grace is how long each signal but SIGKILL is given; zero: 3 s.
	Grace time.Duration `json:"grace,omitempty"`
}

// End ends a spawned command with all processes of its group, waits until they are gone, and returns how it ended and
// what it printed. One that had ended before has an empty By, and an unknown name is the zero Program. An error means
// that processes are left.
func (a *Agent) End(ctx context.Context, e Ending) (Program, error) {
	// Removed first: Programs must not report an end that was asked for.
	a.mu.Lock()
	p := a.programs[e.Name]
	delete(a.programs, e.Name)
	a.mu.Unlock()
	if p == nil {
		return Program{}, nil
	}
	signals := e.Signals
	if len(signals) == 0 && !p.abrupt {
		signals = []syscall.Signal{syscall.SIGTERM}
	}
	out := Program{Name: e.Name, By: p.end(ctx, signals, cmp.Or(e.Grace, endGrace))}
	out.Output = p.outputEnd(endOutput)
	if !p.groupEnded() {
		return out, fmt.Errorf(
			"%s (process group %d) is still there %s after SIGKILL: it waits in the kernel; /proc/%[2]d/stack says where",
			e.Name, p.Process.Pid, killGrace)
	}
	out.Ended, out.How = true, p.ProcessState.String()
	return out, nil
}

// end sends the signals, and SIGKILL at last, until nothing of the group is left, and returns the name of the one on
// which the program ended.
func (p *spawned) end(ctx context.Context, signals []syscall.Signal, grace time.Duration) (by string) {
	if p.groupEnded() {
		return ""
	}
	for _, s := range signals {
		if p.ended.Err() == nil {
			by = unix.SignalName(s)
		}
		if p.signal(ctx, s, grace) {
			return by
		}
	}
	// Nothing may be left, whoever still waits.
	if p.signal(context.WithoutCancel(ctx), syscall.SIGKILL, killGrace) && !p.killed() {
		return by // it had ended, and only others of its group were left
	}
	return unix.SignalName(syscall.SIGKILL)
}

// killed reports whether SIGKILL ended the program, which has ended.
func (p *spawned) killed() bool {
	status, known := p.ProcessState.Sys().(syscall.WaitStatus)
	return known && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// signal sends a signal, waits until the program and all of its group have ended, and reports whether they have.
func (p *spawned) signal(ctx context.Context, s syscall.Signal, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	syscall.Kill(-p.Process.Pid, s)
	select {
	case <-p.ended.Done():
	case <-ctx.Done():
		return false
	}
	if !p.groupEnded() { // a process that the program was just starting has not heard the signal
		syscall.Kill(-p.Process.Pid, s)
	}
	for !p.groupEnded() { // nothing reports that a group is empty
		select {
		case <-ctx.Done():
			return false
		case <-time.After(groupPause):
		}
	}
	return true
}

// groupEnded reports whether nothing of the program's group is left. The jail's first process reaps its children.
func (p *spawned) groupEnded() bool {
	return p.ended.Err() != nil && (p.ownGroup || noGroup(p.Process.Pid))
}

// noGroup reports whether no process is in a group. The number of an empty group may be another's later.
func noGroup(group int) bool { return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) }

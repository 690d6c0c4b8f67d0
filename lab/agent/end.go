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
	endGrace   = 3 * time.Second      // how long a program may take to end after a signal
	killGrace  = 10 * time.Second     // the same after SIGKILL: the kernel needs a free CPU to end a process
	endOutput  = 1 << 20              // bytes of a program's output that End returns
	groupPause = 2 * time.Millisecond // between two looks whether a process group is empty
)

// Ending says how a spawned command is to be ended.
type Ending struct {
	Name string `json:"name"`
	// Signals are sent to the program's process group, one after the other until the whole group has ended. End sends
	// SIGKILL after the last one. Empty: SIGTERM, or only SIGKILL for a command that is Abrupt.
	Signals []syscall.Signal `json:"signals,omitempty"`
	// Grace is how long the group may take to end after each signal but SIGKILL; zero: 3 s.
	Grace time.Duration `json:"grace,omitempty"`
}

// End ends a spawned command with all processes of its group, waits until they are gone, and returns how it ended and
// what it printed. If the command had ended before, Program.Signal is empty. An unknown name returns the zero Program.
// An error means that processes are left.
func (a *Agent) End(ctx context.Context, e Ending) (Program, error) {
	// It leaves the list first, so that Programs does not report an end that was asked for.
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
	out := Program{Name: e.Name, Signal: p.end(ctx, signals, cmp.Or(e.Grace, endGrace))}
	out.Output = p.outputEnd(endOutput)
	if !p.groupEnded() {
		return out, fmt.Errorf(
			"%s (process group %d) is still there %s after SIGKILL: it waits in the kernel; /proc/%[2]d/stack says where",
			e.Name, p.Process.Pid, killGrace)
	}
	out.Ended, out.Status = true, p.ProcessState.String()
	return out, nil
}

// end sends the signals in turn, then SIGKILL, until the group is empty. It returns the name of the signal that ended
// the program.
func (p *spawned) end(ctx context.Context, signals []syscall.Signal, grace time.Duration) (endedBy string) {
	if p.groupEnded() {
		return ""
	}
	for _, s := range signals {
		if p.ended.Err() == nil {
			endedBy = unix.SignalName(s)
		}
		if p.signal(ctx, s, grace) {
			return endedBy
		}
	}
	// Even when the request was cancelled, no process may be left.
	if p.signal(context.WithoutCancel(ctx), syscall.SIGKILL, killGrace) && !p.killed() {
		return endedBy // SIGKILL met only other processes of the group
	}
	return unix.SignalName(syscall.SIGKILL)
}

// killed reports whether SIGKILL ended the program. It must have ended.
func (p *spawned) killed() bool {
	status, known := p.ProcessState.Sys().(syscall.WaitStatus)
	return known && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// signal sends a signal to the group and reports whether the program and its whole group ended within grace.
func (p *spawned) signal(ctx context.Context, s syscall.Signal, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	syscall.Kill(-p.Process.Pid, s)
	select {
	case <-p.ended.Done():
	case <-ctx.Done():
		return false
	}
	if !p.groupEnded() { // a process that the program was just starting may have missed the signal
		syscall.Kill(-p.Process.Pid, s)
	}
	for !p.groupEnded() { // the kernel has no notice for it, so this polls
		select {
		case <-ctx.Done():
			return false
		case <-time.After(groupPause):
		}
	}
	return true
}

// groupEnded reports whether the program and its process group have ended. Processes that the program left behind do
// not stay as zombies, because the jail's first process reaps them.
func (p *spawned) groupEnded() bool {
	return p.ended.Err() != nil && (p.groupEmpty || noGroup(p.Process.Pid))
}

// noGroup reports whether a process group is empty. The kernel may give the number of an empty group to another one
// later, so an answer is kept in spawned.groupEmpty.
func noGroup(group int) bool { return errors.Is(syscall.Kill(-group, 0), syscall.ESRCH) }

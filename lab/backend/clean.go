package backend

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
)

// Orphan is an agent whose lab process has died, or a helper of an agent (such as a worker) whose agent has died.
type Orphan struct {
	PID  int
	Run  string // id of the run; "" for a helper
	Host string // name of the host; for a helper its command, such as agent.BurnerCommand

	isolated bool // the agent has namespaces of its own
}

// Clean ends the orphans on this machine, and so their hosts' namespaces, links, mounts and programs. It
// returns the orphans that it ended, when their processes are gone. Agents whose lab process lives stay.
func Clean(ctx context.Context) ([]Orphan, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var errs []error
	var ended []Orphan
	for _, o := range orphans(procs) {
		// Open connections would keep the host's namespace alive, so it is opened now to end them after the agent's end.
		if ns, err := client.NamespaceOf(o.PID); o.isolated && err == nil && !ns.IsCurrent() {
			defer func() {
				ns.Do(client.EndConnections)
				ns.Close()
			}()
		}
		if err := syscall.Kill(o.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			errs = append(errs, fmt.Errorf("ending process %d: %w", o.PID, err))
			continue
		}
		ended = append(ended, o)
	}
	// All were killed before this waits for any, so they end at the same time.
	for _, o := range ended {
		for alive(o.PID) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return ended, errors.Join(append(errs, ctx.Err())...)
}

// orphans lists the agents whose lab has died, and the helpers of these agents and of agents that have died.
// A helper normally ends with its input; one that was stopped (SIGSTOP) does not notice.
func orphans(procs []procfs.Proc) (list []Orphan) {
	gone := map[int]bool{}
	for _, p := range procs {
		if o, ok := orphan(p); ok {
			list, gone[o.PID] = append(list, o), true
		}
	}
	for _, p := range procs {
		args, _ := p.CmdLine()
		if len(args) != 2 ||
			!slices.Contains([]string{agent.InitCommand, agent.WorkerCommand, agent.BurnerCommand}, args[1]) {
			continue
		}
		if stat, err := p.Stat(); err == nil && (gone[stat.PPID] || inherited(p, stat.PPID)) {
			list = append(list, Orphan{PID: p.PID, Host: args[1]})
		}
	}
	return list
}

// orphan reports whether a process is an agent whose lab has died.
func orphan(p procfs.Proc) (Orphan, bool) {
	args, _ := p.CmdLine()
	argument := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	o := Orphan{p.PID, argument("-run"), argument("-host"), slices.Contains(args, "-isolated")}
	// Another program may have an argument "agent" too, so all arguments of an agent must be there.
	isAgent := slices.Index(args, agent.Subcommand) == 1 && argument("-log-dir") != "" &&
		(o.isolated || o.Host == machineHost)
	if !isAgent || o.Run == "" || o.Host == "" {
		return o, false
	}
	stat, err := p.Stat()
	if err != nil {
		return o, false // it has ended meanwhile: nothing to clean
	}
	return o, inherited(p, stat.PPID)
}

// inherited reports whether the process that started p has died. Labs, agents and helpers run the same program, so
// while the starter lives, p's parent runs that program too. After its death the kernel gives p another parent, such as
// init. If this user may not read the programs, p counts as inherited only when its parent is process 1.
func inherited(p procfs.Proc, parentPID int) bool {
	program, err1 := p.Executable()
	parentProgram := ""
	var err2 error
	if parent, err := procfs.NewProc(parentPID); err == nil {
		parentProgram, err2 = parent.Executable()
	}
	if errors.Is(err1, fs.ErrPermission) || errors.Is(err2, fs.ErrPermission) {
		return parentPID == 1
	}
	return program == "" || program != parentProgram
}

// alive reports whether a process exists and is no zombie.
func alive(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := p.Stat()
	return err == nil && stat.State != "Z"
}

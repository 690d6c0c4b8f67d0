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

// Orphan is an agent whose run is gone, or a helper whose agent is gone.
type Orphan struct {
	PID  int
	Run  string // "" of a helper
	Host string // of a helper its command, such as agent.BurnerCommand

	isolated bool
}

// Clean ends the agents of this machine whose lab process no longer lives, and
// with each its helpers and its host's namespaces, links, mounts and programs. It returns when
// they are gone, and only those it could end. Agents of living runs are left alone.
func Clean(ctx context.Context) ([]Orphan, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var errs []error
	var ended []Orphan
	for _, o := range orphans(procs) {
		// Its host's namespace is held meanwhile, to end the connections that would keep it.
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
	// Killed together, awaited afterwards: they end side by side.
	for _, o := range ended {
		for alive(o.PID) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return ended, errors.Join(append(errs, ctx.Err())...)
}

// orphans lists the agents whose lab has died, and the helpers of these and of agents that have died:
// one that a signal stopped does not notice the end of its input.
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
	// All of an agent's marks: another program may be called with a word "agent" too.
	marks := slices.Index(args, agent.Subcommand) == 1 && argument("-log-dir") != "" &&
		(o.isolated || o.Host == machineHost)
	if !marks || o.Run == "" || o.Host == "" {
		return o, false
	}
	stat, err := p.Stat()
	if err != nil {
		return o, false // it has ended meanwhile: nothing to clean
	}
	return o, inherited(p, stat.PPID)
}

// inherited reports whether the parent of a process is another program. A lab starts its agents itself, as
// they do their helpers, and another process inherits them when it dies. A parent that this user may not look
// at is taken to be alive.
func inherited(p procfs.Proc, parent int) bool {
	own, err1 := p.Executable()
	program := ""
	var err2 error
	if starter, err := procfs.NewProc(parent); err == nil {
		program, err2 = starter.Executable()
	}
	if errors.Is(err1, fs.ErrPermission) || errors.Is(err2, fs.ErrPermission) {
		return parent == 1 // an init that shows its file to nobody is no lab
	}
	return own == "" || own != program
}

func alive(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := p.Stat()
	return err == nil && stat.State != "Z"
}

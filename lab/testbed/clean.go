package testbed

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

// Orphan is an agent whose run is gone.
type Orphan struct {
	PID  int
	Run  string
	Host string
}

// Clean ends the agents of this machine whose lab process no longer lives, and
// with each its host's namespaces, links, mounts and programs. It returns when
// they are gone, and only those it could end. Agents of living runs are left alone.
func Clean(ctx context.Context) ([]Orphan, error) {
	procs, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var errs []error
	var ended []Orphan
	for _, p := range procs {
		o, ok := orphan(p)
		if !ok {
			continue
		}
		// Its host's namespace is held meanwhile, to end the connections that would keep it.
		if ns, err := client.NamespaceOf(o.PID); err == nil && !ns.Own() {
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

// orphan reports whether a process is an agent whose lab has died: one whose parent is
// another program. A lab starts its agents itself, and another process inherits them when
// the lab dies. A lab that this user may not look at is taken to be alive.
func orphan(p procfs.Proc) (Orphan, bool) {
	args, _ := p.CmdLine()
	argument := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	o := Orphan{p.PID, argument("-run"), argument("-host")}
	// All of an agent's marks: another program may be called with a word "agent" too.
	marks := slices.Index(args, agent.Subcommand) == 1 && slices.Contains(args, "-isolated") && argument("-log-dir") != ""
	if !marks || o.Run == "" || o.Host == "" {
		return o, false
	}
	stat, err := p.Stat()
	if err != nil {
		return o, false // it has ended meanwhile: nothing to clean
	}
	own, err1 := p.Executable()
	parent := ""
	var err2 error
	if lab, err := procfs.NewProc(stat.PPID); err == nil {
		parent, err2 = lab.Executable()
	}
	if errors.Is(err1, fs.ErrPermission) || errors.Is(err2, fs.ErrPermission) {
		return o, stat.PPID == 1 // an init that shows its file to nobody is no lab
	}
	return o, own == "" || own != parent
}

func alive(pid int) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	stat, err := p.Stat()
	return err == nil && stat.State != "Z"
}

package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

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
	orphans, err := findOrphans()
	if err != nil {
		return nil, err
	}
	var errs []error
	var ended []Orphan
	var spaces []*client.Namespace
	for _, o := range orphans {
		// Its host's namespace is held meanwhile, to end the connections that would keep it.
		if ns, err := client.NamespaceOf(o.PID); err == nil && !ns.Own() {
			spaces = append(spaces, ns)
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
	for _, ns := range spaces {
		ns.Do(client.EndConnections)
		ns.Close()
	}
	return ended, errors.Join(append(errs, ctx.Err())...)
}

func findOrphans() ([]Orphan, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var list []Orphan
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args := commandLine(pid)
		// All of an agent's marks, not its name alone: another user's program may be
		// called with a word "agent" too.
		i := slices.Index(args, agent.Subcommand)
		o := Orphan{PID: pid, Run: argument(args, "-run"), Host: argument(args, "-host")}
		ours := i == 1 && slices.Contains(args, "-isolated") && slices.Contains(args, "-log-dir") && o.Run != "" && o.Host != ""
		if ours && !parentIsLab(pid) {
			list = append(list, o)
		}
	}
	return list, nil
}

func commandLine(pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil // it has ended meanwhile
	}
	var args []string
	for _, a := range bytes.Split(bytes.TrimSuffix(raw, []byte{0}), []byte{0}) {
		args = append(args, string(a))
	}
	return args
}

func argument(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// parentIsLab reports whether the agent's parent runs the same program: an
// agent is always started by its lab, and inherited by another process when
// the lab has died. Who may not look at them takes the lab to be alive.
func parentIsLab(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // it has ended meanwhile: nothing to clean
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 2 {
		return true
	}
	own, err1 := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	parent, err2 := os.Readlink(fmt.Sprintf("/proc/%s/exe", fields[1]))
	if errors.Is(err1, fs.ErrPermission) || errors.Is(err2, fs.ErrPermission) {
		return string(fields[1]) != "1" // an init that shows its file to nobody is no lab
	}
	return err1 == nil && err2 == nil && own == parent
}

func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	return len(fields) > 0 && string(fields[0]) != "Z"
}

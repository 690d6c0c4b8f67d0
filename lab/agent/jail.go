package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// A jail is where an agent runs the programs of its host: a process namespace
// of its own, so that nothing outlives the agent however it ends (the kernel
// ends every process of the namespace with its first one), and a mount
// namespace in which /etc, /run, /tmp and the changing parts of /var are
// private copies, so that gateways that rewrite them never reach the machine.
//
//	gateweigh agent ── stdin pipe ──> gateweigh agent-init (PID 1 of the jail)
//	      └── fork inside both namespaces ──> opennds, chilli, iperf3 …
type jail struct {
	init    *Child
	mnt     *os.File
	pid     *os.File
	pidLink string // "pid:[4026532…]": recognises the jail's processes in /proc
}

// initReady is what a jail's first process prints once the private directories stand.
const initReady = "ready\n"

// Scratch is a host's private directory: logs of its programs, DUT files.
const Scratch = "/run/gateweigh"

func newJail() (*jail, error) {
	namespaces := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	first, err := StartChild([]string{InitCommand}, namespaces, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("starting the host's first process: %w", err)
	}
	j := &jail{init: first}
	ready := make([]byte, len(initReady))
	if _, err = io.ReadFull(first.output, ready); err != nil || string(ready) != initReady {
		j.close()
		return nil, fmt.Errorf("preparing the host's private directories: %q: %v", ready, err)
	}
	ns := fmt.Sprintf("/proc/%d/ns/", first.Process.Pid)
	var errs [3]error
	j.mnt, errs[0] = os.Open(ns + "mnt")
	j.pid, errs[1] = os.Open(ns + "pid")
	j.pidLink, errs[2] = os.Readlink(ns + "pid")
	if err := errors.Join(errs[:]...); err != nil {
		j.close()
		return nil, fmt.Errorf("opening the host's namespaces: %w", err)
	}
	return j, nil
}

// close ends every process of the jail.
func (j *jail) close() {
	j.init.input.Close()
	j.init.Process.Kill()
	j.init.Wait()
}

// start runs cmd inside the jail, on the given CPUs and, when netns is not
// nil, in that network namespace. It uses a thread of its own, which ends with
// it: a thread that has entered another mount namespace must not go on to
// serve other goroutines.
func (j *jail) start(cmd *exec.Cmd, cpus []int, netns *os.File) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		errc <- func() error {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("preparing a thread: %w", err)
			}
			for _, ns := range []struct {
				file *os.File
				kind int
			}{{netns, unix.CLONE_NEWNET}, {j.mnt, unix.CLONE_NEWNS}, {j.pid, unix.CLONE_NEWPID}} {
				if ns.file == nil {
					continue
				}
				if err := unix.Setns(int(ns.file.Fd()), ns.kind); err != nil {
					return fmt.Errorf("entering the namespace %s: %w", ns.file.Name(), err)
				}
			}
			if err := setAffinity(0, cpus); err != nil {
				return err
			}
			return cmd.Start()
		}()
	}()
	return <-errc
}

// runInit is the body of the first process of a jail: it makes the private
// directories, says "ready", and stays until its standard input ends.
func runInit() error {
	if err := privateMounts(); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM) // ignoring SIGCHLD lets the kernel reap orphans
	fmt.Print(initReady)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// privateDir is a directory of which each host has its own.
type privateDir struct {
	path    string
	overlay bool
}

// private lists the directories that programs on a host may change. Overlays
// show the machine's files and keep changes in memory.
var private = []privateDir{
	{"/etc", true}, {"/var/lib", true}, {"/var/log", false}, {"/run", false}, {"/tmp", false}, {"/var/tmp", false},
}

func privateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	// /mnt holds the overlays' upper layers; the machine's /mnt stays as it is.
	if err := unix.Mount("gateweigh", "/mnt", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting a private /mnt: %w", err)
	}
	for _, p := range private {
		if err := p.mount(); err != nil {
			return fmt.Errorf("making a private %s: %w", p.path, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if fi, err := os.Lstat("/var/run"); err == nil && fi.IsDir() {
		if err := unix.Mount("/run", "/var/run", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("making a private /var/run: %w", err)
		}
	}
	return makeDirs(Scratch, "/run/lock", "/run/netns")
}

func makeDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (p privateDir) mount() error {
	if !p.overlay {
		mode := "mode=755"
		if filepath.Base(p.path) == "tmp" {
			mode = "mode=1777"
		}
		return unix.Mount("gateweigh", p.path, "tmpfs", 0, mode)
	}
	base := filepath.Join("/mnt", filepath.Base(p.path))
	upper, work := filepath.Join(base, "upper"), filepath.Join(base, "work")
	if err := makeDirs(upper, work); err != nil {
		return err
	}
	err := unix.Mount("overlay", p.path, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", p.path, upper, work))
	if err == nil {
		return nil
	}
	// Kernels without overlayfs, or a file system that refuses to be its lower layer: a copy.
	copied := filepath.Join(base, "copy")
	if out, cperr := exec.Command("cp", "-a", p.path, copied).CombinedOutput(); cperr != nil {
		return fmt.Errorf("overlay: %w; copy: %s", err, out)
	}
	return unix.Mount(copied, p.path, "", unix.MS_BIND, "")
}

// setAffinity binds thread or process pid (0: the calling thread) to cpus; nil changes nothing.
func setAffinity(pid int, cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		return fmt.Errorf("binding to CPUs %v: %w", cpus, err)
	}
	return nil
}

// pinThreads binds all threads of this process, and so all later ones, to cpus.
func pinThreads(cpus []int) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := setAffinity(tid, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

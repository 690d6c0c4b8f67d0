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
	scratch string // where programs start
}

// initReady is what a jail's first process prints once the private directories stand.
const initReady = "ready\n"

// Scratch is a host's private directory: logs of its programs, DUT files.
const Scratch = "/run/gateweigh"

// Disk is the folder of the host's logs as its programs reach it. Other directories that they may write to are in
// memory.
const Disk = "/mnt/disk"

func newJail(disk string) (*jail, error) {
	if emulator() != "" {
		// qemu-user makes no process namespaces. The programs of a self-test run in the agent's own.
		return &jail{scratch: os.TempDir()}, nil
	}
	namespaces := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	first, err := StartChild([]string{InitCommand, disk}, namespaces, os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("starting the host's first process: %w", err)
	}
	j := &jail{init: first, scratch: Scratch}
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
	if j.init == nil {
		return
	}
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
// directories, shows a folder of the machine as Disk, says "ready", and stays until its standard input ends.
func runInit(disk string) error {
	if err := privateMounts(disk); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM) // ignoring SIGCHLD lets the kernel reap orphans
	fmt.Print(initReady)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Directories that programs on a host may change, of which each host has its own: overlays
// show the machine's files and keep changes in memory, the others begin empty.
var (
	overlaidFolders = []string{"/etc", "/var/lib"}
	emptyFolders    = []string{"/var/log", "/run", "/tmp", "/var/tmp"}
)

// mount is a call of mount(2).
type mount struct {
	source, path, fs string
	flags            uintptr
	data             string
}

// procMount shows the processes of the caller's process namespace.
var procMount = mount{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""}

// keepPrivate keeps later mounts from reaching the machine.
var keepPrivate = mount{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""}

func mountAll(list ...mount) error {
	for _, m := range list {
		if err := unix.Mount(m.source, m.path, m.fs, m.flags, m.data); err != nil {
			return fmt.Errorf("making %s private: %w", m.path, err)
		}
	}
	return nil
}

func privateMounts(disk string) error {
	// Opened before one of the directories below, which it may be in, is mounted over.
	folder, err := os.Open(disk)
	if err != nil {
		return fmt.Errorf("opening the folder of logs: %w", err)
	}
	defer folder.Close()
	// /mnt holds the overlays' upper layers; the machine's /mnt stays as it is.
	if err := mountAll(keepPrivate, mount{"gateweigh", "/mnt", "tmpfs", 0, "mode=755"}); err != nil {
		return err
	}
	if err := makeDirs(Disk); err != nil {
		return err
	}
	list := []mount{{fmt.Sprintf("/proc/self/fd/%d", folder.Fd()), Disk, "", unix.MS_BIND, ""}}
	for _, dir := range emptyFolders {
		mode := "mode=755"
		if filepath.Base(dir) == "tmp" {
			mode = "mode=1777"
		}
		list = append(list, mount{"gateweigh", dir, "tmpfs", 0, mode})
	}
	list = append(list, procMount)
	if fi, err := os.Lstat("/var/run"); err == nil && fi.IsDir() {
		list = append(list, mount{"/run", "/var/run", "", unix.MS_BIND, ""})
	}
	if err := mountAll(list...); err != nil {
		return err
	}
	for _, dir := range overlaidFolders {
		if err := overlay(dir); err != nil {
			return err
		}
	}
	return makeDirs(Scratch, "/run/lock", "/run/netns")
}

func makeDirs(dirs ...string) (err error) {
	for _, dir := range dirs {
		err = errors.Join(err, os.MkdirAll(dir, 0o755))
	}
	return err
}

func overlay(dir string) error {
	base := filepath.Join("/mnt", filepath.Base(dir))
	upper, work, copied := base+"/upper", base+"/work", base+"/copy"
	if err := makeDirs(upper, work); err != nil {
		return err
	}
	err := mountAll(
		mount{"overlay", dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)})
	if err == nil {
		return nil
	}
	// Kernels without overlayfs, or a file system that refuses to be its lower layer: a copy.
	if out, bad := exec.Command("cp", "-a", dir, copied).CombinedOutput(); bad != nil {
		return fmt.Errorf("overlay: %w; copy: %s", err, out)
	}
	return mountAll(mount{copied, dir, "", unix.MS_BIND, ""})
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
	for _, t := range tasks {
		tid, bad := strconv.Atoi(t.Name())
		if bad == nil {
			bad = setAffinity(tid, cpus)
		}
		if !errors.Is(bad, unix.ESRCH) { // the thread has ended
			err = errors.Join(err, bad)
		}
	}
	return err
}

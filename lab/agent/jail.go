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

	"github.com/gateweigh/gateweigh/lab/machine"
	"golang.org/x/sys/unix"
)

// A jail holds the programs of a host. It has a process namespace: when its
// first process ends, and that ends with the agent, the kernel ends all others,
// so no program outlives the agent. It also has a mount namespace, in which
// /etc, /run, /tmp and parts of /var are private, so a gateway may rewrite them
// and the machine's files stay as they are.
//
//	gateweigh agent ── stdin pipe ──> gateweigh agent-init (PID 1 of the jail)
//	      └── fork inside both namespaces ──> opennds, chilli, iperf3 …
type jail struct {
	init    *Child   // the first process
	mnt     *os.File // the mount namespace
	pid     *os.File // the process namespace
	pidLink string   // "pid:[4026532…]", by which the jail's processes are found in /proc
	scratch string   // working folder of the programs
}

// initReady is what a jail's first process prints once the private directories stand.
const initReady = "ready\n"

// Scratch is the working folder of a host's programs, for configuration files of devices and the like. It is in memory.
const Scratch = "/run/gateweigh"

// Disk is where a host's programs see the folder of their logs. It is the only folder on a disk that they may write to;
// the private ones are in memory.
const Disk = "/mnt/disk"

// newJail starts the first process of a jail, in which the folder disk appears as Disk.
func newJail(disk string) (*jail, error) {
	if machine.Emulator() != "" {
		// qemu-user makes no process namespaces, so in it programs run in the agent's namespaces.
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

// start starts cmd inside the jail, on the given CPUs and, when netns is not
// nil, in that network namespace. A new process gets the namespaces of the
// thread that starts it, so a thread enters them here. That thread then ends:
// it must not serve other goroutines.
func (j *jail) start(cmd *exec.Cmd, cpus []int, netns *os.File) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
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

// runInit is the first process of a jail. It makes the private directories, mounts the folder disk
// at Disk, prints initReady, and waits until its standard input ends, as that does with the agent.
func runInit(disk string) error {
	if err := privateMounts(disk); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGCHLD, syscall.SIGINT, syscall.SIGTERM) // ignoring SIGCHLD lets the kernel reap orphans
	fmt.Print(initReady)
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// Directories of which each host has its own, so that programs may change them. Overlaid ones
// show the machine's files and keep changes in memory. The others begin empty.
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

// keepPrivate makes later mounts invisible outside of this mount namespace.
var keepPrivate = mount{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""}

// mountAll mounts in the order of the list, and stops at the first error.
func mountAll(list ...mount) error {
	for _, m := range list {
		if err := unix.Mount(m.source, m.path, m.fs, m.flags, m.data); err != nil {
			return fmt.Errorf("making %s private: %w", m.path, err)
		}
	}
	return nil
}

// privateMounts makes the jail's private directories, and mounts the folder disk at Disk.
func privateMounts(disk string) error {
	// The folder is opened first, because it may be in a directory that is mounted over below.
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

// overlay makes dir private: it shows the machine's files, and changes stay in memory.
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
	// The kernel has no overlayfs, or refuses the file system of dir as its lower layer. Then dir is a copy.
	if out, bad := exec.Command("cp", "-a", dir, copied).CombinedOutput(); bad != nil {
		return fmt.Errorf("overlay: %w; copy: %s", err, out)
	}
	return mountAll(mount{copied, dir, "", unix.MS_BIND, ""})
}

// setAffinity binds the thread pid (0: the calling one) to cpus. An empty list changes nothing.
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

// pinThreads binds all threads of this process to cpus. Threads that they start later inherit it.
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

// Puts the guest's file systems together. All of this runs in the guest.

package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// mount is the arguments of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// mountAll mounts all of a list in order, and makes target folders that are missing.
func mountAll(list []mount) error {
	for _, m := range list {
		if _, err := os.Stat(m.target); err != nil {
			if err := os.MkdirAll(m.target, 0o755); err != nil {
				return fmt.Errorf("making %s for the guest: %w", m.target, err)
			}
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

// p9 is the options for mounting folders of the machine (9p): over virtio, in large messages, with permissions by user.
const p9 = "trans=virtio,version=9p2000.L,msize=524288,access=client"

// prepareRoot sets the guest's clock and host name and mounts its file systems: an overlay on the machine's root,
// shared folders, devices and the kernel's modules.
func prepareRoot(o guestOrder) error {
	now := unix.NsecToTimeval(o.Now)
	if err := unix.Settimeofday(&now); err != nil {
		return fmt.Errorf("setting the guest's clock: %w", err)
	}
	if err := assembleRoot(o); err != nil {
		return err
	}
	if err := enterRoot(); err != nil {
		return err
	}
	modules := filepath.Join("/lib/modules", o.Release)
	if modules != o.Modules {
		if err := mountAll([]mount{{o.Modules, modules, "", unix.MS_BIND, ""}}); err != nil {
			return err
		}
	}
	return errors.Join(
		linkStreams(), makeDeviceFiles(filepath.Join(modules, "modules.devname")), unix.Sethostname([]byte(o.Hostname)),
		loopbackUp(), raiseOpenFiles())
}

// assembleRoot puts the guest's root together below newRoot.
func assembleRoot(o guestOrder) error {
	upper, work := "/"+upperFolder+"/files", "/"+upperFolder+"/work"
	err := mountAll([]mount{
		// cache=loose reads each of the machine's files once. They are not expected to change during a run.
		{rootTag, "/" + lowerFolder, "9p", unix.MS_RDONLY, p9 + ",cache=loose"},
		{"tmpfs", "/" + upperFolder, "tmpfs", 0, "mode=755"},
	})
	if err == nil {
		err = errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755))
	}
	if err != nil {
		return err
	}
	in := func(path string) string { return "/" + newRoot + path } // path in the new root
	list := []mount{
		{"overlay", in(""), "overlay", 0, "lowerdir=/" + lowerFolder + ",upperdir=" + upper + ",workdir=" + work},
		{"devtmpfs", in("/dev"), "devtmpfs", 0, ""},
		{"devpts", in("/dev/pts"), "devpts", 0, "mode=620,ptmxmode=666"},
		{"tmpfs", in("/dev/shm"), "tmpfs", 0, "mode=1777"},
		{"proc", in("/proc"), "proc", 0, ""},
		{"sysfs", in("/sys"), "sysfs", 0, ""},
		{"cgroup2", in("/sys/fs/cgroup"), "cgroup2", 0, ""},
		{"bpf", in("/sys/fs/bpf"), "bpf", 0, "mode=700"},
		{"tmpfs", in("/run"), "tmpfs", 0, "mode=755"},
		{"tmpfs", in("/tmp"), "tmpfs", 0, "mode=1777"},
	}
	for _, m := range []mount{
		{"tracefs", "/sys/kernel/tracing", "tracefs", 0, ""}, {"debugfs", "/sys/kernel/debug", "debugfs", 0, ""}} {
		if _, err := os.Stat(m.target); err == nil {
			m.target = in(m.target)
			list = append(list, m)
		}
	}
	// The guest's own /tmp and /run hide the machine's, so the folders in them that it needs are mounted again.
	for _, path := range o.hiddenFolders() {
		list = append(list, mount{"/" + lowerFolder + path, in(path), "", unix.MS_BIND, ""})
	}
	// If the command is this program, the guest uses the copy in the initrd, because to read it through QEMU takes time.
	if o.Program == o.Command[0] {
		list = append(list, mount{"/" + initFile, in(o.Program), "", unix.MS_BIND, ""})
	}
	// cache=none writes to the machine's files at once.
	for i, folder := range o.Shares {
		list = append(list, mount{shareTag + strconv.Itoa(i), in(folder), "9p", 0, p9 + ",cache=none"})
	}
	return mountAll(list)
}

// hiddenFolders lists folders below the machine's /tmp and /run that the guest needs: those of the command, and those
// on its PATH.
func (o guestOrder) hiddenFolders() (list []string) {
	add := func(folder string) {
		if (isBelow(folder, "/tmp") || isBelow(folder, "/run")) && !slices.Contains(list, folder) {
			list = append(list, folder)
		}
	}
	for _, folder := range []string{filepath.Dir(o.Command[0]), o.Dir, o.Modules} {
		add(folder)
	}
	for _, folder := range o.path() {
		if info, err := os.Stat("/" + lowerFolder + folder); err == nil && info.IsDir() {
			add(filepath.Clean(folder))
		}
	}
	return list
}

// path returns the folders in which the command finds programs: those of PATH in its environment.
func (o guestOrder) path() (list []string) {
	for _, variable := range o.Env {
		if text, is := strings.CutPrefix(variable, "PATH="); is { // the last counts
			list = filepath.SplitList(text)
		}
	}
	return list
}

// isBelow reports whether a path is below a folder.
func isBelow(path, folder string) bool { return strings.HasPrefix(path, folder+"/") }

// enterRoot makes newRoot the root folder of this process, the guest's first one. All other processes and the kernel's
// threads have the same root.
func enterRoot() error {
	if err := os.Chdir("/" + newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the guest's root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("entering the guest's root: %w", err)
	}
	return os.Chdir("/")
}

// linkStreams makes /dev/stdin and the like, which udev makes on other systems.
func linkStreams() error {
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, "/dev/"+name); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("completing the guest's /dev: %w", err)
		}
	}
	return nil
}

// makeDeviceFiles makes the device files by whose opening modules are loaded: "tun net/tun c10:200" in modules.devname.
func makeDeviceFiles(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil // no such modules
	}
	for line := range strings.Lines(string(text)) {
		var module, name string
		var kind rune
		var major, minor uint32
		if n, _ := fmt.Sscanf(line, "%s %s %c%d:%d", &module, &name, &kind, &major, &minor); n != 5 ||
			strings.HasPrefix(module, "#") {
			continue
		}
		path := filepath.Join("/dev", name)
		mode := uint32(unix.S_IFCHR | 0o600)
		if kind == 'b' {
			mode = unix.S_IFBLK | 0o600
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := unix.Mknod(path, mode, int(unix.Mkdev(major, minor))); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("making %s: %w", path, err)
		}
	}
	return nil
}

// loopbackUp sets the guest's loopback interface up.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bringing up lo: %w", err)
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r); err != nil {
		return fmt.Errorf("bringing up lo: %w", err)
	}
	return nil
}

// raiseOpenFiles raises the limit of open files to what login shells have at most.
func raiseOpenFiles() error {
	const files = 65536
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files})
}

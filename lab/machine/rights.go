package machine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bar is something around this process that keeps every lab from running, on a machine that could run it: a container's
// process namespace, a capability it was not given, a system call that a filter refuses.
type Bar struct {
	What string `json:"what"` // "the capability CAP_SYS_NICE is missing: it binds polling threads to CPUs"
	Do   string `json:"do"`   // what to do about it
}

// HiddenThreads says what a process namespace of a container's own does to a lab, and what helps.
const HiddenThreads = "this process namespace hides the kernel's threads: run with --pid=host"

// machinePIDs is the process namespace of the machine: the kernel gives it this number at boot
// (PID_NS_INIT_INO, include/uapi/linux/nsfs.h).
const machinePIDs = "pid:[4026531836]"

// OwnProcesses reports whether this process is in another process namespace than the machine's. From there nobody can
// name a thread of the kernel: the polling threads, which a lab binds to CPUs and whose time it reads, belong to the
// machine's namespace, whatever namespace their interface is in.
func OwnProcesses() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link != machinePIDs // without /proc nothing is known
}

// capability is one that every lab needs.
type capability struct {
	number int
	name   string // after CAP_
	does   string
}

var capabilities = []capability{
	{unix.CAP_SYS_ADMIN, "SYS_ADMIN", "makes namespaces and mounts"},
	{unix.CAP_NET_ADMIN, "NET_ADMIN", "makes links and rules"},
	{unix.CAP_NET_RAW, "NET_RAW", "leases addresses"},
	{unix.CAP_NET_BIND_SERVICE, "NET_BIND_SERVICE", "serves DHCP"},
	{unix.CAP_SYS_CHROOT, "SYS_CHROOT", "enters the hosts' namespaces"},
	{unix.CAP_SYS_NICE, "SYS_NICE", "binds polling threads to CPUs"},
}

// call is a system call that every lab makes, and how it is tried: on the calling thread, which ends with the trial.
type call struct {
	name string
	try  func() error
}

// calls are tried in this order: a mount is tried in the namespace that unshare made.
var calls = []call{
	{"unshare", func() error { return unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS) }},
	{"mount", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
	{"setns", func() error {
		return inFile("/proc/thread-self/ns/uts", func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWUTS) })
	}},
	{"sched_setaffinity", func() error {
		var set unix.CPUSet
		return errors.Join(unix.SchedGetaffinity(0, &set), unix.SchedSetaffinity(0, &set))
	}},
	{"perf_event_open", func() error {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK}
		attr.Size = uint32(unsafe.Sizeof(attr))
		fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}},
}

// bpfCall is what programs for the kernel take, which some devices have.
var bpfCall = call{"bpf", tryBPF}

// tryBPF makes a map of one entry.
func tryBPF() error {
	// BPF_MAP_CREATE; the fields that follow begin its bpf_attr
	const mapCreate = 0
	attr := struct{ kind, key, value, entries, flags uint32 }{kind: 2, key: 4, value: 4, entries: 1} // BPF_MAP_TYPE_ARRAY
	fd, _, errno := unix.Syscall(unix.SYS_BPF, mapCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

func inFile(path string, do func(fd int) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(int(f.Fd()))
}

// bars lists what keeps labs from running although this process is root.
func bars() (list []Bar) {
	if OwnProcesses() {
		list = append(list, Bar{HiddenThreads, "podman run --pid=host --privileged …, or run on the machine itself"})
	}
	status, _ := os.ReadFile("/proc/self/status") // an error: nothing is known of rights, and calls are tried all the same
	if lacking := lackingCapabilities(string(status)); len(lacking) > 0 {
		return append(list, lackingBar(lacking)) // which explains what calls refuse
	}
	return append(list, refusedCalls(calls...)...)
}

// lackingBar names capabilities, and how a container gets them.
func lackingBar(lacking []capability) Bar {
	var names, options []string
	for _, c := range lacking {
		names = append(names, "CAP_"+c.name+" ("+c.does+")")
		options = append(options, c.name)
	}
	one := "capabilities are missing: "
	if len(names) == 1 {
		one = "a capability is missing: "
	}
	return Bar{one + strings.Join(names, ", "), "podman run --cap-add=" + strings.Join(options, ",") + " …"}
}

// lackingCapabilities are those that a process lacks, by its /proc/PID/status.
func lackingCapabilities(status string) (list []capability) {
	_, text, shown := strings.Cut(status, "\nCapEff:\t")
	text, _, _ = strings.Cut(text, "\n")
	effective, err := strconv.ParseUint(text, 16, 64)
	if !shown || err != nil {
		return nil
	}
	for _, c := range capabilities {
		if effective&(1<<c.number) == 0 {
			list = append(list, c)
		}
	}
	return list
}

// refusedCalls tries calls on a thread of its own, in namespaces that end with it.
func refusedCalls(calls ...call) (list []Bar) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its goroutine
		for _, c := range calls {
			err := c.try()
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
				list = append(list, refusal(c.name, err))
			}
		}
	}()
	<-done
	return list
}

// refusal says who refuses a call that capabilities allow.
func refusal(name string, err error) Bar {
	status, _ := os.ReadFile("/proc/self/status") // an error: no filter is seen
	if strings.Contains(string(status), "\nSeccomp:\t2\n") {
		return Bar{fmt.Sprintf("a seccomp filter refuses %s (%v)", name, err),
			"podman run --security-opt seccomp=unconfined …"}
	}
	if errors.Is(err, unix.ENOSYS) {
		return Bar{"the kernel has no " + name, "a kernel with it, as distributions build it"}
	}
	return Bar{fmt.Sprintf("%s is refused (%v), although the capabilities for it are there", name, err),
		"podman run --privileged …; elsewhere look at the machine's security modules, such as AppArmor"}
}

// barred is why features cannot be tried here although this process is root, "" when they can.
func barred(list []Bar) string {
	var texts []string
	for _, b := range list {
		texts = append(texts, b.String())
	}
	return strings.Join(texts, "; ")
}

// String is a bar with what to do about it.
func (b Bar) String() string { return b.What + Arrow + b.Do }

// Arrow stands between what is wrong and what to do about it.
const Arrow = " → "

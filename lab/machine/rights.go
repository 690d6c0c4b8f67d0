package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bar is a reason why no lab can run in this process's environment, usually a container, although the machine could run
// one: its process namespace, a missing capability, or a system call that a filter refuses.
type Bar struct {
	What string `json:"what"` // "the capability CAP_SYS_NICE is missing: it binds polling threads to CPUs"
	Do   string `json:"do"`   // what the user can do about it
	// Meter means that CPU time alone cannot be read. What needs none of it runs.
	Meter bool `json:"meter,omitempty"`
}

// HiddenThreads is the What of the bar for a container that has its own process namespace.
const HiddenThreads = "this process namespace hides the kernel's threads: run with --pid=host"

// machinePIDs is the machine's process namespace. The kernel always gives it this number
// (PID_NS_INIT_INO, include/uapi/linux/nsfs.h).
const machinePIDs = "pid:[4026531836]"

// InPIDNamespace reports whether this process is in another process namespace than the machine's. Such a process sees
// no threads of the kernel. A lab must see the polling threads of its links, to bind them to CPUs and to read their
// times, and these always belong to the machine's namespace.
func InPIDNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link != machinePIDs // an error: unknown, so false
}

// capability is a capability (capabilities(7)) that every lab needs.
type capability struct {
	number  int
	name    string // without CAP_
	purpose string // what a lab does with it
}

var capabilities = []capability{
	{unix.CAP_SYS_ADMIN, "SYS_ADMIN", "makes namespaces and mounts"},
	{unix.CAP_NET_ADMIN, "NET_ADMIN", "makes links and rules"},
	{unix.CAP_NET_RAW, "NET_RAW", "leases addresses"},
	{unix.CAP_NET_BIND_SERVICE, "NET_BIND_SERVICE", "serves DHCP"},
	{unix.CAP_SYS_CHROOT, "SYS_CHROOT", "enters the hosts' namespaces"},
	{unix.CAP_SYS_NICE, "SYS_NICE", "binds polling threads to CPUs"},
}

// call is a system call that every lab makes.
type call struct {
	name  string
	try   func() error // makes the call on the calling thread, which may be left changed
	meter bool         // reads CPU time
}

// calls are the system calls in the order in which they are tried: the mount changes the namespace that unshare made.
var calls = []call{
	{name: "unshare", try: func() error { return unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS) }},
	{name: "mount", try: func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
	{name: "setns", try: func() error {
		return inFile("/proc/thread-self/ns/uts", func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWUTS) })
	}},
	{name: "sched_setaffinity", try: func() error {
		var set unix.CPUSet
		return errors.Join(unix.SchedGetaffinity(0, &set), unix.SchedSetaffinity(0, &set))
	}},
	{name: "perf_event_open", meter: true, try: func() error {
		attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK}
		attr.Size = uint32(unsafe.Sizeof(attr))
		fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err == nil {
			err = unix.Close(fd)
		}
		return err
	}},
}

// bpfCall is the system call that loads programs into the kernel, as some devices do.
var bpfCall = call{name: "bpf", try: tryBPF}

// tryBPF makes an eBPF map with one entry, and closes it.
func tryBPF() error {
	// The number is BPF_MAP_CREATE; attr has the first fields of its bpf_attr.
	const mapCreate = 0
	attr := struct{ kind, key, value, entries, flags uint32 }{kind: 2, key: 4, value: 4, entries: 1} // BPF_MAP_TYPE_ARRAY
	fd, _, errno := unix.Syscall(unix.SYS_BPF, mapCreate, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// inFile opens a file, and calls do with its descriptor.
func inFile(path string, do func(fd int) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return do(int(f.Fd()))
}

// bars lists the reasons why labs cannot run although this process is root.
func bars() (list []Bar) {
	if InPIDNamespace() {
		list = append(list,
			Bar{What: HiddenThreads, Do: "podman run --pid=host --privileged …, or run on the machine itself"})
	}
	status, _ := os.ReadFile("/proc/self/status") // an error: the capabilities are unknown, and calls are still tried
	if missing := missingCapabilities(string(status)); len(missing) > 0 {
		return append(list, capabilityBar(missing)) // calls would fail for this reason, so they are not tried
	}
	return append(list, refusedCalls(calls...)...)
}

// capabilityBar is the bar of missing capabilities. It tells how a container gets them.
func capabilityBar(missing []capability) Bar {
	var names, options []string
	for _, c := range missing {
		names = append(names, "CAP_"+c.name+" ("+c.purpose+")")
		options = append(options, c.name)
	}
	one := "capabilities are missing: "
	if len(names) == 1 {
		one = "a capability is missing: "
	}
	return Bar{What: one + strings.Join(names, ", "), Do: "podman run --cap-add=" + strings.Join(options, ",") + " …"}
}

// missingCapabilities lists the needed capabilities that a process lacks, by the text of its /proc/PID/status.
func missingCapabilities(status string) (list []capability) {
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

// refusedCalls tries calls and returns a bar for each that is refused. It uses a new thread, which ends with it,
// because the calls change the thread's namespaces.
func refusedCalls(calls ...call) (list []Bar) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		for _, c := range calls {
			err := c.try()
			if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOSYS) {
				bar := refusal(c.name, err)
				bar.Meter = c.meter
				list = append(list, bar)
			}
		}
	}()
	<-done
	return list
}

// refusal is the bar of a call that is refused although the capabilities allow it: it names what refuses it.
func refusal(name string, err error) Bar {
	status, _ := os.ReadFile("/proc/self/status") // an error: a filter is not known
	if strings.Contains(string(status), "\nSeccomp:\t2\n") {
		return Bar{What: fmt.Sprintf("a seccomp filter refuses %s (%v)", name, err),
			Do: "podman run --security-opt seccomp=unconfined …"}
	}
	if through := Emulator(); through != "" && errors.Is(err, unix.ENOSYS) {
		return Bar{What: fmt.Sprintf("the agent runs in an emulator, %s, which has no %s", filepath.Base(through), name),
			Do: "run it on its own processor"}
	}
	if errors.Is(err, unix.ENOSYS) {
		return Bar{What: "the kernel has no " + name, Do: "a kernel with it, as distributions build it"}
	}
	return Bar{What: fmt.Sprintf("%s is refused (%v), although the capabilities for it are there", name, err),
		Do: "podman run --privileged …; elsewhere look at the machine's security modules, such as AppArmor"}
}

// Emulator returns the file of the emulator (qemu-user) that runs this process, or "" without one. An emulator shows
// the emulated program's file as /proc/self/exe, but its own file as that of a thread.
func Emulator() string {
	ofThread, err1 := os.Readlink("/proc/thread-self/exe")
	ofProcess, err2 := os.Readlink("/proc/self/exe")
	if err1 != nil || err2 != nil || ofThread == ofProcess {
		return ""
	}
	return ofThread
}

// Unmetered is why this process cannot read the CPU time of others, empty where it can.
func Unmetered() string {
	for _, b := range refusedCalls(slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return !c.meter })...) {
		return b.What
	}
	return ""
}

// joinBars joins the texts of bars.
func joinBars(list []Bar) string {
	var texts []string
	for _, b := range list {
		texts = append(texts, b.String())
	}
	return strings.Join(texts, "; ")
}

// String is the bar, and what to do about it.
func (b Bar) String() string { return b.What + Arrow + b.Do }

// Arrow stands between what is wrong and what to do about it.
const Arrow = " → "

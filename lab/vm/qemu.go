// Runs QEMU: its command line, its process, and why it ended.

package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/result"
)

// accelerator is a way in which QEMU runs a guest.
type accelerator struct {
	name    string   // result.KVM, result.TCG
	args    []string // of QEMU
	kernel  string   // further parameters for the guest's kernel
	slower  int      // factor by which all time limits of a guest are multiplied
	mayFail bool     // if no guest starts with it, the next one is tried
}

// accelerators lists the ways to try, the fastest first. On some machines /dev/kvm exists and yet no guest starts, so
// only a boot shows whether KVM works.
func accelerators() (list []accelerator) {
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		f.Close()
		list = append(list,
			accelerator{name: result.KVM, args: []string{"-accel", "kvm", "-cpu", "host"}, slower: 1, mayFail: true})
	}
	// mitigations=off saves time: an emulated CPU does not speculate, so there is nothing to mitigate.
	return append(list, accelerator{name: result.TCG, args: []string{"-accel", "tcg,thread=multi", "-cpu", "max"},
		kernel: " mitigations=off", slower: emulatedFactor})
}

// qemu is the path of QEMU, "" if it is not installed.
func qemu() string {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return ""
	}
	return path
}

// virtualMachine has what QEMU needs to start a guest. Its files are in memory, so a full disk does not matter, and
// none of them stays when this process ends.
type virtualMachine struct {
	accelerator
	image, initrd, console *os.File // the kernel, the first file system, and the output of the guest's console
}

// Numbers of the file descriptors that QEMU inherits.
const (
	portFD = 3 + iota
	imageFD
	initrdFD
	consoleFD
)

// pathOf returns a path by which QEMU opens a file whose descriptor it has inherited.
func pathOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// inMemory makes a file in memory. write writes its content.
func inMemory(name string, write func(io.Writer) error) (*os.File, error) {
	fd, err := unix.MemfdCreate("gateweigh-"+name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making the guest's %s in memory: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := write(f); err != nil {
		return nil, errors.Join(fmt.Errorf("making the guest's %s in memory: %w", name, err), f.Close())
	}
	return f, nil
}

// portName is the name of the virtual serial port to the guest.
const portName = "gateweigh"

// Tags by which the guest mounts the machine's folders.
const (
	rootTag  = "root"
	shareTag = "share" // followed by the folder's index in Config.Shares
)

// args returns the arguments of QEMU.
func (m virtualMachine) args(cfg Config) []string {
	args := append([]string{"-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-smp", strconv.Itoa(cfg.CPUs), "-m", strconv.Itoa(cfg.MemoryMiB)}, m.accelerator.args...)
	args = append(args, "-kernel", pathOf(imageFD), "-initrd", pathOf(initrdFD), "-append",
		"console=ttyS0 quiet panic=-1"+m.kernel,
		"-chardev", "file,id=console,path="+pathOf(consoleFD), "-serial", "chardev:console",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=talk,fd="+strconv.Itoa(portFD), "-device",
		"virtserialport,chardev=talk,name="+portName)
	args = append(args, share(rootTag, "/", ",readonly=on")...)
	for i, folder := range cfg.Shares {
		args = append(args, share(shareTag+strconv.Itoa(i), folder, "")...)
	}
	return args
}

// share returns the options of QEMU that give the guest a folder of the machine. The guest mounts it by the tag. more
// is appended to the first option.
func share(tag, folder, more string) []string {
	return []string{
		"-fsdev", "local,id=" + tag + ",path=" + escaped(folder) + ",security_model=none,multidevs=remap" + more,
		"-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag}
}

// escaped returns a path with its commas doubled, because commas separate QEMU's options.
func escaped(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// process is a started QEMU.
type process struct {
	*exec.Cmd
	port     *os.File      // the machine's end of the port to the guest
	messages bytes.Buffer  // error output of QEMU; valid once ended is closed
	ended    chan struct{} // closed once QEMU has ended
}

// start starts QEMU. The kernel ends it when this process ends, even when it is killed.
func (m virtualMachine) start(cfg Config) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("making the guest's port: %w", err)
	}
	ownEnd, qemuEnd := os.NewFile(uintptr(fds[0]), "the guest's port"), os.NewFile(uintptr(fds[1]), "port")
	defer qemuEnd.Close()
	p := &process{Cmd: exec.Command(qemu(), m.args(cfg)...), port: ownEnd, ended: make(chan struct{})}
	p.Stderr, p.ExtraFiles = &p.messages, []*os.File{qemuEnd, m.image, m.initrd, m.console} // in the order of portFD, …
	// A process group of its own keeps Ctrl-C from QEMU. Run passes the signal on to the guest's command.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() { // ends with QEMU: the kernel would kill QEMU (Pdeathsig) when the thread that started it ends
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.ended)
		err := p.Start()
		started <- err
		if err == nil {
			_ = p.Wait() // endReason reads QEMU's messages and status
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("starting QEMU: %w", err), ownEnd.Close())
	}
	return p, nil
}

// stop ends QEMU and waits for that.
func (p *process) stop() {
	_ = p.Process.Kill() // an error: it has ended
	<-p.ended
	p.port.Close()
}

// quitTimeout bounds the wait for the end of a QEMU that has closed the guest's port.
const quitTimeout = 10 * time.Second

// endReason waits for the end of a QEMU that was not stopped, and returns why it ended. console is the text on the
// guest's console.
func (p *process) endReason(console []byte) error {
	select {
	case <-p.ended:
	case <-time.After(quitTimeout):
		_ = p.Process.Kill() // an error: it has ended
		<-p.ended
	}
	text := strings.TrimSpace(p.messages.String())
	switch ended := consoleError(console); {
	case ended != nil:
		return ended
	case strings.Contains(text, "Cannot allocate memory"):
		return fmt.Errorf("%w: %s: close programs, or give it less (--vm-memory)", ErrMemory, text)
	case text != "":
		return fmt.Errorf("%w: %s", ErrEnded, text)
	case p.ProcessState.Sys().(syscall.WaitStatus).Signaled():
		return fmt.Errorf(
			"%w: QEMU was ended by a signal (%s): if nobody sent that, look into dmesg, whether this machine ran out of memory",
			ErrEnded, p.ProcessState)
	}
	return fmt.Errorf("%w (%s)", ErrEnded, p.ProcessState)
}

// consoleError returns why a guest ended, if its kernel or its first process has printed that on the console. Otherwise
// it returns nil.
func consoleError(console []byte) error {
	line := func(after string) (string, bool) { // the rest of the line after a text
		_, text, found := bytes.Cut(console, []byte(after))
		text, _, _ = bytes.Cut(text, []byte("\n"))
		return string(bytes.TrimSpace(text)), found
	}
	if text, panicked := line("Kernel panic - not syncing: "); panicked {
		if full := outOfMemory(console); full != nil {
			return fmt.Errorf("%w: %s: %w", ErrPanic, text, full)
		}
		return fmt.Errorf("%w: %s", ErrPanic, text)
	}
	if text, said := line(guestErrorPrefix); said {
		return fmt.Errorf("%w: %s", ErrEnded, text)
	}
	return nil
}

// oomKilled is the line by which the guest's kernel reports that it ended a program because the guest's memory was
// full.
var oomKilled = regexp.MustCompile(`Out of memory: Killed process \d+ \(([^)]*)\)`)

// outOfMemory returns an error if the console of a guest says that its memory was full, and nil otherwise.
func outOfMemory(console []byte) error {
	var names []string
	for _, m := range oomKilled.FindAllSubmatch(console, -1) {
		if name := string(m[1]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	advice := "give it more (--vm-memory), or measure fewer clients"
	switch {
	case names != nil:
		return fmt.Errorf("%w: its kernel ended %s: %s", ErrGuestMemory, strings.Join(names, ", "), advice)
	case bytes.Contains(console, []byte("deadlocked on memory")),
		bytes.Contains(console, []byte("Initramfs unpacking failed: write error")):
		return fmt.Errorf("%w: %s", ErrGuestMemory, advice)
	}
	return nil
}

// qemuMiB is the memory that QEMU takes beside the guest's, MiB.
const qemuMiB = 256

// enoughMemory returns an error if mib MiB are too little for a guest, or more than the machine has available.
func enoughMemory(mib int) error {
	if mib < minGuestMiB {
		return fmt.Errorf("%w: %d MiB: a guest needs %d at least (--vm-memory)", ErrMemory, mib, minGuestMiB)
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fmt.Errorf("looking for memory for the guest: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var free int
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &free); n == 1 && free>>10 < mib+qemuMiB {
			return fmt.Errorf(
				"%w: it takes %d MiB and QEMU some %d, and %d are available: close programs, or give it less (--vm-memory)",
				ErrMemory, mib, qemuMiB, free>>10)
		}
	}
	return nil
}

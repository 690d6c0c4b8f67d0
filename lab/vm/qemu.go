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
	name    string // result.KVM, result.TCG
	args    []string
	kernel  string // parameters of the guest's kernel
	slower  int    // factor of the times that a guest is given
	mayFail bool   // another follows
}

// accelerators are the ways to try, the best first. Whether KVM works with a kernel shows only when that is booted:
// on some machines /dev/kvm is there, and no guest starts.
func accelerators() (list []accelerator) {
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		f.Close()
		list = append(list,
			accelerator{name: result.KVM, args: []string{"-accel", "kvm", "-cpu", "host"}, slower: 1, mayFail: true})
	}
	// An emulated CPU does not speculate.
	return append(list, accelerator{name: result.TCG, args: []string{"-accel", "tcg,thread=multi", "-cpu", "max"},
		kernel: " mitigations=off", slower: emulatedFactor})
}

func qemu() string {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return ""
	}
	return path
}

// machine is a virtual machine. Its files are in memory: a full disk does not matter to them, and nothing of them stays
// however this process ends.
type machine struct {
	accelerator
	image, initrd, console *os.File
}

// Descriptors of QEMU.
const (
	portFD = 3 + iota
	imageFD
	initrdFD
	consoleFD
)

func pathOf(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// inMemory makes a file in memory.
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

// Tags of shared folders.
const (
	rootTag  = "root"
	shareTag = "share" // with a number
)

func (m machine) args(cfg Config) []string {
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

func share(tag, folder, more string) []string {
	return []string{
		"-fsdev", "local,id=" + tag + ",path=" + escaped(folder) + ",security_model=none,multidevs=remap" + more,
		"-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag}
}

// escaped is a value in one of QEMU's lists.
func escaped(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// process is QEMU, and this side of the guest's port.
type process struct {
	*exec.Cmd
	port     *os.File
	messages bytes.Buffer // to be read when it has ended
	ended    chan struct{}
}

// start starts QEMU, which the kernel ends with this process however that ends.
func (m machine) start(cfg Config) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("making the guest's port: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "the guest's port"), os.NewFile(uintptr(fds[1]), "port")
	defer theirs.Close()
	p := &process{Cmd: exec.Command(qemu(), m.args(cfg)...), port: ours, ended: make(chan struct{})}
	p.Stderr, p.ExtraFiles = &p.messages, []*os.File{theirs, m.image, m.initrd, m.console}
	// A group of its own: Ctrl-C is for the guest's command, by signal.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() { // ends with QEMU; the signal of the parent's death is that of this thread
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.ended)
		err := p.Start()
		started <- err
		if err == nil {
			_ = p.Wait() // what matters of how it ended is in its messages
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("starting QEMU: %w", err), ours.Close())
	}
	return p, nil
}

// stop ends QEMU and waits for that.
func (p *process) stop() {
	_ = p.Process.Kill() // an error: it has ended
	<-p.ended
	p.port.Close()
}

// quitWithin bounds the wait for the end of a QEMU that has closed the guest's port.
const quitWithin = 10 * time.Second

// endReason says why a virtual machine ended by itself.
func (p *process) endReason(console []byte) error {
	select {
	case <-p.ended:
	case <-time.After(quitWithin):
		_ = p.Process.Kill() // an error: it has ended
		<-p.ended
	}
	text := strings.TrimSpace(p.messages.String())
	switch ended := lastWords(console); {
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

// lastWords is why a guest ended as its kernel or its first process says on the console, and nil where neither does.
func lastWords(console []byte) error {
	line := func(after string) (string, bool) {
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

// oomKilled is how the kernel says that it ended a program for want of memory in the whole guest.
var oomKilled = regexp.MustCompile(`Out of memory: Killed process \d+ \(([^)]*)\)`)

// outOfMemory is the error of a guest whose console says that its memory was full, and nil otherwise.
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

// ofQEMU is the memory that QEMU takes beside the guest's, MiB.
const ofQEMU = 256

// enoughMemory compares what the guest may use with what the machine has to spare.
func enoughMemory(mib int) error {
	if mib < leastMiB {
		return fmt.Errorf("%w: %d MiB: a guest needs %d at least (--vm-memory)", ErrMemory, mib, leastMiB)
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fmt.Errorf("looking for memory for the guest: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var free int
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &free); n == 1 && free>>10 < mib+ofQEMU {
			return fmt.Errorf(
				"%w: it takes %d MiB and QEMU some %d, and %d are available: close programs, or give it less (--vm-memory)",
				ErrMemory, mib, ofQEMU, free>>10)
		}
	}
	return nil
}

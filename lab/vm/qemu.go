package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
		list = append(list, accelerator{name: result.KVM, args: []string{"-accel", "kvm", "-cpu", "host"}, slower: 1, mayFail: true})
	}
	// An emulated CPU does not speculate.
	return append(list, accelerator{name: result.TCG, args: []string{"-accel", "tcg,thread=multi", "-cpu", "max"}, kernel: " mitigations=off", slower: slower})
}

func qemu() string {
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		return ""
	}
	return path
}

// machine is a virtual machine.
type machine struct {
	accelerator
	image, initrd, console string
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
	args = append(args, "-kernel", m.image, "-initrd", m.initrd, "-append", "console=ttyS0 quiet panic=-1"+m.kernel,
		"-chardev", "file,id=console,path="+escaped(m.console), "-serial", "chardev:console",
		"-device", "virtio-serial-pci", "-chardev", "socket,id=talk,fd=3", "-device", "virtserialport,chardev=talk,name="+portName)
	args = append(args, share(rootTag, "/", ",readonly=on")...)
	for i, folder := range cfg.Shares {
		args = append(args, share(shareTag+strconv.Itoa(i), folder, "")...)
	}
	return args
}

func share(tag, folder, more string) []string {
	return []string{"-fsdev", "local,id=" + tag + ",path=" + escaped(folder) + ",security_model=none,multidevs=remap" + more,
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
	if err := os.MkdirAll(filepath.Dir(m.console), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of the guest's console: %w", err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("making the guest's port: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "the guest's port"), os.NewFile(uintptr(fds[1]), "port")
	defer theirs.Close()
	p := &process{Cmd: exec.Command(qemu(), m.args(cfg)...), port: ours, ended: make(chan struct{})}
	p.Stderr, p.ExtraFiles = &p.messages, []*os.File{theirs}
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

// why says why a virtual machine ended by itself.
func (p *process) why(console string) error {
	select {
	case <-p.ended:
	case <-time.After(quitWithin):
		_ = p.Process.Kill() // an error: it has ended
		<-p.ended
	}
	text, _ := os.ReadFile(console) // without: QEMU says why
	if _, panicked, found := bytes.Cut(text, []byte("Kernel panic - not syncing: ")); found {
		line, _, _ := bytes.Cut(panicked, []byte("\n"))
		return fmt.Errorf("%w: %s", ErrPanic, bytes.TrimSpace(line))
	}
	said := strings.TrimSpace(p.messages.String())
	switch {
	case strings.Contains(said, "Cannot allocate memory"):
		return fmt.Errorf("%w: %s", ErrMemory, said)
	case said != "":
		return fmt.Errorf("%w: %s", ErrEnded, said)
	}
	return fmt.Errorf("%w (%s)", ErrEnded, p.ProcessState)
}

// enoughMemory compares what the guest may use with what the machine has to spare.
func enoughMemory(mib int) error {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fmt.Errorf("looking for memory for the guest: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		var free int
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &free); n == 1 && free>>10 < mib {
			return fmt.Errorf("%w: it has %d MiB, and %d are available: close programs, or give it less (--vm-memory)", ErrMemory, mib, free>>10)
		}
	}
	return nil
}

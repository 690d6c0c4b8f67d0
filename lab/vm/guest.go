// The first process of a guest: this program, started by the guest's kernel.

package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RunAs runs guestMain if this process is the first one of a guest, and then does not return. A program that calls Run
// must call RunAs first in its main.
func RunAs(args []string) {
	if _, err := os.Stat("/" + markFile); os.Getpid() != 1 || args[0] != "/"+initFile || err != nil {
		return
	}
	if err := guestMain(); err != nil {
		// QEMU writes the console into a file, which the machine reads.
		fmt.Fprintln(os.Stderr, guestErrorPrefix+strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // QEMU ends instead
}

// guestErrorPrefix begins the line on the console by which a guest reports an error before it reaches the machine.
const guestErrorPrefix = "gateweigh's guest: "

// guestMain connects to the machine, carries out its order, and tells it how that ended.
func guestMain() error {
	if err := mountAll([]mount{
		{"devtmpfs", "/dev", "devtmpfs", 0, ""}, {"proc", "/proc", "proc", 0, ""}, {"sysfs", "/sys", "sysfs", 0, ""},
	}); err != nil {
		return err
	}
	if err := loadModules(); err != nil {
		return err
	}
	port, err := openPort()
	if err != nil {
		return err
	}
	w := &wire{port: port}
	if err := w.sendJSON(hello, describeGuest()); err != nil {
		return fmt.Errorf("sending hello to the machine: %w", err)
	}
	o, err := receiveOrder(w)
	if err != nil {
		return err
	}
	var end guestExit
	if err := prepareRoot(o); err != nil {
		end.Error = err.Error()
	} else if end.Code, err = runCommand(o, w); err != nil {
		end.Error = err.Error()
	}
	unix.Sync()
	if err := w.sendJSON(exit, end); err != nil {
		return fmt.Errorf("saying how the command ended: %w", err)
	}
	_, _, err = w.receive() // waits until the machine ends QEMU
	return err
}

// describeGuest is what the guest says of itself.
func describeGuest() (g guestHello) {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	g.Release = strings.TrimSpace(string(release))
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			g.CPU = strings.TrimSpace(value)
			break
		}
	}
	return g
}

// loadModules loads the kernel modules in the initrd, in the order of their names.
func loadModules() error {
	files, err := filepath.Glob("/" + moduleFolder + "/*.ko")
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = unix.InitModule(data, "")
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("loading module %s: %w: is it of this kernel?", filepath.Base(file), err)
		}
	}
	return nil
}

// portTimeout bounds the wait for the port's device to appear.
const portTimeout = time.Minute

// openPort opens the virtual serial port to the machine.
func openPort() (*os.File, error) {
	for start := time.Now(); time.Since(start) < portTimeout; time.Sleep(10 * time.Millisecond) {
		names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
		for _, file := range names {
			if name, _ := os.ReadFile(file); strings.TrimSpace(string(name)) == portName {
				if f, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(file)), os.O_RDWR, 0); err == nil {
					return f, nil
				}
			}
		}
	}
	return nil, errors.New("the port to the machine is missing")
}

// receiveOrder waits for the frame that tells the guest what to do.
func receiveOrder(w *wire) (o guestOrder, err error) {
	said, content, err := w.receive()
	if err == nil && said != order {
		err = fmt.Errorf("a frame of kind %q", said)
	}
	if err == nil {
		err = json.Unmarshal(content, &o)
	}
	if err != nil {
		return o, fmt.Errorf("waiting for the machine's order: %w", err)
	}
	return o, nil
}

// runCommand runs the command and returns its exit code. Processes that it leaves behind are killed.
func runCommand(o guestOrder, w *wire) (int, error) {
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Dir, cmd.Env = o.Dir, o.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var copying sync.WaitGroup
	for _, s := range []struct {
		file *io.Writer
		kind kind
	}{{&cmd.Stdout, stdout}, {&cmd.Stderr, stderr}} {
		r, commandEnd, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		defer commandEnd.Close()
		*s.file = commandEnd
		copying.Go(func() { _, _ = io.Copy(stream{w, s.kind}, r) }) // an error: the machine has closed the port
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting %s: %w", o.Command[0], err)
	}
	cmd.Stdout.(*os.File).Close()
	cmd.Stderr.(*os.File).Close()
	go func() { // ends with the guest
		for {
			said, content, err := w.receive()
			if err != nil {
				return
			}
			if said == signal && len(content) == 1 {
				_ = syscall.Kill(cmd.Process.Pid, syscall.Signal(content[0])) // an error: it has ended
			}
		}
	}()
	status, err := reap(cmd.Process.Pid)
	_ = syscall.Kill(-1, syscall.SIGKILL) // ends all other processes, because they may keep the pipes open
	copying.Wait()
	if status.Signaled() {
		return 128 + int(status.Signal()), err
	}
	return status.ExitStatus(), err
}

// reap waits for a process and returns its status. It also reaps all processes that have lost their parents, as the
// first process of a system must.
func reap(pid int) (status syscall.WaitStatus, err error) {
	for {
		ended, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return status, fmt.Errorf("waiting for the command: %w", err)
		case ended == pid:
			return status, nil
		}
	}
}

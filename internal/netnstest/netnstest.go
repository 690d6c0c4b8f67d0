// Package netnstest runs tests in network namespaces that disappear with the test, however it ends.
package netnstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside marks the test binary that already runs in its own namespaces.
const inside = "GATEWAY_TEST_INSIDE"

// Main runs a package's tests in their own network and mount namespaces, which end with them: the machine's interfaces,
// pins and files are not touched. prepare is a shell script that runs there first. Main does not return.
func Main(m *testing.M, prepare string) {
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	// The binary is executed again, because existing threads would stay outside of the namespaces.
	argv := append([]string{"unshare", "--net", "--mount", "--propagation", "private", "sh", "-ec", prepare +
		"\nexec \"$0\" \"$@\"", os.Args[0]}, os.Args[1:]...)
	path, err := exec.LookPath(argv[0])
	if err == nil {
		err = syscall.Exec(path, argv, append(os.Environ(), inside+"=1"))
	}
	fmt.Fprintln(os.Stderr, "running inside namespaces of its own (needs root):", err)
	os.Exit(1)
}

// Up has a function for scripts that waits until links carry packets: "up lan0 wan0". A link made before its other end
// drops packets until the kernel has noticed that end, and a bridge drops what comes from the link. That takes some
// milliseconds after ip(8) has returned, and longer on a busy machine.
const Up = `up() { for link; do until ip link show "$link" | grep -q "state UP"; do sleep 0.01; done; done; }
`

// NoIPv6 is for scripts. It switches IPv6 off on links that are made later in the namespace, so that they have no
// traffic of their own. The sysctl for all links would need the lock that guards the links of all namespaces. A process
// waits for that lock by trying again and again, which took three quarters of the CPU time of tests beside each other.
const NoIPv6 = `echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; `

// Space is an unnamed network namespace. It exists as long as its thread and the sockets and programs created there.
type Space struct {
	tid  int
	work chan func()
}

// NewSpace makes a namespace that ends with the test. Its lo is up. Without root it skips the test.
func NewSpace(t testing.TB) *Space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	s := &Space{work: make(chan func())}
	ready, done := make(chan error), make(chan struct{})
	go onThread(func() {
		defer close(done)
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopback()
		}
		s.tid = unix.Gettid()
		ready <- err
		for f := range s.work {
			f()
		}
	})
	if err := <-ready; err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { close(s.work); <-done })
	return s
}

// Name gives the namespace a name for ip(8) until the test ends or "ip netns del" takes it away.
func (s *Space) Name(t testing.TB, name string) {
	t.Helper()
	path := "/run/netns/" + name
	err := errors.Join(os.MkdirAll("/run/netns", 0o755), os.WriteFile(path, nil, 0o444))
	if err == nil {
		err = unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", s.tid), path, "", unix.MS_BIND, "")
	}
	Must(t, err)
	t.Cleanup(func() {
		unix.Unmount(path, unix.MNT_DETACH)
		os.Remove(path)
	})
}

// loopback sets lo of the thread's namespace up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// onThread runs f on a thread that ends with f. It is never the process's first thread, whose namespaces count as the
// process's own and which never ends.
func onThread(f func()) {
	runtime.LockOSThread() // never unlocked
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); onThread(f) }()
	<-done
	runtime.UnlockOSThread()
}

// In runs fn on a thread in the network namespace at a path, such as /run/netns/NAME. Sockets that fn opens belong to
// that namespace.
func In(path string, fn func() error) error {
	failed := make(chan error)
	go onThread(func() {
		ns, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(ns, unix.CLONE_NEWNET)
			unix.Close(ns)
		}
		if err == nil {
			err = fn()
		}
		failed <- err
	})
	return <-failed
}

// TID is the number of the namespace's thread, for "ip link … netns TID".
func (s *Space) TID() int { return s.tid }

// Do runs f on the namespace's thread and waits for it. Sockets that f opens belong to the namespace.
func (s *Space) Do(f func()) {
	done := make(chan struct{})
	s.work <- func() { defer close(done); f() }
	<-done
}

// Start starts a program in the namespace. It is killed when the namespace ends.
func (s *Space) Start(cmd *exec.Cmd) (err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	s.Do(func() { err = cmd.Start() })
	return err
}

// Start starts a program that is killed when the test's process ends in any way.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread that started the program ends. So a thread is kept for that: any other
		// may end earlier, for example with the data path that locked it.
		runtime.LockOSThread()
		started <- cmd.Start()
		select {}
	}()
	return <-started
}

// Background starts a program like Start. It is killed with the test, which shows what it has written if it fails.
func Background(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // children that live on may hold its output open
	Must(t, Start(cmd))
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s has written:\n%s", strings.Join(cmd.Args, " "), out.String())
		}
	})
}

// Try runs a shell script in the namespace, with additional environment, and returns its output. A script is killed
// after five minutes; on an emulated CPU some need more than one.
func (s *Space) Try(script string, env ...string) (string, error) { return try(s.Start, script, env) }

// Try is a Space's Try in the test's own namespace.
func Try(script string, env ...string) (string, error) { return try((*exec.Cmd).Start, script, env) }

func try(start func(*exec.Cmd) error, script string, env []string) (string, error) {
	var out strings.Builder
	cmd := exec.Command("sh", "-ec", script)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a group, so that its children are killed too
	if err := start(cmd); err != nil {
		return "", err
	}
	late := time.AfterFunc(5*time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) })
	err := cmd.Wait()
	late.Stop()
	return strings.TrimSpace(out.String()), err
}

// Run is Try that fails the test when the script fails.
func (s *Space) Run(t testing.TB, script string, env ...string) string {
	t.Helper()
	return succeed(t, s.Try, script, env)
}

// Run is a Space's Run in the test's own namespace.
func Run(t testing.TB, script string, env ...string) string {
	t.Helper()
	return succeed(t, Try, script, env)
}

func succeed(t testing.TB, try func(string, ...string) (string, error), script string, env []string) string {
	t.Helper()
	out, err := try(script, env...)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return out
}

// Must fails and ends the test when err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Until waits until ok returns true, for as long as Await does.
func Until(t testing.TB, label string, ok func() bool) {
	t.Helper()
	Await(t, label, func() error {
		if !ok() {
			return errors.New("it has not come")
		}
		return nil
	})
}

// patience is how long Await waits, which is long enough for a machine that runs other programs. A test shortens it.
var patience = 4 * time.Minute

// Await calls ok until it returns nil, and fails the test with its last error when patience is over. The last call
// begins after that time, so that what has come within it is seen, however long a call takes.
func Await(t testing.TB, label string, ok func() error) {
	t.Helper()
	for began, calls := time.Now(), 1; ; calls++ {
		waited := time.Since(began)
		err := ok()
		if err == nil {
			return
		}
		if waited > patience {
			t.Fatalf("waited in vain for %s, for %v and %d looks: %v", label, time.Since(began).Round(time.Second), calls, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

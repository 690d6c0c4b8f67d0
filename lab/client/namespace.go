package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace held open by a file only: it has no name on
// the machine and ends with the agent that made it.
type Namespace struct{ file *os.File }

const threadNS = "/proc/thread-self/ns/net" // the calling thread's

// NewNamespace makes an empty network namespace.
func NewNamespace() (ns *Namespace, err error) {
	err = onThread(nil, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		f, err := os.Open(threadNS)
		ns = &Namespace{f}
		return err
	})
	return ns, err
}

// NamespaceOf opens the network namespace that process pid is in.
func NamespaceOf(pid int) (*Namespace, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	return &Namespace{f}, err
}

// Own reports whether it is the namespace of this process itself.
func (n *Namespace) Own() bool {
	home, err := home()
	if err != nil {
		return true
	}
	a, err1 := n.file.Stat()
	b, err2 := home.Stat()
	return err1 != nil || err2 != nil || os.SameFile(a, b)
}

// Do runs fn on a thread inside the namespace (nil: where the caller is). Sockets made
// there stay in the namespace; goroutines started by fn do not.
func (n *Namespace) Do(fn func() error) error {
	if n == nil {
		return fn()
	}
	return onThread(n.file, fn)
}

// Close lets go of the namespace; the kernel removes it, and the interfaces in
// it, once its last socket is closed.
func (n *Namespace) Close() error { return n.file.Close() }

// home is the namespace all threads come from. Opening it anew for each of the
// sockets of a thousand clients would be a tenth of what they take.
var home = sync.OnceValues(func() (*os.File, error) { return os.Open(threadNS) })

// onThread runs fn on a locked thread that has entered ns (nil: stays), and
// brings the thread back afterwards. A thread that cannot be brought back is
// not returned to the scheduler but ended with its goroutine.
func onThread(ns *os.File, fn func() error) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := home()
		if err != nil {
			errc <- err
			return
		}
		if ns != nil {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				errc <- fmt.Errorf("entering a network namespace: %w", err)
				return
			}
		}
		err = fn()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		errc <- err
	}()
	return <-errc
}

// Sysctls keep constant what would change by itself between cells, below
// /proc/sys/net of every namespace with an endpoint: a stream that pauses between
// bursts keeps its window (RFC 2861 would halve it).
var Sysctls = map[string]string{
	"ipv4/tcp_slow_start_after_idle": "0",
	"ipv4/tcp_no_metrics_save":       "1",
	"ipv4/tcp_autocorking":           "0",
	"ipv6/conf/all/disable_ipv6":     "1",
	"ipv6/conf/default/disable_ipv6": "1",
}

// SetSysctls sets values below /proc/sys/net in the namespace of the calling thread.
func SetSysctls(values map[string]string) error {
	for key, value := range values {
		err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0)
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(key, "ipv6/") {
			continue // a kernel without IPv6 is as good as one that has it switched off
		}
		if err != nil {
			return fmt.Errorf("setting net/%s = %s: %w", key, value, err)
		}
	}
	return nil
}

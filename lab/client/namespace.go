package client

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace held open by a file only: it has no name on
// the machine and ends with the agent that made it.
type Namespace struct{ file *os.File }

// NewNamespace makes an empty network namespace with its loopback up.
func NewNamespace() (*Namespace, error) {
	var ns *Namespace
	err := onThread(nil, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		ns = &Namespace{f}
		return nil
	})
	return ns, err
}

// NamespaceOf opens the network namespace that process pid is in.
func NamespaceOf(pid int) (*Namespace, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	return &Namespace{f}, nil
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

// File is the namespace as a file, for programs started in it.
func (n *Namespace) File() *os.File { return n.file }

// Do runs fn on a thread inside the namespace. Sockets made there stay in the
// namespace; goroutines started by fn do not.
func (n *Namespace) Do(fn func() error) error { return onThread(n.file, fn) }

// Close lets go of the namespace; the kernel removes it, and the interfaces in
// it, once its last socket is closed.
func (n *Namespace) Close() error { return n.file.Close() }

// home is the namespace all threads come from. Opening it anew for each of the
// sockets of a thousand clients would be a tenth of what they take.
var home = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/thread-self/ns/net") })

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

package nat

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Check tries the rules in a network namespace that disappears at once, so that nothing of the machine's changes. It
// fails with datapath.ErrNotSupported where the kernel lacks a part. Who may not make a namespace finds nothing.
func Check(cfg Config) error {
	failed := make(chan error, 1)
	go onThrowawayThread(func() {
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			failed <- nil
			return
		}
		n, err := Open(cfg)
		if err == nil {
			err = n.Close()
		}
		failed <- err
	})
	return <-failed
}

// onThrowawayThread runs f on a thread that ends with f: never the process's first one, whose namespace counts as the
// process's own.
func onThrowawayThread(f func()) {
	runtime.LockOSThread() // never unlocked
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { defer close(done); onThrowawayThread(f) }()
	<-done
	runtime.UnlockOSThread()
}

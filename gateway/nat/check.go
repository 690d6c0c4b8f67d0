package nat

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Check tries the rules in a new network namespace, which disappears afterwards, so that nothing changes on the
// machine. It fails with datapath.ErrNotSupported where the kernel lacks a part of nftables. Without the right to make
// a namespace it returns nil.
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

// onThrowawayThread runs f on a thread that ends with f. It never uses the process's first thread, whose namespace
// counts as that of the process.
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

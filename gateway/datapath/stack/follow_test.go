package stack

import (
	"sync/atomic"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// TestErrorsEndNoFollowing: a follower that cannot receive, because the kernel has no memory, looks
// again instead of taking silence for no change. No kernel can be made to fail here, so the
// connection is one that fails.
func TestErrorsEndNoFollowing(t *testing.T) {
	var failed atomic.Int32
	broken := nltest.Dial(func([]netlink.Message) ([]netlink.Message, error) {
		failed.Add(1)
		return nil, unix.ENOMEM
	})
	f := &Follower{routes: broken, ended: make(chan struct{})}
	looked := make(chan struct{})
	f.running.Go(func() {
		f.follow(broken, func() {
			select {
			case looked <- struct{}{}:
			case <-f.ended:
			}
		})
	})
	for range 2 {
		<-looked
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if failed.Load() < 2 {
		t.Errorf("received %d times", failed.Load())
	}
}

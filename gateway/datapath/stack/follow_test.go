package stack

import (
	"errors"
	"fmt"
	"strings"
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

// TestOneLookForATransaction: a large change of rules, of which the kernel sends many messages, is looked at once more
// when it is complete, and not once for each message.
func TestOneLookForATransaction(t *testing.T) {
	f, err := Follow()
	must(t, err)
	left, complete, peeked := 0, make(chan struct{}), make(chan error)
	must(t, f.Run(Changes{Routing: func() {}, Rules: func() {
		if left++; left == 1 {
			<-complete
			return
		}
		rc, err := f.rules.SyscallConn()
		must(t, err)
		var queued error
		rc.Control(func(fd uintptr) {
			_, _, queued = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		})
		select {
		case peeked <- queued:
		case <-f.ended:
		}
	}}))
	var elements strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&elements, "10.9.%d.%d, ", i/256, i%256)
	}
	sh(t, "nft -f - <<END\ntable ip big { set s { type ipv4_addr; elements = { "+elements.String()+"}; }; }\nEND")
	defer sh(t, "nft delete table ip big")
	close(complete)
	if queued := <-peeked; !errors.Is(queued, unix.EAGAIN) {
		t.Errorf("at the second look messages of the same change are left: %v", queued)
	}
	must(t, f.Close())
}

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

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestFollowAfterErrors: a follower that cannot receive, because the kernel has no memory, looks again instead of
// taking silence for no change. No kernel can be made to fail here, so the connection is one that fails.
func TestFollowAfterErrors(t *testing.T) {
	var failed atomic.Int32
	broken := nltest.Dial(func([]netlink.Message) ([]netlink.Message, error) {
		failed.Add(1)
		return nil, unix.ENOMEM
	})
	f := &Follower{routes: broken, ended: make(chan struct{})}
	looked := make(chan struct{})
	f.running.Go(func() {
		f.receive(broken, func() {
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

// TestTransactionReportedOnce: a large change of rules, of which the kernel sends many messages, causes one more look
// when it is complete, and not one for each message.
func TestTransactionReportedOnce(t *testing.T) {
	f, err := Follow()
	must(t, err)
	complete := make(chan struct{})
	var looks atomic.Int32
	must(t, f.Run(Changes{Routing: func() {}, Rules: func() { looks.Add(1); <-complete }}))
	var elements strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&elements, "10.9.%d.%d, ", i/256, i%256)
	}
	sh(t, "nft -f - <<END\ntable ip big { set s { type ipv4_addr; elements = { "+elements.String()+"}; }; }\nEND")
	defer sh(t, "nft delete table ip big")
	close(complete)
	rc, err := f.rules.SyscallConn()
	must(t, err)
	netnstest.Await(t, "all messages to be read", func() error {
		var queued error
		err := rc.Control(func(fd uintptr) { _, _, queued = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_DONTWAIT) })
		if err == nil && (looks.Load() == 0 || !errors.Is(queued, unix.EAGAIN)) {
			err = fmt.Errorf("%d looks, and the queue has: %v", looks.Load(), queued)
		}
		return err
	})
	if n := looks.Load(); n > 3 {
		t.Errorf("rules were looked at %d times", n)
	}
	must(t, f.Close())
}

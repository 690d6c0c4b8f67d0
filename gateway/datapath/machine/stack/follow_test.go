package stack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/net/bpf"
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
		f.receive(broken, nil, func() {
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

// TestIgnoredTables: changes of tables that are ignored are not reported, unless another table changes with them.
func TestIgnoredTables(t *testing.T) {
	f, err := Follow()
	must(t, err)
	defer f.Close()
	looks := make(chan struct{}, 100)
	must(t, f.Run(Changes{Routing: func() {}, Rules: func() { looks <- struct{}{} },
		Ignored: func(family uint8, table string) bool { return family == unix.NFPROTO_INET && table == "other" }}))
	defer sh(t, "nft flush ruleset")
	with := func(table string) string {
		return fmt.Sprintf("add table inet %[1]s; add chain inet %[1]s c { type filter hook forward priority 0; }; add rule "+
			"inet %[1]s c ip saddr 192.0.2.1 drop; ", table)
	}
	for _, c := range []struct {
		script  string
		reports bool
	}{
		{with("other"), false},
		{"add set inet other s { type ipv4_addr; elements = { 10.9.0.1, 10.9.0.2 }; }", false},
		{"add table ip other", true},
		{"flush table inet other", false},
		{with("other") + with("own"), true},
		{"delete table inet own", true},
		{"delete table inet other", false},
		{with("own") + with("other"), true},
		{"flush ruleset", true},
	} {
		sh(t, "nft '"+c.script+"'")
		// The kernel reports changes in their order: what the first one caused is there before the second one's.
		if !c.reports {
			sh(t, "nft add table ip last")
			<-looks
			sh(t, "nft delete table ip last")
			<-looks
			select {
			case <-looks:
				t.Errorf("%s is reported", c.script)
			default:
			}
			continue
		}
		<-looks
	}
}

// TestNeighboursIgnored: changes of neighbours pass the filter but for interfaces at which they are ignored, of classes
// never, and others always.
func TestNeighboursIgnored(t *testing.T) {
	for _, ignored := range [][]int{{5}, {5, 6}, {5, 6, 7, 800}, make([]int, 64)} {
		vm, err := bpf.NewVM(neighboursAt(ignored...))
		must(t, err)
		for kind, isNeighbour := range map[uint16]bool{unix.RTM_NEWNEIGH: true, unix.RTM_DELNEIGH: true,
			unix.RTM_NEWROUTE: false, unix.RTM_NEWLINK: false, unix.RTM_NEWTCLASS: true, unix.RTM_DELTCLASS: true} {
			for _, index := range []int{5, 6, 7, 8, 800} {
				message := make([]byte, 64)
				binary.NativeEndian.PutUint16(message[messageType:], kind)
				binary.NativeEndian.PutUint32(message[ndIndex:], uint32(index))
				got, err := vm.Run(message)
				must(t, err)
				isClass := kind == unix.RTM_NEWTCLASS || kind == unix.RTM_DELTCLASS
				if dropped := isNeighbour && (slices.Contains(ignored, index) || isClass); (got == 0) != dropped {
					t.Errorf("ignoring %v: message %d at %d is dropped: %v", ignored, kind, index, got == 0)
				}
			}
		}
	}
}

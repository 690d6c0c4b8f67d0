// A test of a client whose hardware address an earlier lab still uses.

package client

import (
	"context"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestFormerClientLeaves: a client takes the hardware address of one of an earlier lab, whose namespace the kernel has
// not yet removed from the interface, as soon as it is free.
func TestFormerClientLeaves(t *testing.T) {
	here := netnstest.NewSpace(t)
	here.Run(t, `ip link add fcdown type veth peer name fcfar; ip link set fcdown up
for i in former later; do ip link add link fcdown name $i address 02:00:00:00:07:01 type macvlan mode private; done
ip link set former up`)
	var h *netlink.Handle
	here.Do(func() { h, _ = netlink.NewHandle() })
	defer h.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.Canceled)
	if err := SetUp(h, "later"); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("beside the former client: %v", err)
	}
	if err := setUpWhenFree(ctx, h, "later"); err != context.Canceled {
		t.Errorf("a lab that ends waits on: %v", err)
	}
	taken := make(chan error, 1)
	go func() { taken <- setUpWhenFree(t.Context(), h, "later") }()
	here.Run(t, "ip link del former")
	if err := <-taken; err != nil {
		t.Errorf("once the former client has left: %v", err)
	}
}

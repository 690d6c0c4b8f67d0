// Tests of the priority of threads that poll links. build makes a lab of network namespaces on this machine
// (lab_test.go).

package topology_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/topology"
)

// TestUrgentLinks: with Urgent, the threads that poll links have real-time priority on every host that is not metered;
// on routers only with UrgentRouters.
func TestUrgentLinks(t *testing.T) {
	for _, routers := range []bool{false, true} {
		urgentLinks(t, build(t, topology.Spec{Urgent: true, UrgentRouters: routers}), routers)
	}
}

// urgentLinks looks at the threads that poll the links of a lab.
func urgentLinks(t *testing.T, lab *topology.Lab, routers bool) {
	t.Helper()
	for _, h := range lab.Hosts {
		threads, err := meter.ThreadsNamed(h.Ifs)
		if err != nil || len(threads) != len(h.Ifs) {
			t.Fatalf("%s: %v, %v", h.Name, threads, err)
		}
		want := uint32(unix.SCHED_FIFO)
		if h.Metered && !routers {
			want = unix.SCHED_NORMAL
		}
		for link, tids := range threads {
			attr, err := unix.SchedGetAttr(tids[0], 0)
			if err != nil || attr.Policy != want {
				t.Errorf("%s of %s is polled with policy %d (%v), want %d", link, h.Name, attr.Policy, err, want)
			}
		}
	}
}

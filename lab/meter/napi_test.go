package meter

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestNAPIThreadsOfNamespace: two namespaces have an interface of the same name. NAPIThreads tells their polling
// threads apart. ThreadsNamed finds both.
func TestNAPIThreadsOfNamespace(t *testing.T) {
	const threaded = `ip link add lan9 type veth peer name p0; ip link set lan9 up; ip link set p0 up
ethtool -K lan9 gro on; echo 1 >/sys/class/net/lan9/threaded`
	inside := func(s *netnstest.Space) (found []int) {
		t.Helper()
		s.Run(t, "unshare --mount sh -ec 'mount -t sysfs none /sys; "+threaded+"'")
		s.Do(func() {
			threads, err := NAPIThreads([]string{"lan9", "p0"})
			if err != nil || len(threads["p0"]) > 0 {
				t.Errorf("%v, %v", threads, err)
			}
			found = threads["lan9"]
		})
		return found
	}
	first := inside(netnstest.NewSpace(t))
	second := inside(netnstest.NewSpace(t))
	if _, err := threadsOfNamespace(); err != nil {
		t.Skipf("the kernel does not tell of its polling threads (Linux 6.8): %v", err)
	}
	named, err := ThreadsNamed([]string{"lan9"})
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range [][]int{first, second} {
		if len(own) != 1 || !slices.Contains(named["lan9"], own[0]) {
			t.Errorf("threads %v, by name %v", own, named["lan9"])
		}
	}
	if slices.Equal(first, second) {
		t.Errorf("both namespaces have the threads %v", first)
	}
}

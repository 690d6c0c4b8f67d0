package netnstest

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// HasTCX reports whether the kernel attaches eBPF programs to interfaces by links (tcx). On kernels before 6.6 programs
// are filters of the queueing discipline clsact instead.
func HasTCX() bool {
	const lo = 1 // the index of lo in every namespace
	_, err := link.QueryPrograms(link.QueryOptions{Target: lo, Attach: ebpf.AttachTCXIngress})
	return err == nil
}

// NeedTCX skips a test on kernels before 6.6.
func NeedTCX(t testing.TB) {
	t.Helper()
	if !HasTCX() {
		t.Skip("the kernel lacks tcx (Linux 6.6)")
	}
}

package netnstest

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// HasTCX reports whether programs attach to interfaces by links. On kernels before 6.6 they are
// filters of clsact.
func HasTCX() bool {
	const lo = 1 // in every namespace
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

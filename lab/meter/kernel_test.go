package meter

import (
	"slices"
	"testing"
)

// TestKernelThreads: readKernel lists the kernel threads that Sampler.Kernel names. It goes on to list one that has
// ended.
func TestKernelThreads(t *testing.T) {
	s := &Sampler{Kernel: []string{"ksoftirqd"}}
	var first, then Sample
	if err := s.readKernel(&first); err != nil || len(first.Processes) == 0 {
		t.Fatalf("%v, %v: each CPU has a ksoftirqd", first.Processes, err)
	}
	for _, p := range first.Processes {
		if p.Name != "ksoftirqd" || p.Parent != kthreadd || p.RunNs < 0 {
			t.Errorf("%+v", p)
		}
	}
	gone := Process{PID: 1 << 30, Start: 1, Name: "ksoftirqd", RunNs: 7}
	s.kernel[gone.id()] = gone
	if err := s.readKernel(&then); err != nil || !slices.Contains(then.Processes, gone) ||
		len(then.Processes) != len(first.Processes)+1 {
		t.Errorf("%v, %v: want those of before and one that is gone", then.Processes, err)
	}
	var none Sample
	if err := new(Sampler).readKernel(&none); err != nil || none.Processes != nil {
		t.Errorf("%v, %v: nobody asked for any", none.Processes, err)
	}
}

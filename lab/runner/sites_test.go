package runner

import (
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/lab/result"
)

// TestKernelsThatDiffer: a run on machines with different kernels has one note that names the kernels.
func TestKernelsThatDiffer(t *testing.T) {
	const debian, other = "6.1.0-37-amd64 #1 SMP", "6.18.44 #2 SMP"
	for _, c := range []struct {
		router string
		want   []string
	}{
		{debian, nil},
		{other, []string{"The machines have different kernels: 6.1.0-37-amd64 on client and server; 6.18.44 on router."}},
	} {
		s := &Session{env: result.Environment{Machines: map[string]result.Site{
			"client": {Kernel: debian}, "router": {Kernel: c.router}, "server": {Kernel: debian}}}}
		s.noteSites()
		s.noteSites()
		if !slices.Equal(s.env.Notes, c.want) {
			t.Errorf("notes %q, want %q", s.env.Notes, c.want)
		}
	}
}

// Tests of sinks (benchmarks). newWire makes a generator, a bridge and a monitor with links; start runs a sink, a
// program that captures frames and counts them, as a process (main_test.go).

package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// BenchmarkSinks reports the CPU time of the sink's process for a frame, without the kernel's work until the frame is
// in the sink's buffer. ns/op is the time of the sender. wire.send sends frames to the interface s0, where the sink
// that start has started captures (main_test.go).
func BenchmarkSinks(b *testing.B) {
	wire := newWire(b)
	for _, cfg := range []Config{
		{Kind: "recv"}, {Kind: "recv", Snap: 68}, {Kind: "mmap"}, {Kind: "mmap", Snap: 68}, {Kind: "mmap", Work: WorkCopy},
		{Kind: "mmap", Work: WorkGzip}, {Kind: "xdp"}, {Kind: "ebpf"},
	} {
		for _, size := range []string{"60", "1514"} {
			cfg.Interface = "s0"
			if cfg.Kind != "ebpf" {
				cfg.BufferKiB = 64 << 10
			}
			b.Run(fmt.Sprintf("%s,snap=%d,%s/%s", cfg.Kind, cfg.Snap, cfg.Work, size), func(b *testing.B) {
				sizes, err := frames.Named(size)
				if err != nil {
					b.Fatal(err)
				}
				running := start(b, wire.monitor, cfg)
				before := cpuNs(b, running.Process.Pid)
				b.ResetTimer()
				wire.send(b, frames.Config{Sizes: sizes, Count: int64(b.N), Schedule: frames.Schedule{PacketsPerSecond: 200_000}})
				b.StopTimer()
				after := before
				labtest.Await(b, "the sink to rest", func() bool {
					last := after
					after = cpuNs(b, running.Process.Pid)
					return after == last
				})
				counts := running.endAndCount(b)
				b.ReportMetric(float64(after-before)/float64(counts.Frames), "cpu-ns/frame")
				b.ReportMetric(100*float64(counts.Dropped)/float64(counts.Frames+counts.Dropped), "%lost")
			})
		}
	}
}

// cpuNs returns the CPU time of a process in ns.
func cpuNs(b *testing.B, pid int) (sum int64) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		b.Fatalf("process %d: %v", pid, err)
	}
	for _, task := range tasks {
		var ns int64
		if text, err := os.ReadFile(task); err == nil {
			_, _ = fmt.Sscan(string(text), &ns)
		}
		sum += ns
	}
	return sum
}

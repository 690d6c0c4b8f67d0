// Tests of a sink whose ring is full. newWire makes a generator, a bridge and a monitor with links; start runs a sink,
// a program that captures frames and counts them, as a process (main_test.go).

package sink

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// requeued returns how often an interface of the bridge could not send a frame and put it back into its queue. A wire
// (main_test.go) is a network: a generator sends to a bridge, and the bridge through out0 to s0 of a monitor.
func (w wire) requeued(t testing.TB, name string) (n int64) {
	t.Helper()
	var out []byte
	var err error
	w.bridge.Do(func() { out, err = exec.Command("tc", "-s", "-j", "qdisc", "show", "dev", name).Output() })
	var queues []struct{ Requeues int64 }
	if err == nil {
		err = json.Unmarshal(out, &queues)
	}
	if err != nil {
		t.Fatalf("asking for the queue of %s: %v: %s", name, err, out)
	}
	for _, q := range queues {
		n += q.Requeues
	}
	return n
}

// fill keeps the monitor from taking frames, so that the link from out0 to s0 fills up, until the returned function
// empty is called. queue is the queueing discipline of out0, as tc takes it.
func (w wire) fill(t *testing.T, queue string) (empty func()) {
	t.Helper()
	w.bridge.Run(t, "ethtool -K out0 tso off; tc qdisc replace dev out0 root "+queue)
	// The polling thread gets CPU time only when nothing else runs on its CPU; in the end it gets its normal priority.
	const thread = `pid=$(ps -eo pid=,comm= | awk '$2 ~ "^napi/s0-" {print $1}' | sort -n | tail -1); `
	w.monitor.Run(t,
		`ethtool -K s0 gro on; unshare -m sh -ec "mount -t sysfs none /sys; echo 1 >/sys/class/net/s0/threaded"
`+thread+`chrt -i -p 0 "$pid"; taskset -pc 0 "$pid" >/dev/null`)
	busy := exec.Command("taskset", "-c", "0", "sh", "-c", "ulimit -t 20; while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = busy.Process.Kill(), busy.Wait() })
	return func() {
		_ = busy.Process.Kill()
		w.monitor.Run(t, thread+`chrt -o -p 0 "$pid"`)
	}
}

// TestFullRing: when the ring at the link's other end is full, the kernel puts frames back into the queue and sends
// them again. Each kind of sink counts them once: the frame that comes back belongs to the other end, in another
// namespace, where packet sockets ignore it. With both ends in one namespace they would count it twice.
func TestFullRing(t *testing.T) {
	const n = 6000
	wire := newWire(t)
	empty := wire.fill(t, "pfifo limit 20000")
	var running []*process
	for _, cfg := range []Config{
		{Kind: "recv", BufferKiB: 32 << 10}, {Kind: "mmap", BufferKiB: 32 << 10}, {Kind: "ebpf"}} {
		cfg.Interface = "out0"
		running = append(running, start(t, wire.bridge, cfg))
	}
	sizes := wire.generate(t, mixedSizes(t, n, 0))
	labtest.Await(t, "the ring to be full", func() bool { return wire.requeued(t, "out0") > 0 })
	empty()
	labtest.Await(t, "the ring to be empty", func() bool {
		return counter64(t, wire.bridge, "out0", "tx_packets")+counter64(t, wire.bridge, "out0", "tx_dropped") == n
	})
	if totalFrames(sizes) != n {
		t.Fatalf("%d frames were sent, want %d", totalFrames(sizes), n)
	}
	for _, program := range running {
		if c := program.endAndCount(t); c.Frames+c.Dropped != n {
			t.Errorf("%s: %d counted, %d lost, of %d frames; the queue took %d back", program.name, c.Frames, c.Dropped, n,
				wire.requeued(t, "out0"))
		}
	}
}

// Tests of the device softflowd. newCaptureLab makes a lab in which a device on the router captures the frames that the
// server sends (frames_test.go).

package dut

import (
	"strings"
	"testing"
)

// TestSoftflowdCounts: the frames of the last block, which is not full, are counted as waiting; all others as taken or
// dropped.
func TestSoftflowdCounts(t *testing.T) {
	t.Parallel()
	skipUnsupported(t, NewSoftflowd(Capture{}))
	lab := newCaptureLab(t)
	const blocks, maxBlockFrames = 3, 2000 // blocks of the second device's buffer; frames that fit into a block
	device := lab.capture(t, "softflowd", Capture{Programs: 2, Snap: 96, BufferKiB: 8192, Filter: "simple"})
	lab.send(t, 5000, "imix")
	for i, counted := range lab.finish(t, device) {
		if counted.Frames+counted.Waiting != lab.sent || counted.Frames == 0 || counted.Waiting == 0 ||
			counted.Waiting > maxBlockFrames || counted.Dropped != 0 ||
			counted.Ended != "" {
			t.Errorf("program %d: %+v of %d frames", i, counted, lab.sent)
		}
	}
	device = lab.capture(t, "softflowd", Capture{Programs: 2, BufferKiB: blocks * 256})
	lab.router.must(t, "kill -STOP $(pidof softflowd)")
	lab.send(t, 9000, "60")
	lab.router.must(t, "kill -CONT $(pidof softflowd)")
	for i, counted := range lab.finish(t, device) {
		if counted.Frames+counted.Dropped+counted.Waiting != lab.sent || counted.Frames == 0 ||
			counted.Frames > blocks*maxBlockFrames || counted.Dropped == 0 {
			t.Errorf("program %d, stopped: %+v of %d frames", i, counted, lab.sent)
		}
	}
	if left := lab.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
}

// TestSoftflowdStatistics: the counts are read from softflowd's statistics. Ignored packets count as taken too. Frames
// that libpcap received and softflowd neither took nor dropped were waiting.
func TestSoftflowdStatistics(t *testing.T) {
	const text = `softflowd[8175]: Accumulated statistics since 2026-11-23T13:57:39 UTC:
Number of active flows: 0
Packets processed: 8544
Fragments: 0
Ignored packets: 3 (3 non-IP, 0 too short)
Flows expired: 3 (0 forced)
Flows exported: 3 (3 records) in 3 packets (0 failures)
Packets received by libpcap: 9000
Packets dropped by libpcap: 7
Packets dropped by interface: 0
`
	if counted, err := softflowdCounts(text); err != nil || counted.Frames != 8547 || counted.Dropped != 7 ||
		counted.Waiting != 446 {
		t.Errorf("%+v, %v", counted, err)
	}
	if counted, err := softflowdCounts(strings.ReplaceAll(text, "Ignored", "Other")); err == nil {
		t.Errorf("without a number: %+v", counted)
	}
}

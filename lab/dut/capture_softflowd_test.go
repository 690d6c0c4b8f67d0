package dut

import (
	"strings"
	"testing"
)

// TestSoftflowdCounts: the frames of the block that is not full wait; all others are taken or dropped.
func TestSoftflowdCounts(t *testing.T) {
	t.Parallel()
	skipUnsupported(t, NewSoftflowd(Capture{}))
	l := newCaptureLab(t)
	const blocks, atMost = 3, 2000 // blocks of a buffer; frames that a block has room for
	d := l.capture(t, "softflowd", Capture{Programs: 2, Snap: 96, BufferKiB: 8192, Filter: "simple"})
	l.send(t, 5000, "imix")
	for i, c := range l.finish(t, d) {
		if c.Frames+c.Waiting != l.sent || c.Frames == 0 || c.Waiting == 0 || c.Waiting > atMost || c.Dropped != 0 ||
			c.Ended != "" {
			t.Errorf("program %d: %+v of %d frames", i, c, l.sent)
		}
	}
	d = l.capture(t, "softflowd", Capture{Programs: 2, BufferKiB: blocks * 256})
	l.router.must(t, "kill -STOP $(pidof softflowd)")
	l.send(t, 9000, "60")
	l.router.must(t, "kill -CONT $(pidof softflowd)")
	for i, c := range l.finish(t, d) {
		if c.Frames+c.Dropped+c.Waiting != l.sent || c.Frames == 0 || c.Frames > blocks*atMost || c.Dropped == 0 {
			t.Errorf("program %d, stopped: %+v of %d frames", i, c, l.sent)
		}
	}
	if left := l.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
}

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
	if c, err := softflowdCounts(text); err != nil || c.Frames != 8547 || c.Dropped != 7 || c.Waiting != 446 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := softflowdCounts(strings.ReplaceAll(text, "Ignored", "Other")); err == nil {
		t.Errorf("without a number: %+v", c)
	}
}

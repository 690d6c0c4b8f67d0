// Tests of the device Suricata. newCaptureLab makes a lab in which a device on the router captures the frames that the
// server sends (frames_test.go).

package dut

import (
	"errors"
	"strings"
	"testing"
)

// TestSuricataCounts: each program counts every frame, and a program that was stopped counts the frames it lost.
func TestSuricataCounts(t *testing.T) {
	t.Parallel()
	if err := checkSupported(t, NewSuricata(Capture{})); errors.Is(err, ErrNotSupported) {
		t.Attr("not-run", strings.Join(strings.Fields(err.Error()), " ")) // Debian 12 has no package of it
		return
	}
	lab := newCaptureLab(t)
	offloads := lab.router.must(t, `ethtool -k "$1"`, lab.env.Capture)
	device := lab.capture(t, "suricata", Capture{Programs: 2, BufferKiB: 2048, Filter: "complex"})
	if after := lab.router.must(t, `ethtool -k "$1"`, lab.env.Capture); after != offloads {
		t.Errorf("suricata has changed the interface's offloads:\n%s", after)
	}
	lab.send(t, 1000, "imix")
	for i, counted := range lab.finish(t, device) {
		if counted.Frames != lab.sent || counted.Dropped != 0 || counted.Waiting != 0 || counted.Ended != "" {
			t.Errorf("program %d: %+v of %d frames", i, counted, lab.sent)
		}
	}
	lab.start(t, device)
	lab.router.must(t, "kill -STOP $(cat $1/capture/suricata/pid)", lab.env.Scratch)
	lab.send(t, 5000, "1514")
	lab.router.must(t, "kill -CONT $(cat $1/capture/suricata/pid)", lab.env.Scratch)
	got := lab.finish(t, device)
	if counted := got[0]; counted.Frames+counted.Dropped != lab.sent || counted.Frames == 0 || counted.Dropped == 0 {
		t.Errorf("stopped: %+v of %d frames", counted, lab.sent)
	}
	if left := lab.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
}

// TestSuricataStatistics: the counts are read from suricata's table of counters. Frames of the kernel's count that were
// neither decoded nor dropped were waiting.
func TestSuricataStatistics(t *testing.T) {
	const text = `
Counter                                       | TM Name                   | Value
------------------------------------------------------------------------------------
capture.kernel_packets                        | Total                     | 20
capture.kernel_drops                          | Total                     | 3
decoder.pkts                                  | Total                     | 16
decoder.bytes                                 | Total                     | 1960
`
	if counted, err := suricataCounts(text); err != nil || counted.Frames != 16 || counted.Dropped != 3 ||
		counted.Waiting != 1 {
		t.Errorf("%+v, %v", counted, err)
	}
	if counted, err := suricataCounts(text[:strings.Index(text, "capture")]); err != nil || counted.Frames != 0 {
		t.Errorf("without a frame: %+v, %v", counted, err)
	}
	if counted, err := suricataCounts("W: something"); err == nil {
		t.Errorf("without statistics: %+v", counted)
	}
}

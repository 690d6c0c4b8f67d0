package dut

import (
	"errors"
	"strings"
	"testing"
)

// TestSuricataCounts: every frame, also with several programs, and what it dropped while it was stopped.
func TestSuricataCounts(t *testing.T) {
	t.Parallel()
	if err := checkSupported(t, NewSuricata(Capture{})); errors.Is(err, ErrNotSupported) {
		t.Attr("not-run", strings.Join(strings.Fields(err.Error()), " ")) // Debian 12 has no package of it
		return
	}
	l := newCaptureLab(t)
	offloads := l.router.must(t, `ethtool -k "$1"`, l.env.Capture)
	d := l.capture(t, "suricata", Capture{Programs: 2, BufferKiB: 2048, Filter: "complex"})
	if after := l.router.must(t, `ethtool -k "$1"`, l.env.Capture); after != offloads {
		t.Errorf("suricata has changed the interface's offloads:\n%s", after)
	}
	l.send(t, 1000, "imix")
	for i, c := range l.finish(t, d) {
		if c.Frames != l.sent || c.Dropped != 0 || c.Waiting != 0 || c.Ended != "" {
			t.Errorf("program %d: %+v of %d frames", i, c, l.sent)
		}
	}
	l.start(t, d)
	l.router.must(t, "kill -STOP $(cat $1/capture/suricata/pid)", l.env.Scratch)
	l.send(t, 5000, "1514")
	l.router.must(t, "kill -CONT $(cat $1/capture/suricata/pid)", l.env.Scratch)
	got := l.finish(t, d)
	if c := got[0]; c.Frames+c.Dropped != l.sent || c.Frames == 0 || c.Dropped == 0 {
		t.Errorf("stopped: %+v of %d frames", c, l.sent)
	}
	if left := l.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
}

func TestSuricataStatistics(t *testing.T) {
	const text = `
Counter                                       | TM Name                   | Value
------------------------------------------------------------------------------------
capture.kernel_packets                        | Total                     | 20
capture.kernel_drops                          | Total                     | 3
decoder.pkts                                  | Total                     | 16
decoder.bytes                                 | Total                     | 1960
`
	if c, err := suricataCounts(text); err != nil || c.Frames != 16 || c.Dropped != 3 || c.Waiting != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := suricataCounts(text[:strings.Index(text, "capture")]); err != nil || c.Frames != 0 {
		t.Errorf("without a frame: %+v, %v", c, err)
	}
	if c, err := suricataCounts("W: something"); err == nil {
		t.Errorf("without statistics: %+v", c)
	}
}

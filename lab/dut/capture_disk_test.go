package dut

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// TestTcpdumpToDisk: the file has every frame and its size, and nothing of it is left. A disk that is full, or no disk,
// is an error before frames are sent or after.
func TestTcpdumpToDisk(t *testing.T) {
	t.Parallel()
	l := newCaptureLab(t)
	d := newTcpdumpDisk(Capture{Snap: 68, Programs: 2}, 0, leastRoom)
	l.start(t, d)
	if files := l.router.must(t, `ls "$1" | grep pcap || :`, agent.Disk); files != "" {
		t.Errorf("files have names: %s", files)
	}
	l.send(t, 1200, "imix")
	sizes := map[int]int64{60: 700, 590: 400, 1514: 100}
	want := []Captured{
		{Program: "tcpdump", Frames: l.sent, Sizes: sizes}, {Program: "tcpdump 2", Frames: l.sent, Sizes: sizes}}
	if got := l.finish(t, d); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	// A file system of 1 MiB that is not in memory by its type, which is all that is looked at.
	l.router.must(t, `mkdir /tmp/small; mount -t tmpfs -o size=1m none /tmp/small; mkdir /tmp/small/upper /tmp/small/work
mount -t overlay -o lowerdir="$1",upperdir=/tmp/small/upper,workdir=/tmp/small/work none "$1"`, agent.Disk)
	small, full, memory := newTcpdumpDisk(Capture{}, 0, 0), NewTcpdumpDisk(Capture{}), NewTcpdumpDisk(Capture{})
	l.start(t, small)
	l.send(t, 3000, "1514")
	if got, err := small.Finish(t.Context(), l.env); err == nil || !strings.Contains(err.Error(), "disk full") ||
		got[0].Frames != Unknown {
		t.Errorf("with 1 MiB: %+v, %v", got, err)
	}
	if err := full.Start(t.Context(), l.env); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("without room: %v", err)
	}
	l.router.must(t, `mount -t tmpfs none "$1"`, agent.Disk)
	if err := memory.Start(t.Context(), l.env); err == nil || !strings.Contains(err.Error(), "in memory") {
		t.Errorf("in memory: %v", err)
	}
	for _, d := range []Capturing{d, small, full, memory} {
		if err := d.Stop(t.Context(), l.env); err != nil {
			t.Error(err)
		}
	}
	if left := l.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
}

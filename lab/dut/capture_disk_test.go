// A test of tcpdump that writes to a disk. newCaptureLab makes a lab in which a device on the router captures the
// frames that the server sends (frames_test.go).

package dut

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// TestTcpdumpToDisk: the device writes whole captures to the disk. Each file has every frame in its size, and no file
// is left. A full disk is an error, at the start or after the capture. A file system in memory is an error at the
// start. lab.send sends frames of a mix past the programs; must runs a shell script on the router.
func TestTcpdumpToDisk(t *testing.T) {
	t.Parallel()
	lab := newCaptureLab(t)
	device := newTcpdumpDisk(Capture{Snap: 68, Programs: 2}, 0, minFileRoom)
	lab.start(t, device)
	if files := lab.router.must(t, `ls "$1" | grep pcap || :`, agent.Disk); files != "" {
		t.Errorf("files have names: %s", files)
	}
	lab.send(t, 1200, "imix")
	sizes := map[int]int64{60: 700, 590: 400, 1514: 100}
	want := []Captured{
		{Program: "tcpdump", Frames: lab.sent, Sizes: sizes}, {Program: "tcpdump 2", Frames: lab.sent, Sizes: sizes}}
	if got := lab.finish(t, device); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	// A file system of 1 MiB. It lies in memory, but its type is overlay, and the device checks only the type.
	lab.router.must(t, `mkdir /tmp/small; mount -t tmpfs -o size=1m none /tmp/small; mkdir /tmp/small/upper /tmp/small/work
mount -t overlay -o lowerdir="$1",upperdir=/tmp/small/upper,workdir=/tmp/small/work none "$1"`, agent.Disk)
	small, full, memory := newTcpdumpDisk(Capture{}, 0, 0), NewTcpdumpDisk(Capture{}), NewTcpdumpDisk(Capture{})
	lab.start(t, small)
	lab.send(t, 3000, "1514")
	if got, err := small.Finish(t.Context(), lab.env); err == nil || !strings.Contains(err.Error(), "disk full") ||
		got[0].Frames != Unknown {
		t.Errorf("with 1 MiB: %+v, %v", got, err)
	}
	if err := full.Start(t.Context(), lab.env); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("without room: %v", err)
	}
	lab.router.must(t, `mount -t tmpfs none "$1"`, agent.Disk)
	if err := memory.Start(t.Context(), lab.env); err == nil || !strings.Contains(err.Error(), "in memory") {
		t.Errorf("in memory: %v", err)
	}
	for _, device := range []Capturing{device, small, full, memory} {
		if err := device.Stop(t.Context(), lab.env); err != nil {
			t.Error(err)
		}
	}
	if left := lab.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
}

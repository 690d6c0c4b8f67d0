package dut

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// A sink is a small capture program of the lab that only counts the frames it gets: through recvmsg (recv), a
// memory-mapped ring (mmap), an eBPF program or AF_XDP. The device "ids" is a sink that also looks into the frames.
// captureLab sends frames past them: see there.

// TestSinksCountEveryFrame: sinks of several kinds count the same frames at the same time, also two programs of one
// device, and with filters.
func TestSinksCountEveryFrame(t *testing.T) {
	t.Parallel()
	skipUnsupported(t, NewSink("ebpf", Capture{}))
	lab := newCaptureLab(t)
	const plenty = 8 << 10 // KiB, room for all frames
	want := map[string]int{"sink-recv": 2, "sink-mmap": 1, "ids": 1, "sink-ebpf": 1}
	devices := map[string]Capturing{
		"sink-recv": lab.capture(
			t, "sink-recv", Capture{Snap: 96, BufferKiB: plenty, Filter: "complex", Programs: 2, Work: WorkCopy}),
		"sink-mmap": lab.capture(t, "sink-mmap", Capture{BufferKiB: plenty, Filter: "simple"}),
		"ids":       lab.capture(t, "ids", Capture{Snap: 60, BufferKiB: plenty}),
		"sink-ebpf": lab.capture(t, "sink-ebpf", Capture{}),
	}
	lab.send(t, 1200, "imix")
	for name, device := range devices {
		list := lab.finish(t, device)
		if len(list) != want[name] {
			t.Errorf("%s: %d programs, want %d", name, len(list), want[name])
		}
		for _, counted := range list {
			if !strings.HasPrefix(counted.Program, name) || counted.Frames != lab.sent || counted.Dropped != 0 ||
				counted.Ended != "" ||
				counted.Sizes[60] != 700 || counted.Sizes[590] != 400 || counted.Sizes[1514] != 100 {
				t.Errorf("%s: %+v", name, counted)
			}
		}
	}
	if left := lab.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
	checkXDPSink(t, lab)
}

// checkXDPSink checks that an AF_XDP sink, which takes frames from the kernel, refuses to start on a router, and that
// it counts frames when this check is left out.
func checkXDPSink(t *testing.T, lab *captureLab) {
	device := NewSink("xdp", Capture{BufferKiB: 8 << 10})
	if err := checkSupported(t, device); errors.Is(err, ErrNotSupported) {
		t.Log(err)
		return
	}
	if err := device.Start(t.Context(), lab.env); !errors.Is(err, ErrNotSupported) ||
		!strings.Contains(err.Error(), "tap") ||
		!device.Traits().TakesFrames {
		t.Errorf("on a router: %v", err)
	}
	if err := device.capturePrograms.Start(t.Context(), lab.env); err != nil {
		t.Fatal(err)
	}
	lab.sent = 0
	lab.send(t, 1200, "imix")
	if got := lab.finish(t, device); len(got) != 1 || got[0].Frames != lab.sent || got[0].Dropped != 0 {
		t.Errorf("%+v, want %d frames", got, lab.sent)
	}
	if err := device.Stop(t.Context(), lab.env); err != nil {
		t.Error(err)
	}
}

// TestSettingsThatSinksRefuse: the error comes before a lab is built, and names the device to choose instead.
func TestSettingsThatSinksRefuse(t *testing.T) {
	for _, test := range []struct {
		name     string
		settings Capture
	}{
		{"sink-ebpf", Capture{Snap: 68}}, {"sink-ebpf", Capture{BufferKiB: 64}}, {"sink-ebpf", Capture{Filter: "simple"}},
		{"sink-ebpf", Capture{Work: WorkCopy}},
		{"sink-xdp", Capture{Filter: "simple"}}, {"sink-xdp", Capture{Programs: 2}},
	} {
		if _, err := NewCapture(test.name, test.settings); err == nil || !strings.Contains(err.Error(), test.name) ||
			!strings.Contains(err.Error(), "choose sink-mmap") {
			t.Errorf("%s, %+v: %v", test.name, test.settings, err)
		}
	}
	all := Capture{Snap: 68, BufferKiB: 64, Filter: "simple", Work: WorkGzip, Programs: 3}
	for _, name := range []string{"sink-recv", "sink-mmap", "ids"} {
		device, err := NewCapture(name, all)
		if err != nil {
			t.Error(err)
		} else if !slices.Contains(device.Traits().Needs, tcpdumpNeed) {
			t.Errorf("%s looks for frames with programs that tcpdump makes, and needs %+v", name, device.Traits().Needs)
		}
	}
}

// TestSinkCounts: the counts are read from a sink's output, where other lines may stand around them. -1 stands for an
// error.
func TestSinkCounts(t *testing.T) {
	for text, frames := range map[string]int64{
		"ready\n{\"frames\":3,\"dropped\":1,\"if_dropped\":0,\"sizes\":{\"60\":3}}\n":      3,
		"ready\nnoise\n{\"frames\":4,\"dropped\":0,\"sizes\":{\"60\":4}}\nmore to say {\n": 4,
		"ready\n":                -1,
		"":                       -1,
		"ready\n{\"frames\":3,":  -1,
		"ready\n{\"frames\":\"a": -1,
	} {
		if counted, err := sinkCounts(text); (err != nil) != (frames < 0) ||
			err == nil && (counted.Frames != frames || counted.Sizes[60] != frames) {
			t.Errorf("%q: %+v, %v", text, counted, err)
		}
	}
}

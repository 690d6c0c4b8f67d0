package dut

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestSinksCountEveryFrame: sinks of all kinds capture the same frames, also several of one device and with filters.
func TestSinksCountEveryFrame(t *testing.T) {
	t.Parallel()
	skipUnsupported(t, NewSink("ebpf", Capture{}))
	l := newCaptureLab(t)
	const plenty = 8 << 10 // KiB: for all frames
	want := map[string]int{"sink-recv": 2, "sink-mmap": 1, "ids": 1, "sink-ebpf": 1}
	devices := map[string]Capturing{
		"sink-recv": l.capture(
			t, "sink-recv", Capture{Snap: 96, BufferKiB: plenty, Filter: "complex", Programs: 2, Work: WorkCopy}),
		"sink-mmap": l.capture(t, "sink-mmap", Capture{BufferKiB: plenty, Filter: "simple"}),
		"ids":       l.capture(t, "ids", Capture{Snap: 60, BufferKiB: plenty}),
		"sink-ebpf": l.capture(t, "sink-ebpf", Capture{}),
	}
	l.send(t, 1200, "imix")
	for name, d := range devices {
		list := l.finish(t, d)
		if len(list) != want[name] {
			t.Errorf("%s: %d programs, want %d", name, len(list), want[name])
		}
		for _, c := range list {
			if !strings.HasPrefix(c.Program, name) || c.Frames != l.sent || c.Dropped != 0 || c.Ended != "" ||
				c.Sizes[60] != 700 || c.Sizes[590] != 400 || c.Sizes[1514] != 100 {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	if left := l.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
	takesFrames(t, l)
}

// takesFrames: a sink that takes frames away refuses a router. Where they end it counts them.
func takesFrames(t *testing.T, l *captureLab) {
	d := NewSink("xdp", Capture{BufferKiB: 8 << 10})
	if err := checkSupported(t, d); errors.Is(err, ErrNotSupported) {
		t.Log(err)
		return
	}
	if err := d.Start(t.Context(), l.env); !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "tap") ||
		!d.Traits().TakesFrames {
		t.Errorf("on a router: %v", err)
	}
	if err := d.capturePrograms.Start(t.Context(), l.env); err != nil {
		t.Fatal(err)
	}
	l.sent = 0
	l.send(t, 1200, "imix")
	if got := l.finish(t, d); len(got) != 1 || got[0].Frames != l.sent || got[0].Dropped != 0 {
		t.Errorf("%+v, want %d frames", got, l.sent)
	}
	if err := d.Stop(t.Context(), l.env); err != nil {
		t.Error(err)
	}
}

// TestSettingsThatSinksRefuse: before a lab is built, with what to choose instead.
func TestSettingsThatSinksRefuse(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings Capture
	}{
		{"sink-ebpf", Capture{Snap: 68}}, {"sink-ebpf", Capture{BufferKiB: 64}}, {"sink-ebpf", Capture{Filter: "simple"}},
		{"sink-ebpf", Capture{Work: WorkCopy}},
		{"sink-xdp", Capture{Filter: "simple"}}, {"sink-xdp", Capture{Programs: 2}},
	} {
		if _, err := NewCapture(c.name, c.settings); err == nil || !strings.Contains(err.Error(), c.name) ||
			!strings.Contains(err.Error(), "choose sink-mmap") {
			t.Errorf("%s, %+v: %v", c.name, c.settings, err)
		}
	}
	all := Capture{Snap: 68, BufferKiB: 64, Filter: "simple", Work: WorkGzip, Programs: 3}
	for _, name := range []string{"sink-recv", "sink-mmap", "ids"} {
		d, err := NewCapture(name, all)
		if err != nil {
			t.Error(err)
		} else if !slices.Contains(d.Traits().Needs, tcpdumpNeed) {
			t.Errorf("%s looks for frames with programs that tcpdump makes, and needs %+v", name, d.Traits().Needs)
		}
	}
}

func TestSinkCounts(t *testing.T) {
	for text, frames := range map[string]int64{
		"ready\n{\"frames\":3,\"dropped\":1,\"if_dropped\":0,\"sizes\":{\"60\":3}}\n":      3,
		"ready\nnoise\n{\"frames\":4,\"dropped\":0,\"sizes\":{\"60\":4}}\nmore to say {\n": 4,
		"ready\n":                -1,
		"":                       -1,
		"ready\n{\"frames\":3,":  -1,
		"ready\n{\"frames\":\"a": -1,
	} {
		if c, err := sinkCounts(text); (err != nil) != (frames < 0) ||
			err == nil && (c.Frames != frames || c.Sizes[60] != frames) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

// Tests of the device tcpdump. newCaptureLab makes a lab in which a device on the router captures the frames that the
// server sends (frames_test.go).

package dut

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTcpdumpCountsEveryFrame: tcpdump counts every frame, also two programs of one device, and with a filter.
func TestTcpdumpCountsEveryFrame(t *testing.T) {
	t.Parallel()
	lab := newCaptureLab(t)
	for name, capture := range map[string]Capture{
		"tcpdump":    {Snap: 96, BufferKiB: 4096, Filter: "complex"},
		"tcpdump-68": {Programs: 2},
	} {
		device := lab.capture(t, name, capture)
		want := []Captured{{Program: "tcpdump"}, {Program: "tcpdump 2"}}[:max(1, capture.Programs)]
		lab.send(t, 1000, "imix")
		for i := range want {
			want[i].Frames = lab.sent
		}
		if got := lab.finish(t, device); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if left := lab.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
}

// TestTcpdumpSaysWhatItDropped: a stopped tcpdump with the smallest buffer of libpcap counts the frames that it lost.
func TestTcpdumpSaysWhatItDropped(t *testing.T) {
	t.Parallel()
	lab := newCaptureLab(t)
	device := lab.capture(t, "tcpdump", Capture{BufferKiB: 1})
	lab.router.must(t, "kill -STOP $(pidof tcpdump)")
	lab.send(t, 1000, "1514")
	lab.router.must(t, "kill -CONT $(pidof tcpdump)")
	got := lab.finish(t, device)[0]
	// A block of 256 KiB has room for 157 frames with their headers. Frames taken and dropped add up to those received.
	if got.Frames+got.Dropped != lab.sent || got.Waiting != 0 || got.Frames == 0 || got.Frames > 200 {
		t.Errorf("%+v of %d frames", got, lab.sent)
	}
}

// TestTcpdumpThatIgnoresSignals: SIGHUP ends one tcpdump, as in study 2 (section 3). The other one ignores all signals
// but SIGKILL.
func TestTcpdumpThatIgnoresSignals(t *testing.T) {
	t.Parallel()
	lab := newCaptureLab(t)
	wrapped := func(name, traps string, grace time.Duration) Tcpdump {
		device := NewTcpdump(68, Capture{})
		inner := device.argv
		device.name, device.grace = name, grace
		device.argv = func(env Env, capture Capture, dir string) []string {
			script := traps + `; "$@" & echo $! >"$0/pid"; while :; do wait; sleep 60; done`
			return slices.Concat([]string{"sh", "-c", script, dir}, inner(env, capture, dir))
		}
		lab.start(t, device)
		return device
	}
	var got []Captured
	var late, deaf Tcpdump
	// On a busy machine the program may need more time to end after a signal, so the test tries longer ones.
	for grace := 500 * time.Millisecond; grace < 2*time.Minute; grace *= 4 {
		late = wrapped("late", `trap "" TERM INT; trap "exit 0" HUP`, grace)
		deaf = wrapped("deaf", `trap "" TERM HUP INT`, 50*time.Millisecond)
		lab.send(t, 100, "60")
		got = slices.Concat(lab.finish(t, late), lab.finish(t, deaf))
		if !strings.Contains(got[0].Ended, "killed") {
			break
		}
	}
	for i, want := range []Captured{
		{Program: "late", Frames: 100, Ended: "SIGHUP"},
		{Program: "deaf", Frames: Unknown, Dropped: Unknown, Ended: "killed"},
	} {
		if counted := got[i]; counted.Program != want.Program || counted.Frames != want.Frames ||
			counted.Dropped != want.Dropped ||
			!strings.Contains(counted.Ended, want.Ended) {
			t.Errorf("%+v, want %+v", counted, want)
		}
	}
	if left := lab.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
	for _, device := range []Tcpdump{late, deaf} {
		if err := device.Stop(t.Context(), lab.env); err != nil {
			t.Error(err)
		}
	}
}

// TestTcpdumpThatIsGone: Finish returns an error when tcpdump has ended before, and the error says how.
func TestTcpdumpThatIsGone(t *testing.T) {
	t.Parallel()
	lab := newCaptureLab(t)
	device := lab.capture(t, "tcpdump-68", Capture{Programs: 2, CPUs: []int{0}})
	if on := lab.router.must(t, "taskset -pc $(cat $1/capture/tcpdump/pid)", lab.env.Scratch); !strings.HasSuffix(
		on, ": 0\n") {
		t.Errorf("a program bound to CPU 0: %s", on)
	}
	lab.router.must(t, "kill $(cat $1/capture/tcpdump-2/pid)", lab.env.Scratch)
	lab.send(t, 10, "60")
	got, err := device.Finish(t.Context(), lab.env)
	if err == nil || !strings.Contains(err.Error(), "tcpdump 2 ended while it captured, exit status 0") || len(got) != 2 ||
		got[0].Frames != lab.sent || got[1].Frames != Unknown {
		t.Errorf("%+v, %v", got, err)
	}
	device = lab.capture(t, "tcpdump", Capture{Filter: "simple"})
	lab.router.must(t, "ip link del $1", lab.env.Capture)
	if got, err = device.Finish(t.Context(), lab.env); err == nil ||
		!strings.Contains(err.Error(), "disappeared") && !strings.Contains(err.Error(), "down") {
		t.Errorf("without the interface: %+v, %v", got, err)
	}
	if err := device.Start(t.Context(), lab.env); err == nil || !strings.Contains(err.Error(), "No such device") {
		t.Errorf("it starts without an interface: %v", err)
	}
}

// TestTcpdumpStatistics: the counts are read from the lines that tcpdump prints at its end. nil stands for an error.
func TestTcpdumpStatistics(t *testing.T) {
	for text, want := range map[string][]int64{ // captured, dropped
		"12 packets captured\n14 packets received by filter\n2 packets dropped by kernel\n": {
			12, 2},
		"1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n": {
			1, 0},
		"1 packet captured\n2 packets received by filter\n1 packet dropped by kernel\n1 packet dropped by interface\n": {
			1, 1},
		"tcpdump: 3 packets captured, 3 packets received by filter, 0 packets dropped by kernel\n":              nil,
		"tcpdump: listening on r1, link-type EN10MB (Ethernet), snapshot length 68 bytes\n5 packets captured\n": nil,
		"99999999999999999999 packets captured\n0 packets received by filter\n0 packets dropped by kernel\n":    nil,
		"tcpdump: 3 packets captured, 3 packets received by filter, 0 packets dropped by kernel\n4 packets captured\n4 " +
			"packets received by filter\n0 packets dropped by kernel\n": {4, 0},
	} {
		counted, err := tcpdumpCounts(text)
		if (err != nil) != (want == nil) || err == nil && !slices.Equal([]int64{counted.Frames, counted.Dropped}, want) {
			t.Errorf("%q: %+v, %v; want %d", text, counted, err, want)
		}
	}
}

func FuzzTcpdumpCounts(f *testing.F) {
	f.Add("1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n")
	f.Fuzz(func(t *testing.T, text string) {
		if counted, err := tcpdumpCounts(text); err == nil && (counted.Frames < 0 || counted.Dropped < 0) {
			t.Errorf("%q: %+v", text, counted)
		}
	})
}

// TestSettingsThatDoNotFit: settings that a device refuses are an error of NewCapture, before a lab is built. It names
// the device, and another one to choose.
func TestSettingsThatDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		settings Capture
		says     string
	}{
		"tcpdump":      {Capture{Work: WorkGzip}, "ids"},
		"ids":          {Capture{Work: WorkNone}, "sink-mmap"},
		"tcpdump-68":   {Capture{Snap: 1500}, "choose tcpdump"},
		"tcpdump-1500": {Capture{Snap: 68}, "1500"},
	} {
		if _, err := NewCapture(name, test.settings); err == nil || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), test.says) {
			t.Errorf("%s, %+v: %v", name, test.settings, err)
		}
	}
	if _, err := NewCapture("tcpdump-68", Capture{Snap: 68, Work: WorkNone}); err != nil {
		t.Error(err)
	}
}

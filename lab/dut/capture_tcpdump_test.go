package dut

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTcpdumpCountsEveryFrame: two runs of one device, with different numbers of frames.
func TestTcpdumpCountsEveryFrame(t *testing.T) {
	t.Parallel()
	l := newCaptureLab(t)
	for name, capture := range map[string]Capture{
		"tcpdump":    {Snap: 96, BufferKiB: 4096, Filter: "complex"},
		"tcpdump-68": {Programs: 2},
	} {
		d := l.capture(t, name, capture)
		want := []Captured{{Program: "tcpdump"}, {Program: "tcpdump 2"}}[:max(1, capture.Programs)]
		l.send(t, 1000, "imix")
		for i := range want {
			want[i].Frames = l.sent
		}
		if got := l.finish(t, d); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if left := l.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
}

// TestTcpdumpSaysWhatItDropped: a tcpdump that is stopped fills the least buffer that libpcap makes of -B.
func TestTcpdumpSaysWhatItDropped(t *testing.T) {
	t.Parallel()
	l := newCaptureLab(t)
	d := l.capture(t, "tcpdump", Capture{BufferKiB: 1})
	l.router.must(t, "kill -STOP $(pidof tcpdump)")
	l.send(t, 1000, "1514")
	l.router.must(t, "kill -CONT $(pidof tcpdump)")
	got := l.finish(t, d)[0]
	// The block of 256 KiB has room for 157 frames with their headers.
	// Nothing waits: what the kernel received includes what it dropped.
	if got.Frames+got.Dropped != l.sent || got.Waiting != 0 || got.Frames == 0 || got.Frames > 200 {
		t.Errorf("%+v of %d frames", got, l.sent)
	}
}

// TestTcpdumpThatIgnoresSignals: one that SIGHUP ends, as study 2 (3) had it, and one that no polite signal ends.
func TestTcpdumpThatIgnoresSignals(t *testing.T) {
	t.Parallel()
	l := newCaptureLab(t)
	wrapped := func(name, traps string, grace time.Duration) Tcpdump {
		d := NewTcpdump(68, Capture{})
		inner := d.argv
		d.name, d.grace = name, grace
		d.argv = func(env Env, capture Capture, dir string) []string {
			script := traps + `; "$@" & echo $! >"$0/pid"; while :; do wait; sleep 60; done`
			return slices.Concat([]string{"sh", "-c", script, dir}, inner(env, capture, dir))
		}
		l.start(t, d)
		return d
	}
	var got []Captured
	var late, deaf Tcpdump
	// The time that each signal is given grows until a busy machine has let the program end in it.
	for grace := 500 * time.Millisecond; grace < 2*time.Minute; grace *= 4 {
		late = wrapped("late", `trap "" TERM INT; trap "exit 0" HUP`, grace)
		deaf = wrapped("deaf", `trap "" TERM HUP INT`, 50*time.Millisecond)
		l.send(t, 100, "60")
		got = slices.Concat(l.finish(t, late), l.finish(t, deaf))
		if !strings.Contains(got[0].Ended, "killed") {
			break
		}
	}
	for i, want := range []Captured{
		{Program: "late", Frames: 100, Ended: "SIGHUP"},
		{Program: "deaf", Frames: Unknown, Dropped: Unknown, Ended: "killed"},
	} {
		if c := got[i]; c.Program != want.Program || c.Frames != want.Frames || c.Dropped != want.Dropped ||
			!strings.Contains(c.Ended, want.Ended) {
			t.Errorf("%+v, want %+v", c, want)
		}
	}
	if left := l.router.processes(t); len(left) != 0 {
		t.Errorf("processes left: %q", left)
	}
	for _, d := range []Tcpdump{late, deaf} {
		if err := d.Stop(t.Context(), l.env); err != nil {
			t.Error(err)
		}
	}
}

// TestTcpdumpThatIsGone: a trial without its tcpdump is an error that says how it ended.
func TestTcpdumpThatIsGone(t *testing.T) {
	t.Parallel()
	l := newCaptureLab(t)
	d := l.capture(t, "tcpdump-68", Capture{Programs: 2, CPUs: []int{0}})
	if on := l.router.must(t, "taskset -pc $(cat $1/capture/tcpdump/pid)", l.env.Scratch); !strings.HasSuffix(
		on, ": 0\n") {
		t.Errorf("a program bound to CPU 0: %s", on)
	}
	l.router.must(t, "kill $(cat $1/capture/tcpdump-2/pid)", l.env.Scratch)
	l.send(t, 10, "60")
	got, err := d.Finish(t.Context(), l.env)
	if err == nil || !strings.Contains(err.Error(), "tcpdump 2 ended while it captured, exit status 0") || len(got) != 2 ||
		got[0].Frames != l.sent || got[1].Frames != Unknown {
		t.Errorf("%+v, %v", got, err)
	}
	d = l.capture(t, "tcpdump", Capture{Filter: "simple"})
	l.router.must(t, "ip link del $1", l.env.Capture)
	if got, err = d.Finish(t.Context(), l.env); err == nil ||
		!strings.Contains(err.Error(), "disappeared") && !strings.Contains(err.Error(), "down") {
		t.Errorf("without the interface: %+v, %v", got, err)
	}
	if err := d.Start(t.Context(), l.env); err == nil || !strings.Contains(err.Error(), "No such device") {
		t.Errorf("it starts without an interface: %v", err)
	}
}

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
		c, err := tcpdumpCounts(text)
		if (err != nil) != (want == nil) || err == nil && !slices.Equal([]int64{c.Frames, c.Dropped}, want) {
			t.Errorf("%q: %+v, %v; want %d", text, c, err, want)
		}
	}
}

func FuzzTcpdumpCounts(f *testing.F) {
	f.Add("1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n")
	f.Fuzz(func(t *testing.T, text string) {
		if c, err := tcpdumpCounts(text); err == nil && (c.Frames < 0 || c.Dropped < 0) {
			t.Errorf("%q: %+v", text, c)
		}
	})
}

// TestSettingsThatDoNotFit are refused before a lab is built.
func TestSettingsThatDoNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		settings Capture
		says     string
	}{
		"tcpdump":      {Capture{Work: WorkGzip}, "ids"},
		"ids":          {Capture{Work: WorkNone}, "sink-mmap"},
		"tcpdump-68":   {Capture{Snap: 1500}, "choose tcpdump"},
		"tcpdump-1500": {Capture{Snap: 68}, "1500"},
	} {
		if _, err := NewCapture(name, c.settings); err == nil || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s, %+v: %v", name, c.settings, err)
		}
	}
	if _, err := NewCapture("tcpdump-68", Capture{Snap: 68, Work: WorkNone}); err != nil {
		t.Error(err)
	}
}

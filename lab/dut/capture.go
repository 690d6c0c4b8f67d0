package dut

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Capturing is a device that captures the frames on the interface Env.Capture of the host Env.On. Start returns once
// the device captures. Stop ends the device and discards the counts; Finish ends the device and returns the counts.
type Capturing interface {
	DUT
	// Drain waits until the programs report that they have taken all frames that the kernel holds for them. It gives up
	// after a time limit, and when a program has ended; Finish then reports the frames that are missing. Finish calls
	// Drain for programs that were not drained.
	Drain(ctx context.Context, env Env)
	// Finish ends the programs by signals, waits until all have ended, and returns what each counted since Start. Start
	// may be called again afterwards.
	Finish(ctx context.Context, env Env) ([]Captured, error)
}

// NonCapturing is a device without a capture program: the baseline for the capturing devices. A measure measures it
// once for all settings of captures, because it ignores them.
type NonCapturing interface {
	Capturing
	CapturesNothing()
}

// CapturesNothing reports whether the device of that name is NonCapturing.
func CapturesNothing(name string) bool {
	device, err := NewCapture(name, Capture{})
	_, empty := device.(NonCapturing)
	return err == nil && empty
}

// Captures reports whether the device of that name is Capturing. "no-capture" is.
func Captures(name string) bool { return slices.Contains(capturing(), name) }

// Capture holds the settings of a capture. A zero value is the program's default.
type Capture struct {
	Snap      int    // snap length: bytes kept of a frame, from its Ethernet header on
	BufferKiB int    // size of the kernel's buffer for each program
	Filter    string // a name of Filters; empty: no filter
	Work      string // WorkNone, WorkCopy or WorkGzip, done for every frame
	Programs  int    // number of programs that capture the same frames at the same time; 0: one
	CPUs      []int  // CPUs of the programs; empty: the host's
}

// Work that a program does for each frame that it captures, as study 2 (5.3) simulates an analysis.
const (
	WorkNone = "none"   // no work, also for the program "ids", which has some by default
	WorkCopy = "memcpy" // copies the kept bytes of the frame (Capture.Snap)
	WorkGzip = "gzip"   // compresses the kept bytes
)

// Captured is what one program counted from its start to its end.
type Captured struct {
	Program string `json:"program"` // "tcpdump", "tcpdump 2"
	// Frames is the number of frames that the program took; Unknown when it ended without printing it.
	Frames int64 `json:"frames"`
	// Dropped is the number of frames that were lost because the kernel's buffer was full; Unknown when the program
	// does not report it.
	Dropped int64 `json:"dropped"`
	// Waiting is the number of frames that were still in the kernel's buffer at the end: neither taken nor lost.
	// libpcap hands over blocks of 256 KiB.
	Waiting int64 `json:"waiting,omitempty"`
	// Sizes is the number of frames for each frame length in bytes without FCS; nil where the program counts no lengths.
	Sizes map[int]int64 `json:"sizes,omitempty"`
	// Ended says how the program ended when SIGTERM did not end it; empty when SIGTERM did.
	Ended string `json:"ended,omitempty"`
}

// Unknown stands for a count that a program did not report.
const Unknown = -1

// captures lists the capturing devices by their names in experiments, in the order in which messages list them. Adding
// one takes a file and a line here.
var captures = []struct {
	name      string
	construct func(Capture) Capturing
}{
	{"no-capture", func(Capture) Capturing { return NoCapture{} }},
	{"tcpdump", func(settings Capture) Capturing { return NewTcpdump(0, settings) }},
	{"tcpdump-68", func(settings Capture) Capturing { return NewTcpdump(68, settings) }},
	{"tcpdump-1500", func(settings Capture) Capturing { return NewTcpdump(1500, settings) }},
	{"tcpdump-disk", func(settings Capture) Capturing { return NewTcpdumpDisk(settings) }},
	{"softflowd", func(settings Capture) Capturing { return NewSoftflowd(settings) }},
	{"suricata", func(settings Capture) Capturing { return NewSuricata(settings) }},
	{"ids", func(settings Capture) Capturing { return NewIDS(settings) }},
	{"sink-recv", func(settings Capture) Capturing { return NewSink("recv", settings) }},
	{"sink-mmap", func(settings Capture) Capturing { return NewSink("mmap", settings) }},
	{"sink-xdp", func(settings Capture) Capturing { return NewSink("xdp", settings) }},
	{"sink-ebpf", func(settings Capture) Capturing { return NewSink("ebpf", settings) }},
}

// capturing lists the names of the devices that capture, in the order of their table.
func capturing() (names []string) {
	for _, row := range captures {
		names = append(names, row.name)
	}
	return names
}

// NewCapture makes a capturing device. It returns an error for an unknown name, which lists the known ones, and for
// settings that the device does not support, which says what to choose instead.
func NewCapture(name string, capture Capture) (Capturing, error) {
	if i := slices.Index(capturing(), name); i >= 0 {
		device := captures[i].construct(capture)
		if limited, ok := device.(interface{ checkSettings() error }); ok {
			if err := limited.checkSettings(); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		return device, nil
	}
	return nil, fmt.Errorf("%q captures nothing: there is %s", name, strings.Join(capturing(), ", "))
}

// NoCapture captures nothing: the host forwards or receives frames without a capture program.
type NoCapture struct{}

// Traits says that no program is needed.
func (NoCapture) Traits() Traits { return Traits{About: "no capture", Families: bothFamilies} }

// CapturesNothing marks NoCapture as NonCapturing.
func (NoCapture) CapturesNothing() {}

// Start, Drain, Finish and Stop have nothing to do.
func (NoCapture) Start(context.Context, Env) error                { return nil }
func (NoCapture) Drain(context.Context, Env)                      {}
func (NoCapture) Finish(context.Context, Env) ([]Captured, error) { return nil, nil }
func (NoCapture) Stop(context.Context, Env) error                 { return nil }

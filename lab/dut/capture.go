package dut

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Capturing is a device that captures the frames which pass its host's interface Env.Capture. Start begins
// the capturing, and Stop ends it whatever was counted.
type Capturing interface {
	DUT
	// Drain waits until the programs have taken all frames that the kernel holds for them, as far as they can tell. It
	// also returns when they do not, or have ended: Finish reports that. Finish drains programs that were not drained.
	Drain(ctx context.Context, env Env)
	// Finish ends the capturing in order, waits until every program of it has ended, and returns what each
	// counted since Start. After it Start may be called again.
	Finish(ctx context.Context, env Env) ([]Captured, error)
}

// NonCapturing is a device that captures nothing: the capturing's settings change nothing for it, and it is measured
// once for all of them.
type NonCapturing interface {
	Capturing
	CapturesNothing()
}

// CapturesNothing reports whether a device captures nothing.
func CapturesNothing(name string) bool {
	d, err := NewCapture(name, Capture{})
	_, idles := d.(NonCapturing)
	return err == nil && idles
}

// Captures reports whether a device can be asked to capture, also one that captures nothing.
func Captures(name string) bool { return slices.Contains(capturing(), name) }

// Capture says how frames are captured. Zero values leave it to the program.
type Capture struct {
	Snap      int    // bytes that are kept of a frame, from its Ethernet header on
	BufferKiB int    // of the kernel's buffer, for each program
	Filter    string // a name of Filters; empty: none
	Work      string // WorkNone, WorkCopy or WorkGzip, done for every frame
	Programs  int    // that capture the same frames at the same time; 0: one
	CPUs      []int  // the programs run on these CPUs; empty: on the host's
}

// Work that a program does for each frame that it captures, as study 2 (5.3) simulates an analysis.
const (
	WorkNone = "none"   // also where a program has work of its own
	WorkCopy = "memcpy" // copies what is kept of the frame
	WorkGzip = "gzip"   // compresses it
)

// Captured is what one program counted from its start to its end.
type Captured struct {
	Program string `json:"program"` // "tcpdump", "tcpdump 2"
	// Frames are those that the program took; Unknown where it ended without a word.
	Frames int64 `json:"frames"`
	// Dropped are frames which the program knows to have been lost for lack of room; Unknown: it does not say.
	Dropped int64 `json:"dropped"`
	// Waiting are frames that the kernel has for the program and the program has not got, and knows of: neither
	// taken nor lost. libpcap hands over blocks of 256 KiB.
	Waiting int64 `json:"waiting,omitempty"`
	// Sizes are the frames by their bytes without FCS; nil where the program does not tell sizes apart.
	Sizes map[int]int64 `json:"sizes,omitempty"`
	// Ended is how the program ended where SIGTERM did not end it, empty otherwise.
	Ended string `json:"ended,omitempty"`
}

// Unknown is a count that a program did not say.
const Unknown = -1

// captures is every device that captures, by the name in experiments, in the order of lists. Adding one is a file and a
// line here.
var captures = []struct {
	name      string
	construct func(Capture) Capturing
}{
	{"no-capture", func(Capture) Capturing { return NoCapture{} }},
	{"tcpdump", func(how Capture) Capturing { return NewTcpdump(0, how) }},
	{"tcpdump-68", func(how Capture) Capturing { return NewTcpdump(68, how) }},
	{"tcpdump-1500", func(how Capture) Capturing { return NewTcpdump(1500, how) }},
	{"tcpdump-disk", func(how Capture) Capturing { return NewTcpdumpDisk(how) }},
	{"softflowd", func(how Capture) Capturing { return NewSoftflowd(how) }},
	{"suricata", func(how Capture) Capturing { return NewSuricata(how) }},
	{"ids", func(how Capture) Capturing { return NewIDS(how) }},
	{"sink-recv", func(how Capture) Capturing { return NewSink("recv", how) }},
	{"sink-mmap", func(how Capture) Capturing { return NewSink("mmap", how) }},
	{"sink-xdp", func(how Capture) Capturing { return NewSink("xdp", how) }},
	{"sink-ebpf", func(how Capture) Capturing { return NewSink("ebpf", how) }},
}

// capturing lists the names of the devices that capture, in the order of their table.
func capturing() (names []string) {
	for _, c := range captures {
		names = append(names, c.name)
	}
	return names
}

// NewCapture makes a capturing device. An unknown name is an error that lists the known ones; settings that the
// device cannot follow are one that says which and what to choose.
func NewCapture(name string, capture Capture) (Capturing, error) {
	if i := slices.Index(capturing(), name); i >= 0 {
		d := captures[i].construct(capture)
		if limited, ok := d.(interface{ fits() error }); ok {
			if err := limited.fits(); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		return d, nil
	}
	return nil, fmt.Errorf("%q captures nothing: there is %s", name, strings.Join(capturing(), ", "))
}

// NoCapture captures nothing: the host forwards or receives frames, and no program looks at them.
type NoCapture struct{}

// Traits: nothing is needed, and nothing is captured.
func (NoCapture) Traits() Traits { return Traits{About: "no capture"} }

// CapturesNothing is empty: there is no program.
func (NoCapture) CapturesNothing() {}

// Start, Drain, Finish and Stop have nothing to do.
func (NoCapture) Start(context.Context, Env) error                { return nil }
func (NoCapture) Drain(context.Context, Env)                      {}
func (NoCapture) Finish(context.Context, Env) ([]Captured, error) { return nil, nil }
func (NoCapture) Stop(context.Context, Env) error                 { return nil }

package dut

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Capturing is a device that captures the frames which pass its host's interface Env.Capture. Start begins
// the capturing, and Stop ends it whatever was counted.
type Capturing interface {
	DUT
	// Finish ends the capturing in order, waits until every program of it has ended, and returns what each
	// counted since Start. After it Start may be called again.
	Finish(ctx context.Context, env Env) ([]Captured, error)
}

// Partial is a capturing device for which some settings of Capture have no meaning.
type Partial interface {
	Capturing
	// Ignores lists keys of experiments: "snap_lengths", "buffers_kib", "filters", "works", "programs", "cpus". An
	// experiment that sweeps one of them measures the device once.
	Ignores() []string
}

// Takes reports whether a key of experiments has a meaning for a device that captures.
func Takes(name, key string) bool {
	d, err := NewCapture(name, Capture{})
	if err != nil {
		return false
	}
	p, partial := d.(Partial)
	return !partial || !slices.Contains(p.Ignores(), key)
}

// Capture says how frames are captured. Zero values leave it to the program.
type Capture struct {
	Snap      int    // bytes that are kept of a frame, from its Ethernet header on
	BufferKiB int    // of the kernel's buffer, for each program
	Filter    string // a name of Filters; empty: none
	Work      string // WorkCopy or WorkGzip, done for every frame; empty: none
	Programs  int    // that capture the same frames at the same time; 0: one
	CPUs      []int  // the programs run on these CPUs; empty: on the host's
}

// Work that a program does for each frame that it captures, as study 2 (5.3) simulates an analysis.
const (
	WorkCopy = "memcpy" // copies what is kept of the frame
	WorkGzip = "gzip"   // compresses it
)

// Captured is what one program counted from its start to its end.
type Captured struct {
	Program string `json:"program"` // "tcpdump", "tcpdump 2"
	Frames  int64  `json:"frames"`  // that the program took
	// Dropped are frames which the program knows to have been lost for lack of room; -1: it does not say.
	Dropped int64 `json:"dropped"`
	// Sizes are the frames by their bytes without FCS; nil where the program does not tell sizes apart.
	Sizes map[int]int64 `json:"sizes,omitempty"`
	// Ended is how the program ended where SIGTERM did not end it, empty otherwise.
	Ended string `json:"ended,omitempty"`
}

// Lagging is a capturing device whose programs look at frames some time after they came, although nothing keeps them from it.
type Lagging interface {
	Capturing
	// Lag is the most of that time: before Finish, so much is to pass after the last frame.
	Lag() time.Duration
}

// captures is every device that captures, by the name in experiments. Adding one is a file and a line here.
var captures = map[string]func(Capture) Capturing{
	"no-capture": func(Capture) Capturing { return NoCapture{} },
}

// NewCapture makes a capturing device. An unknown name is an error that lists the known ones.
func NewCapture(name string, how Capture) (Capturing, error) {
	if construct, ok := captures[name]; ok {
		return construct(how), nil
	}
	return nil, fmt.Errorf("%q captures nothing: there is %s", name, strings.Join(slices.Sorted(maps.Keys(captures)), ", "))
}

// NoCapture captures nothing: the host forwards or receives frames, and no program looks at them.
type NoCapture struct{}

// Traits: nothing is needed, and nothing is captured.
func (NoCapture) Traits() Traits { return Traits{About: "no capture"} }

// Ignores is everything: there is no program.
func (NoCapture) Ignores() []string {
	return []string{"snap_lengths", "buffers_kib", "filters", "works", "programs", "cpus"}
}

// Start, Finish and Stop have nothing to do.
func (NoCapture) Start(context.Context, Env) error                { return nil }
func (NoCapture) Finish(context.Context, Env) ([]Captured, error) { return nil, nil }
func (NoCapture) Stop(context.Context, Env) error                 { return nil }

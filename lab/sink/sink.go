// Package sink captures the frames of an interface by one of four kinds of interface that Linux offers, and counts them
// by size. Each kind does as little as possible: it is the baseline for the cost of capture programs of its kind.
//
//	recv   a packet socket, one system call a frame
//	mmap   a packet socket with a ring that the kernel fills by blocks (TPACKET_V3), as libpcap has
//	xdp    an AF_XDP socket, which takes the frames before the network stack gets them
//	ebpf   programs at tc that count in the kernel; nothing is copied
//
// One OS thread takes the frames. It does nothing else and allocates no memory. Linux only.
package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gateweigh/gateweigh/internal/near"
)

// Config says how frames are captured. A zero value is the kind's default.
type Config struct {
	Kind      string `json:"kind"`                 // a name of Kinds
	Interface string `json:"interface"`            // in the network namespace of the process
	Snap      int    `json:"snap,omitempty"`       // bytes that are kept of each frame; 0: the whole frame
	BufferKiB int    `json:"buffer_kib,omitempty"` // size of the kernel's buffer; see recv, mmap and xdp
	Filter    string `json:"filter,omitempty"`     // cBPF as tcpdump -ddd prints it, lines joined by commas
	Work      string `json:"work,omitempty"`       // for each frame: WorkCopy, WorkGzip
}

// Counts has the counts of a sink from its start to its end.
type Counts struct {
	Frames  int64 `json:"frames"`  // frames that the sink took
	Dropped int64 `json:"dropped"` // frames lost because the sink's buffer was full
	// Waiting is the number of frames still in the buffer drainTime after the end.
	Waiting int64 `json:"waiting,omitempty"`
	// IfDropped is the number of frames that the interface reports as missed: no sink can have seen them.
	IfDropped int64 `json:"if_dropped"`
	// IfRxDropped is the increase of the interface's rx_dropped. It is no count of losses: the driver may count losses
	// there, but the kernel counts frames that the sink has seen and that no protocol took.
	IfRxDropped int64 `json:"if_rx_dropped,omitempty"`
	// Sizes is the number of frames by their length in bytes, with VLAN tags and without FCS. Longer frames than 16383
	// bytes count as 16383.
	Sizes map[int]int64 `json:"sizes"`
}

// methods has a constructor for each kind of sink. A new kind takes a file and a line here.
var methods = map[string]func(Config, port) (method, error){
	"recv": openRecv,
	"mmap": openMmap,
	"xdp":  openXDP,
	"ebpf": openEBPF,
}

// Kinds lists the kinds of sinks, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(methods)) }

// method is a sink of one kind on one interface. It captures from its construction on.
type method interface {
	// take takes frames on the calling thread until stop returns true. It calls stop after each batch, and when a signal
	// interrupts its waiting.
	take(count *counter, stop stopFunc) error
	// finish stops the arrival of frames and takes those in the buffer until the deadline. It returns the number of frames
	// that were lost, and of those left in the buffer. It is called once, after take.
	finish(count *counter, deadline time.Time) (lost, left int64, err error)
	// tally adds up the kernel's counters, which have 32 bits and may overflow within minutes.
	tally() error
	close()
}

// ErrConfig is wrapped by errors about the settings, as opposed to errors of capturing.
var ErrConfig = errors.New("not a way to capture")

// check returns an error for settings that no sink supports.
func (cfg Config) check() error {
	var wrong string
	switch {
	case methods[cfg.Kind] == nil:
		wrong = fmt.Sprintf(
			"no kind of sink %q: there is %s", cfg.Kind, strings.Join(Kinds(), ", ")+near.Suggestion(cfg.Kind, Kinds()))
	case cfg.Interface == "":
		wrong = "no interface was named: --interface eth0"
	case cfg.Snap < 0 || cfg.Snap > wholeFrame:
		wrong = fmt.Sprintf("a snap length of %d bytes: 1 to %d, or 0 for whole frames", cfg.Snap, wholeFrame)
	case cfg.BufferKiB < 0 || cfg.BufferKiB > maxBufferKiB:
		wrong = fmt.Sprintf("a buffer of %d KiB: 1 to %d, or 0 for the way's own", cfg.BufferKiB, maxBufferKiB)
	case !slices.Contains([]string{"", WorkCopy, WorkGzip}, cfg.Work):
		wrong = fmt.Sprintf("no work %q: there is %s, %s", cfg.Work, WorkCopy, WorkGzip)
	}
	if wrong != "" {
		return &configError{wrong}
	}
	return nil
}

// configError is an error about the settings.
type configError struct{ text string }

func (e *configError) Error() string { return e.text }
func (e *configError) Unwrap() error { return ErrConfig }

const (
	wholeFrame   = 1 << 18   // default snap length in bytes, as in libpcap
	maxBufferKiB = 1<<21 - 1 // the size in bytes must be a number of 31 bits
)

// goProcessors is the least GOMAXPROCS. On one CPU Go would choose 1, and its monitor thread would wake every 20 µs to
// take the only processor from the thread that waits for a frame.
const goProcessors = 4

const (
	drainTime  = 2 * time.Second  // for taking the frames in the buffer at the end
	tallyEvery = 10 * time.Minute // at 5 million frames a second 32 bits overflow after 14 minutes
)

// Run captures on an interface until ctx ends. It writes the line "ready" once it captures, and at the end the counts
// as a line of JSON, also when it ends with an error before ctx does. Run needs a process of its own, because it
// switches garbage collection off.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	if err := run(ctx, cfg, out); err != nil {
		what := "(" + cfg.Kind + ")"
		if cfg.Interface != "" {
			what = "on " + cfg.Interface + " " + what
		}
		return fmt.Errorf("capturing %s: %w", what, err)
	}
	return nil
}

// run is Run, with errors that do not name the interface.
func run(ctx context.Context, cfg Config, out io.Writer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	target, err := findPort(cfg.Interface)
	if err != nil {
		return err
	}
	counter, err := newCounter(cfg)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(max(goProcessors, runtime.NumCPU()))
	debug.SetGCPercent(-1) // a collection would add cost that is not capturing's; there is hardly any garbage
	sink, err := methods[cfg.Kind](cfg, target)
	if err != nil {
		return err
	}
	defer sink.close()
	linkErr, err := target.watch()
	if err != nil {
		return err
	}
	missed, dropped := target.dropped()
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return fmt.Errorf("saying that it captures: %w", err)
	}
	cause := captureUntil(ctx, sink, counter, linkErr)
	// Ignore further signals, which timeout(1) sends: they would end the process before it has written the counts.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	lost, left, err := sink.finish(counter, time.Now().Add(drainTime))
	counts := counter.counts()
	counts.Dropped, counts.Waiting = lost, left
	missedNow, droppedNow := target.dropped()
	counts.IfDropped, counts.IfRxDropped = max(0, missedNow-missed), max(0, droppedNow-dropped)
	return errors.Join(cause, err, counts.write(out))
}

// captureUntil captures until ctx ends, linkErr delivers an error, or taking frames fails.
func captureUntil(ctx context.Context, sink method, count *counter, linkErr <-chan error) (err error) {
	capture := startThread(func(stop stopFunc) error { return sink.take(count, stop) })
	tick := time.NewTicker(tallyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return capture.end()
		case err = <-linkErr:
			return errors.Join(err, capture.end())
		case <-capture.done:
			return capture.end()
		case <-tick.C:
			if err := sink.tally(); err != nil {
				return errors.Join(err, capture.end())
			}
		}
	}
}

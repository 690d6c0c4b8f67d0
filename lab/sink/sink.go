// Package sink captures the frames that pass an interface, in the ways that Linux offers, and counts them by size. Each
// way is as cheap as it can be, so that what a capture program costs can be held against what its way costs anyway.
//
//	recv   a packet socket, one system call a frame
//	mmap   a packet socket with a ring that the kernel fills by blocks (TPACKET_V3), as libpcap has
//	xdp    an AF_XDP socket, which takes the frames away before the network stack
//	ebpf   programs at tc that count in the kernel; nothing is copied
//
// Frames are taken by one OS thread that does nothing else, without allocations. Linux only.
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

// Config says how frames are captured. Zero values are the way's own.
type Config struct {
	Kind      string `json:"kind"`      // a name of Kinds
	Interface string `json:"interface"` // in the network namespace of the process
	Snap      int    `json:"snap,omitempty"`
	BufferKiB int    `json:"buffer_kib,omitempty"` // of the kernel's buffer; see the ways
	Filter    string `json:"filter,omitempty"`     // cBPF as tcpdump -ddd prints it, lines joined by commas
	Work      string `json:"work,omitempty"`       // for each frame: WorkCopy, WorkGzip
}

// Counts has the counts of a sink from its start to its end.
type Counts struct {
	Frames  int64 `json:"frames"`  // taken, and worked on where there is work
	Dropped int64 `json:"dropped"` // lost for lack of room in the sink's buffer
	// Waiting are frames that were in the buffer when the time for them was over, two seconds after the end.
	Waiting int64 `json:"waiting,omitempty"`
	// IfDropped are frames that the interface says it missed when it received them: no sink can have seen them.
	IfDropped int64 `json:"if_dropped"`
	// IfRxDropped is by how much the interface's rx_dropped rose. Its driver may count losses there; the kernel counts
	// frames that the sink has seen and that nobody else took. It is no count of losses.
	IfRxDropped int64 `json:"if_rx_dropped,omitempty"`
	// Sizes are the frames by their bytes with VLAN tags and without FCS, those above 16383 as 16383.
	Sizes map[int]int64 `json:"sizes"`
}

// methods make sinks, by their kind. Adding one is a file and a line here.
var methods = map[string]func(Config, port) (method, error){
	"recv": openRecv,
	"mmap": openMmap,
	"xdp":  openXDP,
	"ebpf": openEBPF,
}

// Kinds are the ways to capture.
func Kinds() []string { return slices.Sorted(maps.Keys(methods)) }

// method is a means to capture, on one interface. It captures from its opening on.
type method interface {
	// take takes frames on the calling thread until stop says so. It looks at stop after each batch, and when a
	// signal interrupts its waiting.
	take(c *counter, stop stopping) error
	// finish lets no more frames in, takes those that wait until the deadline, and returns how many it had to leave and
	// how many were lost before. It is called once, after take.
	finish(c *counter, deadline time.Time) (lost, left int64, err error)
	// tally adds up the kernel's counters, which are of 32 bits and may overflow within hours.
	tally() error
	close()
}

// ErrConfig is wrapped by errors of what was asked for, as opposed to what happened.
var ErrConfig = errors.New("not a way to capture")

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

// configError says what is wrong with what was asked for.
type configError struct{ text string }

func (e *configError) Error() string { return e.text }
func (e *configError) Unwrap() error { return ErrConfig }

const (
	wholeFrame   = 1 << 18   // bytes that are kept where nothing is said, as libpcap has it
	maxBufferKiB = 1<<21 - 1 // in bytes a number of 31 bits
)

// processors is more than there are busy threads: on one CPU Go would choose 1, and its monitor thread would wake every
// 20 µs to take the only processor away from the thread that waits for a frame.
const processors = 4

const (
	drainFor   = 2 * time.Second  // for what waits in the buffer at the end
	tallyEvery = 10 * time.Minute // at 5 million frames a second 32 bits take 14 minutes
)

// Run captures on an interface until ctx ends, writes "ready" and a line once it captures, and at the end the counts as
// a line of JSON. The error says why it could not begin, or why it ended before ctx did: the counts are written then
// too. It is for a process of its own: garbage is not collected from then on.
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

func run(ctx context.Context, cfg Config, out io.Writer) error {
	if err := cfg.check(); err != nil {
		return err
	}
	target, err := findPort(cfg.Interface)
	if err != nil {
		return err
	}
	c, err := newCounter(cfg)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(max(processors, runtime.NumCPU()))
	debug.SetGCPercent(-1) // a collection would cost what no capture costs; there is hardly any garbage
	w, err := methods[cfg.Kind](cfg, target)
	if err != nil {
		return err
	}
	defer w.close()
	fate, err := target.watch()
	if err != nil {
		return err
	}
	missed, dropped := target.dropped()
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return fmt.Errorf("saying that it captures: %w", err)
	}
	cause := attend(ctx, w, c, fate)
	// Further signals, as timeout(1) sends, would cost the counts: they are there within drainFor.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	lost, left, err := w.finish(c, time.Now().Add(drainFor))
	counts := c.counts()
	counts.Dropped, counts.Waiting = lost, left
	missedNow, droppedNow := target.dropped()
	counts.IfDropped, counts.IfRxDropped = max(0, missedNow-missed), max(0, droppedNow-dropped)
	return errors.Join(cause, err, counts.write(out))
}

// attend captures until ctx ends, or the interface's fate or an error of the way ends it.
func attend(ctx context.Context, w method, c *counter, fate <-chan error) (err error) {
	t := startThread(func(stop stopping) error { return w.take(c, stop) })
	tick := time.NewTicker(tallyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return t.end()
		case err = <-fate:
			return errors.Join(err, t.end())
		case <-t.done:
			return t.end()
		case <-tick.C:
			if err := w.tally(); err != nil {
				return errors.Join(err, t.end())
			}
		}
	}
}

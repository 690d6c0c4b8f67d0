package transition

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/lab/hook"
)

// Point is a place of a tap: an interface, and the direction in which frames pass it.
type Point struct {
	Name      string `json:"name"` // of the tap
	Interface string `json:"interface"`
	Egress    bool   `json:"egress,omitempty"` // true: frames that leave by the interface; false: frames that arrive
}

// MaxFrame is the longest frame that taps know, with the Ethernet header.
const MaxFrame = 2047 // LENGTHS in tap.bpf.c, less one

// Tap notes frames at some points of one host until Close. Its methods are called one at a time.
type Tap struct {
	objs        programsObjects
	attachments []hook.Attachment
	names       map[uint32]string // by interface
	reader      *ringbuf.Reader
	lost        uint64 // number of lost events at the last Read
}

// OpenTap puts taps at interfaces of the calling thread's network namespace, at most one at each. They note nothing
// until Want is called.
func OpenTap(points []Point) (*Tap, error) {
	t := &Tap{names: map[uint32]string{}}
	if err := t.open(points); err != nil {
		return nil, errors.Join(fmt.Errorf("tapping frames: %w", err), t.Close())
	}
	return t, nil
}

func (t *Tap) open(points []Point) (err error) {
	if err := loadProgramsObjects(&t.objs, nil); err != nil {
		return fmt.Errorf("loading the program, which needs root and kernel 5.8: %w", err)
	}
	if t.reader, err = ringbuf.NewReader(t.objs.Events); err != nil {
		return err
	}
	t.reader.SetDeadline(time.Unix(1, 0)) // reads return what is there
	for _, p := range points {
		link, err := netlink.LinkByName(p.Interface)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Interface, err)
		}
		index := uint32(link.Attrs().Index)
		if _, twice := t.names[index]; twice {
			return fmt.Errorf("%s: two taps at one interface", p.Interface)
		}
		attachment, err := hook.Attach(
			hook.Config{Interface: int(index), Egress: p.Egress, Name: "gateweigh_tap", Handle: 2}, t.objs.Tap)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Interface, err)
		}
		t.attachments, t.names[index] = append(t.attachments, attachment), p.Name
	}
	return nil
}

// Want makes the taps note frames of these lengths, and no others.
func (t *Tap) Want(lengths []int) error {
	var wanted [MaxFrame + 1]uint8
	for _, n := range lengths {
		if n <= 0 || n > MaxFrame {
			return fmt.Errorf("frames of %d bytes: taps know those of 1 to %d", n, MaxFrame)
		}
		wanted[n] = 1
	}
	return t.objs.Wanted.Set(wanted)
}

// Read returns the events since the last Read. It returns an error if events were lost because their buffer was full.
func (t *Tap) Read() (list []Event, err error) {
	var record ringbuf.Record
	for {
		if err := t.reader.ReadInto(&record); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading the taps: %w", err)
		}
		var e programsEvent
		if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &e); err != nil {
			return nil, fmt.Errorf("reading the taps: %w", err)
		}
		list = append(list,
			Event{AtNs: int64(e.AtNs), Tap: t.names[e.Interface], Number: e.Number, Run: e.Run, Bytes: int(e.Bytes)})
	}
	before := t.lost
	if err := t.objs.Lost.Get(&t.lost); err != nil {
		return nil, err
	}
	if n := t.lost - before; n > 0 {
		return nil, fmt.Errorf("%d frames found no room with the taps", n)
	}
	return list, nil
}

// Close removes the taps. It may be called twice.
func (t *Tap) Close() error {
	var errs []error
	for _, attachment := range t.attachments {
		errs = append(errs, attachment.Close())
	}
	t.attachments = nil
	if t.reader != nil {
		errs = append(errs, t.reader.Close())
		t.reader = nil
	}
	errs = append(errs, t.objs.Close())
	t.objs = programsObjects{}
	return errors.Join(errs...)
}

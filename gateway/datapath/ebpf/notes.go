// Notes, among the pins, of the queues that this data path gave to interfaces, so that a later process can remove them.

package ebpf

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// queueNote is a folder among the pins that records that this data path gave an interface a queue: the interface may be
// another one, or have another name, when the queue is to be removed. It is gone after a start of the machine, as
// queues are.
type queueNote struct {
	major uint16
	index int
	name  string
}

// notePrefix begins the names of notes. They end with the interface's name in hexadecimal, since a bpffs refuses dots.
const notePrefix = "queue_"

func (n queueNote) String() string {
	return fmt.Sprintf("%s%x_%d_%s", notePrefix, n.major, n.index, hex.EncodeToString([]byte(n.name)))
}

// queueNotes are the notes in a folder of pins, which may be missing.
func queueNotes(dir string) (all []queueNote, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading which interfaces were given queues: %w", err)
	}
	for _, e := range entries {
		var n queueNote
		var name string
		if _, err := fmt.Sscanf(
			strings.ReplaceAll(e.Name(), "_", " "), "queue %x %d %s", &n.major, &n.index, &name); err != nil {
			continue
		}
		b, _ := hex.DecodeString(name)
		n.name = string(b)
		all = append(all, n)
	}
	return all, nil
}

// isOf reports whether a note is of a queue's interface and number.
func (n queueNote) isOf(q *queue) bool { return n.major == q.major && n.index == q.dev.Index }

// recall finds out whether this data path made the interface's queue.
func (q *queue) recall() error {
	all, err := queueNotes(q.dir)
	q.hasNote = slices.ContainsFunc(all, func(n queueNote) bool { return n.isOf(q) })
	return err
}

// writeNote records that the queue is this data path's, also where others removed the note.
func (q *queue) writeNote() error {
	err := os.Mkdir(filepath.Join(q.dir, queueNote{q.major, q.dev.Index, q.dev.Name}.String()), 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("noting that %s was given a queue: %w", q.dev.Name, err)
	}
	q.hasNote = true
	return nil
}

// removeNote records that the queue is not, or no longer, this data path's.
func (q *queue) removeNote() error {
	if !q.hasNote {
		return nil
	}
	q.hasNote = false
	all, err := queueNotes(q.dir)
	for _, n := range all {
		if n.isOf(q) {
			err = errors.Join(err, os.Remove(filepath.Join(q.dir, n.String())))
		}
	}
	return err
}

// leaveQueues removes the queues that are noted in a folder of pins, but those of kept, and the notes. An interface is
// known by its index, and by its name where it was made anew.
func leaveQueues(dir string, kept ...*queue) error {
	all, err := queueNotes(dir)
	for _, n := range all {
		isKept := func(dev *net.Interface) bool {
			return slices.ContainsFunc(kept, func(q *queue) bool { return q.major == n.major && q.dev.Index == dev.Index })
		}
		if isKept(&net.Interface{Index: n.index}) {
			continue
		}
		var left error
		byIndex, _ := net.InterfaceByIndex(n.index) // either may be gone
		byName, _ := net.InterfaceByName(n.name)
		for _, dev := range []*net.Interface{byIndex, byName} {
			if dev != nil && !isKept(dev) {
				left = errors.Join(left, (&queue{dev: dev, major: n.major, hasNote: true}).remove())
			}
		}
		if left == nil {
			left = os.Remove(filepath.Join(dir, n.String()))
		}
		err = errors.Join(err, left)
	}
	return err
}

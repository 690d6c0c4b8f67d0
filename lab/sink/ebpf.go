package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/hook"
)

// inKernel counts frames where they pass, by programs at tc ingress and egress of the interface, ahead of others.
// Nothing is copied and no thread is woken: what a count costs is one look-up. Nothing is ever lost either.
//
// Frames that come are counted where packet sockets see them; frames that leave before the queueing discipline, where
// packet sockets see them behind it. On loopback each frame is counted when it comes.
type inKernel struct {
	objs        countObjects
	in, out     hook.Attachment
	promiscuity int // a socket that keeps the interface promiscuous
}

var _ method = &inKernel{}

// countObjects are the objects of programsObjects that count frames.
type countObjects struct {
	Count *ebpf.Program `ebpf:"count"`
	Sizes *ebpf.Map     `ebpf:"sizes"`
}

func (o *countObjects) Close() {
	o.Count.Close() // nil: nothing was loaded
	o.Sizes.Close()
}

func openEBPF(cfg Config, target port) (method, error) {
	if cfg.Filter != "" || cfg.Work != "" || cfg.Snap != 0 || cfg.BufferKiB != 0 {
		return nil, &configError{
			"ebpf counts every frame in the kernel: it has no buffer, no filter, no snap length and no work: leave them out, " +
				"or take mmap"}
	}
	w := &inKernel{promiscuity: -1}
	if err := w.open(target); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *inKernel) open(target port) error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	spec.Maps["sizes"].MaxEntries = uint32(possible * (maxBytes + 1))
	if err := load(spec, &w.objs); err != nil {
		return err
	}
	if w.promiscuity, err = keepPromiscuous(target); err != nil {
		return err
	}
	// Before Linux 6.6 each filter needs a number of its own.
	place := hook.Config{Interface: target.index, Name: "gateweigh_sink", Handle: uint32(1 + os.Getpid())}
	if w.in, err = hook.Attach(place, w.objs.Count); err != nil {
		return err
	}
	if target.loopback { // each frame that leaves comes back
		return nil
	}
	place.Egress = true
	w.out, err = hook.Attach(place, w.objs.Count)
	return err
}

// load loads the programs into the kernel.
func load(spec *ebpf.CollectionSpec, objs any) error {
	err := spec.LoadAndAssign(objs, nil)
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("the kernel refuses the program: %w", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("loading the program: %w: run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW", err)
	case err != nil:
		return fmt.Errorf("loading the program: %w", err)
	}
	return nil
}

// take waits: the programs count.
func (w *inKernel) take(_ *counter, stop stopping) error {
	for !stop() {
		if _, err := unix.Ppoll(nil, nil, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting: %w", err)
		}
	}
	return nil
}

func (w *inKernel) tally() error { return nil }

// finish takes the programs away and reads their counts.
func (w *inKernel) finish(c *counter, _ time.Time) (lost, left int64, err error) {
	if err := w.detach(); err != nil {
		return 0, 0, fmt.Errorf("taking the programs away: %w", err)
	}
	return 0, 0, w.read(c)
}

// read adds what was counted so far.
func (w *inKernel) read(c *counter) error {
	memory, err := w.objs.Sizes.Memory()
	if err != nil {
		return fmt.Errorf("reading the counts: %w", err)
	}
	counts := make([]byte, memory.Size())
	if _, err := memory.ReadAt(counts, 0); err != nil {
		return fmt.Errorf("reading the counts: %w", err)
	}
	for place := range len(counts) / 8 {
		n := int64(binary.NativeEndian.Uint64(counts[8*place:]))
		c.frames += n
		c.sizes[place%len(c.sizes)] += n
	}
	return nil
}

// detach takes the programs away, the last one first: it leaves what the first one has added for it.
func (w *inKernel) detach() (err error) {
	for _, a := range []*hook.Attachment{&w.out, &w.in} {
		if *a != nil {
			err = errors.Join(err, (*a).Close())
			*a = nil
		}
	}
	return err
}

func (w *inKernel) close() {
	_ = w.detach()
	w.objs.Close()
	if w.promiscuity >= 0 {
		unix.Close(w.promiscuity)
	}
}

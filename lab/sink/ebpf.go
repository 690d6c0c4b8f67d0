// The sink of kind "ebpf".

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

// kernelCounter counts frames by programs at tc ingress and egress of the interface, which run before other programs.
// It copies no frame, wakes no thread and loses no frame; a count costs one map look-up.
//
// Incoming frames are counted where packet sockets see them. Outgoing frames are counted before the queueing
// discipline; packet sockets see them after it. On loopback only incoming frames are counted, because each outgoing one
// comes back.
type kernelCounter struct {
	objs        countObjects
	in, out     hook.Attachment
	promiscuity int // a socket that keeps the interface promiscuous
}

var _ method = &kernelCounter{}

// countObjects are the objects of sink.bpf.c that count frames.
type countObjects struct {
	Count *ebpf.Program `ebpf:"count"`
	Sizes *ebpf.Map     `ebpf:"sizes"`
}

func (o *countObjects) Close() {
	o.Count.Close() // nil: nothing was loaded
	o.Sizes.Close()
}

// openEBPF makes the sink of kind "ebpf".
func openEBPF(cfg Config, target port) (method, error) {
	if cfg.Filter != "" || cfg.Work != "" || cfg.Snap != 0 || cfg.BufferKiB != 0 {
		return nil, &configError{
			"ebpf counts every frame in the kernel: it has no buffer, no filter, no snap length and no work: leave them out, " +
				"or take mmap"}
	}
	sink := &kernelCounter{promiscuity: -1}
	if err := sink.open(target); err != nil {
		sink.close()
		return nil, err
	}
	return sink, nil
}

// open loads the program and attaches it to the interface.
func (w *kernelCounter) open(target port) error {
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
	// Before Linux 6.6 each filter needs a handle of its own.
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

// load loads programs into the kernel. objs is a pointer to countObjects or takeObjects, whose fields it sets.
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

// take waits until stop, because the programs in the kernel count.
func (w *kernelCounter) take(_ *counter, stop stopFunc) error {
	for !stop() {
		if _, err := unix.Ppoll(nil, nil, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting: %w", err)
		}
	}
	return nil
}

func (w *kernelCounter) tally() error { return nil }

// finish detaches the programs and reads their counts.
func (w *kernelCounter) finish(count *counter, _ time.Time) (lost, left int64, err error) {
	if err := w.detach(); err != nil {
		return 0, 0, fmt.Errorf("taking the programs away: %w", err)
	}
	return 0, 0, w.read(count)
}

// read adds the programs' counts to count.
func (w *kernelCounter) read(count *counter) error {
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
		count.frames += n
		count.sizes[place%len(count.sizes)] += n
	}
	return nil
}

// detach detaches the programs. The last one goes first, because the first one has made the qdisc that both use.
func (w *kernelCounter) detach() (err error) {
	for _, attachment := range []*hook.Attachment{&w.out, &w.in} {
		if *attachment != nil {
			err = errors.Join(err, (*attachment).Close())
			*attachment = nil
		}
	}
	return err
}

func (w *kernelCounter) close() {
	_ = w.detach()
	w.objs.Close()
	if w.promiscuity >= 0 {
		unix.Close(w.promiscuity)
	}
}

// Package receive accounts for each frame of a generator that an interface receives: a program at tc
// ingress, ahead of all other programs, counts the frames and drops them, so they reach no socket. All other packets
// pass on.
package receive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/lab/hook"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
)

// Config says which frames are expected, and where.
type Config struct {
	Interface string
	Port      uint16 // UDP port that the frames go to; 0 means frames.Port
	Streams   int    // streams are numbered from 0; 0 means 1
	// FramesPerStream is the number of frame numbers of each stream that are tracked. Frames with higher numbers count as
	// stray. Each number takes one bit of kernel memory: 50 million frames 6 MB, however many streams they belong to. 0
	// means 10 million.
	FramesPerStream int64
	// ShiftNs is added to this machine's CLOCK_MONOTONIC, ns, to get the sender's clock. It is 0 if both use one clock.
	ShiftNs int64

	clsact bool // attach the program by clsact, as on kernels before 6.6
}

const (
	defaultFrames = 10_000_000 // default of Config.FramesPerStream
	maxWords      = 1 << 28    // words of 64 bits for the numbers of all streams: 2 GB
)

// Receiver counts from Open to Close. Its methods are called one at a time, from any thread.
type Receiver struct {
	cfg        Config
	objs       programsObjects
	attachment hook.Attachment
}

// complete sets defaults and checks the configuration.
func (cfg *Config) complete() error {
	if cfg.Port == 0 {
		cfg.Port = frames.Port
	}
	if cfg.Streams == 0 {
		cfg.Streams = 1
	}
	if cfg.FramesPerStream == 0 {
		cfg.FramesPerStream = defaultFrames
	}
	switch {
	case cfg.Streams < 0 || cfg.Streams > frames.MaxStreams:
		return fmt.Errorf("%d streams: there are 1 to %d", cfg.Streams, frames.MaxStreams)
	case cfg.FramesPerStream < 0 || cfg.words() > maxWords/int64(cfg.Streams):
		return fmt.Errorf("%d frames in each of %d streams: they are at least 1, and together at most %d",
			cfg.FramesPerStream, cfg.Streams, int64(maxWords)*64)
	}
	return nil
}

// words returns the number of 64-bit words that hold the numbers of one stream, one bit each.
func (cfg *Config) words() int64 { return (cfg.FramesPerStream-1)/64 + 1 }

// Open begins to count on an interface of the calling thread's network namespace. The counting ends with
// Close or with the process, however that ends; before kernel 6.6, where the program hangs on no file
// descriptor, a process that is killed leaves it there until the next Open.
func Open(cfg Config) (*Receiver, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("receiving frames on %s: %w", cfg.Interface, err)
	}
	r := &Receiver{cfg: cfg}
	if err := r.open(); err != nil {
		r.objs.Close() // never fails on what is not there
		return nil, fmt.Errorf("receiving frames on %s: %w", cfg.Interface, err)
	}
	return r, nil
}

func (r *Receiver) open() error {
	ifi, err := netlink.LinkByName(r.cfg.Interface)
	if err != nil {
		return err
	}
	if kind := ifi.Attrs().EncapType; kind != "ether" && kind != "loopback" {
		return fmt.Errorf("it carries %s: frames need Ethernet", kind)
	}
	if err := r.load(); err != nil {
		return err
	}
	r.attachment, err = hook.Attach(
		hook.Config{Interface: ifi.Attrs().Index, Name: "gateweigh_frames", Clsact: r.cfg.clsact}, r.objs.Receive)
	return err
}

func (r *Receiver) load() error {
	spec, err := loadPrograms()
	if err != nil {
		return err
	}
	possible, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	spec.Maps["streams"].MaxEntries = uint32(r.cfg.Streams)
	spec.Maps["seen"].MaxEntries = uint32(int64(r.cfg.Streams) * r.cfg.words())
	spec.Maps["cpus"].MaxEntries = uint32(possible)
	var port [2]byte
	binary.BigEndian.PutUint16(port[:], r.cfg.Port)
	err = errors.Join(
		spec.Variables["port"].Set(binary.NativeEndian.Uint16(port[:])),
		spec.Variables["shift"].Set(r.cfg.ShiftNs),
		spec.Variables["words"].Set(uint64(r.cfg.words())),
	)
	if err != nil {
		return err
	}
	err = spec.LoadAndAssign(&r.objs, nil)
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("the kernel refuses the program: %w", err)
	case err != nil:
		return fmt.Errorf("loading the program, which needs root and %s of memory: %w", r.memory(possible), err)
	}
	return nil
}

// memory formats the kernel memory that the maps take: "12 KB".
func (r *Receiver) memory(possible int) string {
	const stream = 88
	bytes := int64(r.cfg.Streams)*(stream+8*r.cfg.words()) + 8*int64(possible*(frames.MaxBytes+1+buckets))
	return fmt.Sprintf("%d KB", bytes>>10)
}

// Reset begins to count anew. Frames that arrive meanwhile may be counted in part: let the last
// ones arrive before.
func (r *Receiver) Reset() error {
	err := errors.Join(r.clearSeen(), r.zeroStreams(), r.zeroCPUs())
	if err != nil {
		return fmt.Errorf("resetting the counts of frames on %s: %w", r.cfg.Interface, err)
	}
	return nil
}

// clearSeen clears the numbers that were seen.
func (r *Receiver) clearSeen() error {
	seen, err := r.objs.Seen.Memory()
	if err != nil {
		return err
	}
	zero, size := make([]byte, 1<<20), int(seen.Size())
	for index := 0; index < size; index += len(zero) {
		if _, err := seen.WriteAt(zero[:min(len(zero), size-index)], int64(index)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Receiver) zeroStreams() error {
	keys := make([]uint32, r.cfg.Streams)
	for i := range keys {
		keys[i] = uint32(i)
	}
	_, err := r.objs.Streams.BatchUpdate(keys, make([]programsStream, r.cfg.Streams), nil)
	return err
}

func (r *Receiver) zeroCPUs() error {
	zero := new(programsCpu)
	for cpu := range r.objs.Cpus.MaxEntries() {
		if err := r.objs.Cpus.Put(cpu, zero); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the counting. Twice is harmless.
func (r *Receiver) Close() error {
	var err error
	if r.attachment != nil {
		err = r.attachment.Close()
		r.attachment = nil
	}
	r.objs.Close()
	return err
}

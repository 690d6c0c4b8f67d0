package dut

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/sink"
)

// Sink captures with a program of the lab's own, in one of the ways that Linux offers: a reference for what capturing
// costs at least. The programs are the host's agent program, so nothing has to be installed.
type Sink struct {
	*capturePrograms
	kind, about string
	need        Need
}

var _ Capturing = &Sink{}

// NewSink makes a device of a kind of sink.
func NewSink(kind string, capture Capture) *Sink {
	s := &Sink{kind: kind, about: "the lab's own sink: " + sinkAbout[kind]}
	switch kind {
	case "xdp":
		s.need = Need{Program: "ip", Package: "iproute2", Feature: machine.AFXDP,
			Why: "an interface that hands its frames over"}
	case "ebpf":
		s.need = Need{Program: "tc", Package: "iproute2", Feature: machine.BPFAtTC, Why: "programs that count"}
	}
	s.capturePrograms = newPrograms(captureProgram{
		name: "sink-" + kind, refuses: s.refuses, argv: s.argv, ready: "ready", counts: sinkCounts,
	}, capture)
	return s
}

var sinkAbout = map[string]string{
	"recv": "a packet socket, one system call a frame",
	"mmap": "a packet socket with a ring (TPACKET_V3)",
	"xdp":  "an AF_XDP socket, which takes the frames away",
	"ebpf": "programs at tc that count in the kernel",
}

const idsSinkName = "ids"

// NewIDS makes a device that works on each frame as a program that looks for intruders would: it compresses what is
// kept, where no other work is asked for.
func NewIDS(capture Capture) *Sink {
	capture.Work = cmp.Or(capture.Work, WorkGzip)
	s := NewSink("mmap", capture)
	s.name, s.about = idsSinkName, "work on each frame ("+capture.Work+"), as a program does that looks for intruders"
	return s
}

// Traits implements DUT. The programs of filters are tcpdump's, so that both look for frames in the same way.
func (s *Sink) Traits() Traits {
	t := Traits{About: s.about, TakesFrames: s.kind == "xdp"}
	if s.need.Program != "" {
		t.Needs = append(t.Needs, s.need)
	}
	if s.settings.Filter != "" {
		t.Needs = append(t.Needs, tcpdumpNeed)
	}
	return t
}

func (s *Sink) refuses(capture Capture) error {
	switch {
	case s.name == idsSinkName && capture.Work == "":
		return errors.New("it works on each frame: choose sink-mmap, which is the same without work")
	case s.kind == "ebpf" && (capture.Snap != 0 || capture.BufferKiB != 0 || capture.Filter != "" || capture.Work != ""):
		return errors.New(
			"it counts every frame in the kernel, without snap length, buffer, filter or work: choose sink-mmap for these")
	case s.kind == "xdp" && capture.Filter != "":
		return errors.New("AF_XDP has no filters of tcpdump's kind: choose sink-mmap")
	case s.kind == "xdp" && capture.Programs > 1:
		return fmt.Errorf(
			"%d programs: an interface hands its frames to one program at XDP: choose sink-mmap", capture.Programs)
	}
	return nil
}

// Start implements DUT.
func (s *Sink) Start(ctx context.Context, env Env) error {
	if s.kind == "xdp" && env.On == "router" {
		return fmt.Errorf(
			"%s takes frames away, and the router would forward none: it fits where frames end, as behind a splitter "+
				"(topology = \"tap\"): %w", s.name, ErrNotSupported)
	}
	return s.capturePrograms.Start(ctx, env)
}

// argv starts the agent's program as a sink.
func (s *Sink) argv(env Env, capture Capture, _ string) []string {
	cfg := sink.Config{
		Kind: s.kind, Interface: env.Capture, Snap: capture.Snap, BufferKiB: capture.BufferKiB, Work: capture.Work}
	if capture.Filter == "" {
		return []string{agent.Self, agent.SinkCommand, cfg.Arg()}
	}
	const script = `program=$(tcpdump -ddd -y EN10MB "$2"); exec "$0" "$1" "$3" "$program"`
	return []string{"sh", "-ec", script, agent.Self, agent.SinkCommand, Filters[capture.Filter], cfg.Arg()}
}

// sinkCounts reads the line of JSON at the sink's end.
func sinkCounts(text string) (Captured, error) {
	var n sink.Counts
	index := strings.LastIndex(text, "\n{")
	if index < 0 {
		return Captured{}, errors.New("its counts are not there")
	}
	line, _, _ := strings.Cut(text[index+1:], "\n")
	if err := json.Unmarshal([]byte(line), &n); err != nil {
		return Captured{}, fmt.Errorf("its counts: %w", err)
	}
	return Captured{Frames: n.Frames, Dropped: n.Dropped, Waiting: n.Waiting, Sizes: n.Sizes}, nil
}

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

// Sink captures with the lab's own program (package sink) by one interface of Linux: a lower bound for the cost of
// capturing. The program is part of the agent, so nothing has to be installed.
type Sink struct {
	*capturePrograms
	kind, about string // kind: a key of sinkAbout
	need        Need
}

var _ Capturing = &Sink{}

// NewSink makes a sink of a kind in sinkAbout.
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
		name: "sink-" + kind, checkSupport: s.checkSupport, argv: s.argv, ready: "ready", counts: sinkCounts,
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

// NewIDS makes a device that stands for an intrusion detection system: it works on each frame. By default the work is
// to compress the frame's kept bytes.
func NewIDS(capture Capture) *Sink {
	capture.Work = cmp.Or(capture.Work, WorkGzip)
	s := NewSink("mmap", capture)
	s.name, s.about = idsSinkName, "work on each frame ("+capture.Work+"), as a program does that looks for intruders"
	return s
}

// Traits implements DUT. A sink with a filter needs tcpdump, which compiles the filter to BPF: both then filter alike.
func (s *Sink) Traits() Traits {
	t := Traits{About: s.about, Families: bothFamilies, TakesFrames: s.kind == "xdp"}
	if s.need.Program != "" {
		t.Needs = append(t.Needs, s.need)
	}
	if s.settings.Filter != "" {
		t.Needs = append(t.Needs, tcpdumpNeed)
	}
	return t
}

func (s *Sink) checkSupport(capture Capture) error {
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

// argv returns the command that runs the agent's program as a sink.
func (s *Sink) argv(env Env, capture Capture, _ string) []string {
	cfg := sink.Config{
		Kind: s.kind, Interface: env.Capture, Snap: capture.Snap, BufferKiB: capture.BufferKiB, Work: capture.Work}
	if capture.Filter == "" {
		return []string{agent.Self, agent.SinkCommand, cfg.Arg()}
	}
	const script = `program=$(tcpdump -ddd -y EN10MB "$2"); exec "$0" "$1" "$3" "$program"`
	return []string{"sh", "-ec", script, agent.Self, agent.SinkCommand, Filters[capture.Filter], cfg.Arg()}
}

// sinkCounts reads the JSON line that the sink prints when it ends.
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

package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/realtime"
	"github.com/gateweigh/gateweigh/lab/scratch"
)

// selfTest tries whether this machine can do what agents do. It runs a list of trials, each for one ability.
type selfTest struct {
	out      io.Writer
	emulator string // the file of the emulator that runs this process; empty: none
	dir      string // for files of the trials
}

// trial is the test of one ability.
type trial struct {
	name string
	// try returns what it found, as a text for the user. Its error means that the ability is missing.
	try func(context.Context, *selfTest) (found string, err error)
	// emulated is the reason why try cannot succeed in an emulator (qemu-user); empty: it can.
	emulated string
	root     bool // needs root
}

// trials are the trials of a self-test, in their order.
var trials = []trial{
	{name: "program", try: tryProgram},
	{name: "protocol", try: tryProtocol},
	{name: "machine", try: tryMachine},
	{name: "find", try: tryFind},
	{name: "bpf objects", try: tryObjects},
	{name: "plans", try: tryPlans},
	{name: "frames", try: tryFrames},
	{name: "udp streams", try: tryUDP},
	{name: "tcp streams", try: tryTCP, emulated: "qemu-user's setsockopt(2) takes no names (TCP_CONGESTION)"},
	{name: "host", try: tryHost, root: true},
	{name: "packets", try: tryPackets, root: true, emulated: "qemu-user lacks options of packet sockets"},
	{name: "jail", try: tryJail, root: true, emulated: "qemu-user makes no process namespaces"},
	{name: "meters", try: tryMeters, root: true,
		emulated: "qemu-user has no perf_event_open(2), and changes netlink messages"},
	{name: "bpf programs", try: tryPrograms, root: true, emulated: "qemu-user has no bpf(2)"},
	{name: "real time", try: tryRealTime, root: true, emulated: "a slice of an emulated processor is longer"},
}

// errFailed means that at least one trial of a self-test failed.
var errFailed = errors.New("the self-test failed")

// trialTime bounds one trial. Even an emulated machine needs only a few seconds.
const trialTime = time.Minute

// runSelfTest runs all trials and writes a line for each to out.
func runSelfTest(ctx context.Context, out io.Writer) error {
	dir, done, err := scratch.New(scratch.SelfTest)
	if err != nil {
		return err
	}
	defer done()
	s := &selfTest{out: out, emulator: machine.Emulator(), dir: dir}
	fmt.Fprintf(out, "agent %s, %s, %d bits, %s endian, build %s%s\n", Version, runtime.GOARCH, 32<<(^uint(0)>>63),
		byteOrder(), lastCharacters(thisProcess().Build), s.emulatorSuffix())
	failed := 0
	for _, t := range trials {
		if !s.run(ctx, t) {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%w: %d of %d trials", errFailed, failed, len(trials))
	}
	return nil
}

func (s *selfTest) emulatorSuffix() string {
	if s.emulator == "" {
		return ""
	}
	return ", emulated by " + s.emulator
}

// run runs a trial and writes its line. It reports false if the trial failed, and true if the machine cannot run it.
func (s *selfTest) run(ctx context.Context, t trial) bool {
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("not done after %s", trialTime))
	defer cancel()
	if t.root && os.Geteuid() != 0 {
		return s.say("not here", t.name, "needs root")
	}
	found, err := t.try(ctx, s)
	switch {
	case err == nil:
		return s.say("ok", t.name, found)
	case s.emulator != "" && t.emulated != "":
		return s.say("not here", t.name, t.emulated+": "+err.Error())
	case isNotSupported(err):
		return s.say("not here", t.name, err.Error())
	}
	s.say("FAILED", t.name, err.Error())
	return false
}

// isNotSupported reports whether an error means that the machine or its kernel lacks something. Errors that came from
// another agent are texts, so it compares texts too.
func isNotSupported(err error) bool {
	for _, not := range []error{unix.ENOSYS, unix.EOPNOTSUPP, ebpf.ErrNotSupported, realtime.ErrDenied, errNotHere} {
		if errors.Is(err, not) || strings.Contains(err.Error(), not.Error()) {
			return true
		}
	}
	return false
}

// say writes the line of a trial, and returns true.
func (s *selfTest) say(verdict, name, text string) bool {
	fmt.Fprintf(s.out, "%-9s %-13s %s\n", verdict, name, strings.ReplaceAll(text, "\n", "; "))
	return true
}

// errNotHere means that this machine lacks what a trial needs.
var errNotHere = errors.New("not on this machine")

func byteOrder() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "little"
	}
	return "big"
}

// startTest starts this program as an agent for a trial: with isolated for a host, otherwise for the machine alone. The
// function that it returns ends the agent and waits for its end.
func (s *selfTest) startTest(isolated bool) (*Conn, func(), error) {
	opts := Options{Run: "self-test", Host: "self-test", LogDir: s.dir, Isolated: isolated}
	attr := &syscall.SysProcAttr{}
	if isolated {
		isolate(attr)
	}
	child, err := StartChild(opts.Args(), attr, os.Stderr)
	if err != nil {
		return nil, nil, fmt.Errorf("starting this program as an agent: %w", err)
	}
	conn, exited := child.Connect("the agent of the self-test")
	return conn, func() {
		conn.Close()
		<-exited
	}, nil
}

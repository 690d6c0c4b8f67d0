package dut

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Tcpdump captures into /dev/null, as in study 2: the frames reach user space, and no program works on them. tcpdump
// prints three numbers at its end, and whenever it gets SIGUSR1:
//
//	captured             frames that tcpdump took from libpcap
//	received by filter   frames that passed the filter in the kernel, including those dropped after it: the kernel adds
//	                     its drops to the count that libpcap reads (PACKET_STATISTICS)
//	dropped by kernel    frames dropped after the filter because the buffer was full
//
// A fourth number, "dropped by interface", is the interface's count of missed frames, which the lab reads itself.
//
// libpcap hands frames over in blocks of 256 KiB. It hands over a block that is not full one to two seconds after the
// block's first frame. Until then its frames count as received, but neither as captured nor as dropped. drain therefore
// asks until captured and dropped add up to received. The option --immediate-mode hands over each frame at once, but
// makes tcpdump cost more. A buffer (-B) has whole blocks, so the smallest is 256 KiB.
type Tcpdump struct{ *capturePrograms }

var _ Capturing = Tcpdump{}

// NewTcpdump makes the device. snap is the number of bytes that it keeps of each frame, and the settings may then
// choose no other number. 0 leaves the number to the settings; when that is 0 as well, tcpdump keeps whole frames.
func NewTcpdump(snap int, capture Capture) Tcpdump {
	if capture.Snap == 0 {
		capture.Snap = snap
	}
	return Tcpdump{newPrograms(captureProgram{
		name: "tcpdump",
		checkSupport: func(capture Capture) error {
			if snap > 0 && capture.Snap != snap {
				return fmt.Errorf(
					"it keeps %d bytes of each frame, not %d: choose tcpdump, which keeps as many as asked", snap, capture.Snap)
			}
			return rejectWork(capture)
		},
		argv: func(env Env, capture Capture, _ string) []string {
			return tcpdumpCommand(env, capture, "/dev/null")
		},
		ready:  "listening on",
		drain:  drainTcpdump,
		counts: tcpdumpCounts,
	}, capture)}
}

// rejectWork returns an error for settings with work for each frame, which only the lab's sinks can do.
func rejectWork(capture Capture) error {
	if capture.Work != "" {
		return fmt.Errorf("it does no work (%s) for each frame: choose ids or one of the lab's sinks", capture.Work)
	}
	return nil
}

// Traits implements DUT.
func (t Tcpdump) Traits() Traits {
	about := "tcpdump to /dev/null"
	if t.settings.Snap > 0 {
		about = fmt.Sprintf("tcpdump to /dev/null, %d bytes of each frame", t.settings.Snap)
	}
	return Traits{About: about, Families: bothFamilies, Needs: []Need{tcpdumpNeed}}
}

var tcpdumpNeed = Need{Program: "tcpdump", Package: "tcpdump", Why: "capturing", ProbeArg: "--version"}

// tcpdumpCommand returns the command that captures into a file. tcpdump opens the file and the interface as root, and
// then becomes the user of its package. -n switches name lookups off.
func tcpdumpCommand(env Env, capture Capture, file string) []string {
	argv := []string{"tcpdump", "-i", env.Capture, "-n", "-w", file}
	if capture.Snap > 0 {
		argv = append(argv, "-s", strconv.Itoa(capture.Snap))
	}
	if capture.BufferKiB > 0 {
		argv = append(argv, "-B", strconv.Itoa(capture.BufferKiB))
	}
	if capture.Filter != "" {
		argv = append(argv, Filters[capture.Filter])
	}
	return argv
}

// drainTimeout is the time without a new frame after which drainTcpdump gives up. It is twice the longest time after
// which libpcap hands over a block.
const drainTimeout = 4 * time.Second

// signalInterval is the longest pause between two SIGUSR1 to a tcpdump that has not taken all frames.
const signalInterval = 500 * time.Millisecond

// drainTcpdump waits until tcpdump has taken all frames that it received and did not drop. An answer costs tcpdump
// 0.1 ms of CPU time, so drainTcpdump asks again only after tcpdump has run on a CPU, or after signalInterval.
func drainTcpdump(ctx context.Context, program daemon, dir string) (string, error) {
	var last string
	lastChange := time.Now()
	for {
		if err := shell(ctx, program.host, `kill -USR1 "$(cat "$1/pid")"`, dir); err != nil {
			return "", nil // tcpdump has ended, and Finish reports it
		}
		if err := sleepPollInterval(ctx); err != nil {
			return "", err
		}
		cpuSlicesBefore := cpuSlices(ctx, program, dir)
		process, err := program.state(ctx)
		if err != nil || process.Ended {
			return "", err
		}
		lines := strings.Split(process.Output, " | ")
		numbers := lines[len(lines)-1]
		if counted, received, err := tcpdumpStatistics(numbers); err == nil && counted.Frames+counted.Dropped >= received {
			return "", nil
		}
		if numbers != last {
			last, lastChange = numbers, time.Now()
		}
		if time.Since(lastChange) > drainTimeout {
			return "", nil // the missing frames show in the counts
		}
		for end := time.Now().Add(signalInterval); cpuSlices(ctx, program, dir) == cpuSlicesBefore &&
			time.Now().Before(end); {
			if err := sleepPollInterval(ctx); err != nil {
				return "", err
			}
		}
	}
}

// cpuSlices returns how many times the kernel has run the program on a CPU, as a number in text; empty when the program
// has ended. dir is the program's directory.
func cpuSlices(ctx context.Context, program daemon, dir string) string {
	const script = `read -r _ _ turns <"/proc/$(cat "$0/pid")/schedstat"; echo "$turns"`
	out, _ := program.host.Run(ctx, agent.Command{Argv: []string{"sh", "-ec", script, dir}, Support: true})
	return out.Stdout
}

// sleepPollInterval sleeps for pollEvery. It returns ctx's error when ctx ends first.
func sleepPollInterval(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollEvery):
		return nil
	}
}

// "1 packet captured", "12 packets received by filter" …
var tcpdumpNumbers = regexp.MustCompile(
	`(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)`)

// tcpdumpStatistics reads one set of tcpdump's numbers.
func tcpdumpStatistics(text string) (c Captured, received int64, err error) {
	found := map[string]int64{}
	for _, match := range tcpdumpNumbers.FindAllStringSubmatch(text, -1) {
		if found[match[2]], err = strconv.ParseInt(match[1], 10, 64); err != nil {
			return c, 0, err
		}
	}
	received, hasReceived := found["received by filter"]
	frames, hasCaptured := found["captured"]
	dropped, hasDropped := found["dropped by kernel"]
	if !hasReceived || !hasCaptured || !hasDropped {
		return c, 0, errors.New("tcpdump's three numbers are not there")
	}
	return Captured{Frames: frames, Dropped: dropped}, received, nil
}

// tcpdumpCounts reads the numbers that tcpdump prints at its end, each on a line of its own. It leaves out the answers
// to SIGUSR1, which are lines that begin with "tcpdump: ".
func tcpdumpCounts(text string) (Captured, error) {
	var last []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "tcpdump: ") {
			last = append(last, line)
		}
	}
	counted, received, err := tcpdumpStatistics(strings.Join(last, ""))
	counted.Waiting = max(0, received-counted.Frames-counted.Dropped)
	return counted, err
}

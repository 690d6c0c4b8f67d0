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

// Tcpdump captures into /dev/null, as study 2 had it: the frames reach user space, and nothing is done with them.
// It prints three numbers at its end, and any time it gets SIGUSR1:
//
//	captured             frames that tcpdump itself took from libpcap
//	received by filter   frames that passed the filter in the kernel, with those that were then dropped: the kernel adds
//	                     its drops to the count that libpcap reads (PACKET_STATISTICS)
//	dropped by kernel    of these, the ones for which the buffer had no room
//
// A fourth, "dropped by interface", is the interface's own count of missed frames, which the lab reads by itself.
//
// libpcap hands frames over in blocks of 256 KiB. A block that is not full is handed over one to two seconds after its
// first frame, and what tcpdump has not got by then is in none of the numbers but the second. Finish therefore asks
// until captured and dropped are all that was received. tcpdump's option for handing over each frame at once
// (--immediate-mode) would make it another, dearer program. A buffer (-B) is of whole blocks, so the least is 256 KiB.
type Tcpdump struct{ *capturePrograms }

var _ Capturing = Tcpdump{}

// NewTcpdump makes the device. It keeps so many bytes of each frame; zero leaves that to the settings, and without
// one to tcpdump: all of it.
func NewTcpdump(snap int, capture Capture) Tcpdump {
	if capture.Snap == 0 {
		capture.Snap = snap
	}
	return Tcpdump{newPrograms(captureProgram{
		name: "tcpdump",
		refuses: func(capture Capture) error {
			if snap > 0 && capture.Snap != snap {
				return fmt.Errorf(
					"it keeps %d bytes of each frame, not %d: choose tcpdump, which keeps as many as asked", snap, capture.Snap)
			}
			return refuseWork(capture)
		},
		argv: func(env Env, capture Capture, _ string) []string {
			return tcpdumpCommand(env, capture, "/dev/null")
		},
		ready:  "listening on",
		drain:  drainTcpdump,
		counts: tcpdumpCounts,
	}, capture)}
}

// refuseWork refuses work for each frame, which a program would have to be written for.
func refuseWork(capture Capture) error {
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
	return Traits{About: about, Needs: []Need{tcpdumpNeed}}
}

var tcpdumpNeed = Need{Program: "tcpdump", Package: "tcpdump", Why: "capturing", ProbeArg: "--version"}

// tcpdumpCommand captures into a file. As root, tcpdump opens file and interface and then becomes the user that its
// package has for it. -n keeps it from looking names up.
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

// drainTimeout is how long a program may take no frame although the kernel holds some for it. It is twice the time
// after which libpcap hands over its blocks.
const drainTimeout = 4 * time.Second

// signalInterval is how long tcpdump is left alone when it has not all frames and gets no CPU either.
const signalInterval = 500 * time.Millisecond

// drainTcpdump waits until tcpdump has taken all that it received and did not drop. An answer takes it 0.1 ms of CPU
// time, so it is asked again only when it has had a CPU since, or askEvery later.
func drainTcpdump(ctx context.Context, d daemon, dir string) (string, error) {
	var before string
	since := time.Now()
	for {
		if err := shell(ctx, d.host, `kill -USR1 "$(cat "$1/pid")"`, dir); err != nil {
			return "", nil // it has ended, as its end will show
		}
		if err := sleepPollInterval(ctx); err != nil {
			return "", err
		}
		had := cpuTurns(ctx, d, dir)
		p, err := d.state(ctx)
		if err != nil || p.Ended {
			return "", err
		}
		lines := strings.Split(p.Output, " | ")
		now := lines[len(lines)-1]
		if c, received, err := tcpdumpStatistics(now); err == nil && c.Frames+c.Dropped >= received {
			return "", nil
		}
		if now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > drainTimeout {
			return "", nil // it does not take them; the difference shows
		}
		for end := time.Now().Add(signalInterval); cpuTurns(ctx, d, dir) == had && time.Now().Before(end); {
			if err := sleepPollInterval(ctx); err != nil {
				return "", err
			}
		}
	}
}

// cpuTurns is how often the program that has a directory was given a CPU; empty where it has ended.
func cpuTurns(ctx context.Context, d daemon, dir string) string {
	const script = `read -r _ _ turns <"/proc/$(cat "$0/pid")/schedstat"; echo "$turns"`
	out, _ := d.host.Run(ctx, agent.Command{Argv: []string{"sh", "-ec", script, dir}, Support: true})
	return out.Stdout
}

// sleepPollInterval waits for pollEvery.
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

// tcpdumpStatistics reads one statement of tcpdump's.
func tcpdumpStatistics(text string) (c Captured, received int64, err error) {
	found := map[string]int64{}
	for _, m := range tcpdumpNumbers.FindAllStringSubmatch(text, -1) {
		if found[m[2]], err = strconv.ParseInt(m[1], 10, 64); err != nil {
			return c, 0, err
		}
	}
	received, heard := found["received by filter"]
	frames, took := found["captured"]
	dropped, counted := found["dropped by kernel"]
	if !heard || !took || !counted {
		return c, 0, errors.New("tcpdump's three numbers are not there")
	}
	return Captured{Frames: frames, Dropped: dropped}, received, nil
}

// tcpdumpCounts reads the statement at tcpdump's end: the last of all, each number on a line of its own. What SIGUSR1
// had it say before is on lines that begin with its name.
func tcpdumpCounts(text string) (Captured, error) {
	var last []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "tcpdump: ") {
			last = append(last, line)
		}
	}
	c, received, err := tcpdumpStatistics(strings.Join(last, ""))
	c.Waiting = max(0, received-c.Frames-c.Dropped)
	return c, err
}

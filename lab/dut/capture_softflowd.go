package dut

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Softflowd makes flow records (IPFIX) of the frames and sends them to 127.0.0.1, where no collector listens.
// softflowctl reports its statistics:
//
//	processed, ignored        frames that softflowd took: IP, and not IP
//	received by libpcap       frames that passed the filter in the kernel, including those dropped after it
//	dropped by libpcap        frames dropped after the filter because the buffer was full
//
// softflowd sets no timeout in libpcap, so libpcap hands frames over only in full blocks of 256 KiB. The frames of the
// last block, up to about 160 of 1514 bytes or 1700 of 60, stay in the buffer: Captured.Waiting.
type Softflowd struct{ *capturePrograms }

var _ Capturing = Softflowd{}

// NewSoftflowd makes the device.
func NewSoftflowd(capture Capture) Softflowd {
	return Softflowd{newPrograms(captureProgram{
		name:         "softflowd",
		checkSupport: rejectWork,
		argv: func(env Env, capture Capture, dir string) []string {
			argv := []string{"softflowd", "-d", "-i", env.Capture, "-v", "10", "-n", "127.0.0.1:4739", "-p", path.Join(dir,
				"softflowd.pid"), "-c", controlSocket(dir)}
			if capture.Snap > 0 {
				argv = append(argv, "-C", strconv.Itoa(capture.Snap))
			}
			if capture.BufferKiB > 0 {
				argv = append(argv, "-B", strconv.Itoa(capture.BufferKiB<<10))
			}
			if capture.Filter != "" {
				argv = append(argv, Filters[capture.Filter])
			}
			return argv
		},
		ready:  "Exporting flows",
		drain:  drainSoftflowd,
		counts: softflowdCounts,
	}, capture)}
}

// controlSocket is the socket between softflowctl and the softflowd whose directory is dir.
func controlSocket(dir string) string { return path.Join(dir, "softflowd.ctl") }

// Traits implements DUT.
func (Softflowd) Traits() Traits {
	return Traits{About: "softflowd (IPFIX)", Families: bothFamilies, Needs: []Need{
		{Program: "softflowd", Package: "softflowd", Why: "making flow records", ProbeArg: "-h"},
		{Program: "softflowctl", Package: "softflowd", Why: "asking softflowd what it counted"},
	}}
}

// drainSoftflowd waits until softflowd gives two equal answers in a row, and returns the answer. softflowd takes the
// full blocks before it answers, so two equal answers show that no frames came in between.
func drainSoftflowd(ctx context.Context, program daemon, dir string) (output string, err error) {
	for {
		ask := []string{"softflowctl", "-c", controlSocket(dir), "statistics"}
		out, err := program.host.Run(ctx, agent.Command{Argv: ask, Support: true, Timeout: drainTimeout})
		if process, bad := program.state(ctx); bad != nil || process.Ended {
			return "", bad
		}
		if err != nil {
			return "", fmt.Errorf("asking %s what it counted: %w", program.name, err)
		}
		if out.Stdout == output {
			return output, nil
		}
		output = out.Stdout
		if err := sleepPollInterval(ctx); err != nil {
			return "", err
		}
	}
}

// "Packets processed: 12", "Ignored packets: 3 (3 non-IP, 0 too short)" …
var softflowdNumbers = regexp.MustCompile(
	`(?m)^(Packets processed|Ignored packets|Packets received by libpcap|Packets dropped by libpcap): (\d+)`)

// softflowdCounts reads softflowctl's statistics.
func softflowdCounts(text string) (counted Captured, err error) {
	found := map[string]int64{}
	for _, match := range softflowdNumbers.FindAllStringSubmatch(text, -1) {
		if found[match[1]], err = strconv.ParseInt(match[2], 10, 64); err != nil {
			return counted, err
		}
	}
	if len(found) != 4 {
		return counted, errors.New("softflowctl's four numbers are not there")
	}
	counted.Frames, counted.Dropped = found["Packets processed"]+found["Ignored packets"],
		found["Packets dropped by libpcap"]
	counted.Waiting = max(0, found["Packets received by libpcap"]-counted.Frames-counted.Dropped)
	return counted, nil
}

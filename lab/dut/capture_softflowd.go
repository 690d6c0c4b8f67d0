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

// Softflowd makes flow records (IPFIX) of the frames and sends them to the host itself, where nobody listens. Its
// statistics come from softflowctl:
//
//	processed, ignored        frames that it took, those that are not IP apart
//	received by libpcap       frames that passed the filter in the kernel, with those that were then dropped
//	dropped by libpcap        of these, the ones for which the buffer had no room
//
// It asks libpcap for no timeout, so libpcap hands frames over in full blocks of 256 KiB only, however long that takes.
// The frames of the last block, some 160 of 1514 bytes or 1700 of 60, stay where they are: Captured.Waiting.
type Softflowd struct{ *capturePrograms }

var _ Capturing = Softflowd{}

// NewSoftflowd makes the device.
func NewSoftflowd(capture Capture) Softflowd {
	return Softflowd{newPrograms(captureProgram{
		name:    "softflowd",
		refuses: refuseWork,
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

// controlSocket is the socket by which softflowctl asks.
func controlSocket(dir string) string { return path.Join(dir, "softflowd.ctl") }

// Traits implements DUT.
func (Softflowd) Traits() Traits {
	return Traits{About: "softflowd (IPFIX)", Needs: []Need{
		{Program: "softflowd", Package: "softflowd", Why: "making flow records", ProbeArg: "-h"},
		{Program: "softflowctl", Package: "softflowd", Why: "asking softflowd what it counted"},
	}}
}

// drainSoftflowd waits until softflowd has taken all frames from libpcap, which it shows by two equal answers in a row.
// softflowd answers after it has taken the full blocks, so the second answer shows that no more frames came.
func drainSoftflowd(ctx context.Context, d daemon, dir string) (output string, err error) {
	for {
		ask := []string{"softflowctl", "-c", controlSocket(dir), "statistics"}
		out, err := d.host.Run(ctx, agent.Command{Argv: ask, Support: true, Timeout: drainTimeout})
		if p, bad := d.state(ctx); bad != nil || p.Ended {
			return "", bad
		}
		if err != nil {
			return "", fmt.Errorf("asking %s what it counted: %w", d.name, err)
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

// softflowdCounts reads what softflowctl said.
func softflowdCounts(text string) (c Captured, err error) {
	found := map[string]int64{}
	for _, m := range softflowdNumbers.FindAllStringSubmatch(text, -1) {
		if found[m[1]], err = strconv.ParseInt(m[2], 10, 64); err != nil {
			return c, err
		}
	}
	if len(found) != 4 {
		return c, errors.New("softflowctl's four numbers are not there")
	}
	c.Frames, c.Dropped = found["Packets processed"]+found["Ignored packets"], found["Packets dropped by libpcap"]
	c.Waiting = max(0, found["Packets received by libpcap"]-c.Frames-c.Dropped)
	return c, nil
}

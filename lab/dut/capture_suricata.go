package dut

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// Suricata is an intrusion detection system, here without rules: it decodes each frame and tracks flows and TCP
// streams, its work for a frame that matches no rule. It captures with TPACKET_V3, in one thread for each of its CPUs.
// At its end it writes:
//
//	decoder.pkts              frames that suricata took
//	capture.kernel_packets    frames that passed the filter in the kernel, including those dropped after it
//	capture.kernel_drops      frames dropped after the filter because the buffer was full; left out when 0
//
// A signal ends suricata before it has taken the frames in the buffer, so drain first waits until suricata is idle.
type Suricata struct{ *capturePrograms }

var _ Capturing = Suricata{}

// NewSuricata makes the device.
func NewSuricata(capture Capture) Suricata {
	return Suricata{newPrograms(captureProgram{
		name: "suricata",
		checkSupport: func(capture Capture) error {
			if capture.Snap > 0 {
				return fmt.Errorf("it takes whole frames, and not %d bytes of each: leave the snap length out", capture.Snap)
			}
			return rejectWork(capture)
		},
		argv: func(env Env, capture Capture, dir string) []string {
			return []string{"sh", "-c", runSuricata, "sh", dir, suricataSettings(env, capture, dir), env.Capture}
		},
		ready:  "Engine started",
		drain:  awaitIdle,
		counts: suricataCounts,
		grace:  30 * time.Second, // suricata ends within two seconds, on a busy machine later
	}, capture)}
}

// Traits implements DUT.
func (Suricata) Traits() Traits {
	return Traits{About: "suricata without rules", Families: bothFamilies, Needs: []Need{{
		Program: "suricata", ProbeArg: "-V", Why: "looking for intruders",
		Advice: "sudo apt-get install suricata, on Debian 12 from bookworm-backports",
	}}}
}

// runSuricata runs suricata and prints its statistics after its end. Arguments: $1 its directory, $2 its settings, $3
// the interface. The shell ignores the signals that end suricata.
const runSuricata = `cd "$1" || exit 1
printf %s "$2" >suricata.yaml
trap : TERM HUP INT
suricata -c suricata.yaml --af-packet="$3" -S /dev/null -l "$1" &
pid=$!
echo $pid >pid
while kill -0 $pid 2>/dev/null; do
	wait $pid
	status=$?
done
[ $status -eq 0 ] && cat stats.log
exit $status`

// suricataBlock is the size in bytes of a block of suricata's ring. suricataFrames is the number of ring frames in a
// block for an interface with an MTU of 1500.
const suricataBlock, suricataFrames = 32 << 10, 20

// suricataSettings is suricata's whole configuration; suricata reads no file in /etc. By default suricata switches the
// interface's offloads off. disable-offloading prevents that: the lab has set them, and without GRO the interface would
// have no polling thread.
func suricataSettings(env Env, capture Capture, dir string) string {
	// Programs with the same cluster-id on one interface would share the frames. Each program must get all frames.
	number := fnv.New32()
	number.Write([]byte(dir))
	link := []string{
		"interface: " + env.Capture,
		"threads: " + strconv.Itoa(max(1, len(capture.CPUs))),
		fmt.Sprintf("cluster-id: %d", number.Sum32()%60_000+1),
		"cluster-type: cluster_flow",
		"defrag: yes",
		"tpacket-v3: yes",
		"block-size: " + strconv.Itoa(suricataBlock),
	}
	if capture.BufferKiB > 0 {
		blocks := max(1, capture.BufferKiB<<10/suricataBlock)
		link = append(link, "ring-size: "+strconv.Itoa(max(1, (blocks-1)*suricataFrames)))
	}
	if capture.Filter != "" {
		link = append(link, fmt.Sprintf("bpf-filter: %q", Filters[capture.Filter]))
	}
	return `%YAML 1.1
---
stats: {enabled: yes, interval: 3600}
outputs:
  - stats: {enabled: yes, filename: stats.log, append: no, threads: no}
logging: {outputs: [{console: {enabled: yes, level: info}}]}
unix-command: {enabled: no}
capture: {disable-offloading: no}
classification-file: /dev/null
reference-config-file: /dev/null
threshold-file: /dev/null
af-packet:
  - ` + strings.Join(link, "\n    ") + "\n"
}

const (
	idleInterval = 100 * time.Millisecond // ten times the time that frames wait in a block that is not full
	maxIdleWork  = 5 * time.Millisecond   // the most CPU time within idleInterval for suricata to count as idle
)

// suricataWork prints the CPU time in ns of suricata's capture threads (W#01-IF, W#02-IF, …), or "busy" while one of
// them runs or waits for a CPU. $1 is the program's directory.
const suricataWork = `for thread in /proc/$(cat "$1/pid")/task/*; do
	case $(cat $thread/comm) in W*) cat $thread/status $thread/schedstat ;; esac
done | awk '/^State:/ {busy += $2 == "R"} NF == 3 && /^[0-9]/ {ns += $1} END {if (busy) print "busy"; else printf "%.0f\n", ns}'`

// awaitIdle waits until suricata's capture threads sleep. After readyTimeout it gives up without an error; the frames
// that suricata has not taken then show in its counts.
func awaitIdle(ctx context.Context, program daemon, dir string) (string, error) {
	before := int64(-1)
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); {
		out, err := program.host.Run(ctx, agent.Command{Argv: []string{"sh", "-c", suricataWork, "sh", dir}, Support: true})
		if err != nil {
			return "", fmt.Errorf("reading how busy %s is: %w", program.name, err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(out.Stdout), 10, 64)
		switch {
		case err != nil: // busy
			before = -1
		case before >= 0 && time.Duration(ns-before) < maxIdleWork:
			return "", nil // idle, or ended: then the two times are equal, and Finish reports the end
		default:
			before = ns
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(idleInterval):
		}
	}
	return "", nil
}

// "decoder.pkts              | Total        | 20" …
var suricataNumbers = regexp.MustCompile(
	`(?m)^(decoder\.pkts|capture\.kernel_packets|capture\.kernel_drops) *\| *Total *\| *(\d+) *$`)

// suricataCounts reads the statistics that suricata writes at its end. They leave out counters that are zero.
func suricataCounts(text string) (counted Captured, err error) {
	if !strings.Contains(text, "\nCounter ") {
		return counted, errors.New("suricata's statistics are not there")
	}
	found := map[string]int64{}
	for _, match := range suricataNumbers.FindAllStringSubmatch(text, -1) {
		if found[match[1]], err = strconv.ParseInt(match[2], 10, 64); err != nil {
			return counted, err
		}
	}
	counted.Frames, counted.Dropped = found["decoder.pkts"], found["capture.kernel_drops"]
	counted.Waiting = max(0, found["capture.kernel_packets"]-counted.Frames-counted.Dropped)
	return counted, nil
}

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

// Suricata looks for intruders without a rule: it decodes each frame and follows flows and streams, which is its work
// for frames that match nothing. It captures with TPACKET_V3 in as many threads as it has CPUs. At its end it writes:
//
//	decoder.pkts              frames that it took
//	capture.kernel_packets    frames that passed the filter in the kernel, with those that were then dropped
//	capture.kernel_drops      of these, the ones for which the buffer had no room; not there when none was
//
// What it has not taken when it is asked to end stays untaken, so Finish first waits until it rests.
type Suricata struct{ *capturePrograms }

var _ Capturing = Suricata{}

// NewSuricata makes the device.
func NewSuricata(capture Capture) Suricata {
	return Suricata{newPrograms(captureProgram{
		name: "suricata",
		refuses: func(capture Capture) error {
			if capture.Snap > 0 {
				return fmt.Errorf("it takes whole frames, and not %d bytes of each: leave the snap length out", capture.Snap)
			}
			return refuseWork(capture)
		},
		argv: func(env Env, capture Capture, dir string) []string {
			return []string{"sh", "-c", runSuricata, "sh", dir, suricataSettings(env, capture, dir), env.Capture}
		},
		ready:  "Engine started",
		drain:  awaitRest,
		counts: suricataCounts,
		grace:  30 * time.Second, // its end takes one to two, and more on a busy machine
	}, capture)}
}

// Traits implements DUT.
func (Suricata) Traits() Traits {
	return Traits{About: "suricata without rules", Needs: []Need{{
		Program: "suricata", ProbeArg: "-V", Why: "looking for intruders",
		Advice: "sudo apt-get install suricata, on Debian 12 from bookworm-backports",
	}}}
}

// runSuricata runs suricata and prints its statistics after its end: $1 is its directory, $2 its settings, $3 the
// interface. It ignores what ends suricata.
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

// A block of suricata's ring, bytes, and how many of its frames fill one: as many as links of 1500 bytes have.
const suricataBlock, suricataFrames = 32 << 10, 20

// suricataSettings is all that suricata reads; its own files in /etc are not touched. It would switch the interface's
// offloads off, which the lab has set, and with GRO the thread that polls the interface.
func suricataSettings(env Env, capture Capture, dir string) string {
	// Programs of one interface and one number would share its frames instead of each getting all.
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
	idleInterval = 100 * time.Millisecond // ten times what frames wait in a block that is not full
	maxIdleWork  = 5 * time.Millisecond   // of work in that time
)

// suricataWork is how long suricata's capture threads, W#01-IF and on, have worked, ns, or "busy" while one works or
// waits for a CPU. $1 is the program's directory.
const suricataWork = `for thread in /proc/$(cat "$1/pid")/task/*; do
	case $(cat $thread/comm) in W*) cat $thread/status $thread/schedstat ;; esac
done | awk '/^State:/ {busy += $2 == "R"} NF == 3 && /^[0-9]/ {ns += $1} END {if (busy) print "busy"; else printf "%.0f\n", ns}'`

// awaitRest waits until suricata has nothing to do: its capture threads sleep. One that never rests is ended after a
// while all the same; the difference shows in its counts.
func awaitRest(ctx context.Context, d daemon, dir string) (string, error) {
	before := int64(-1)
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); {
		out, err := d.host.Run(ctx, agent.Command{Argv: []string{"sh", "-c", suricataWork, "sh", dir}, Support: true})
		if err != nil {
			return "", fmt.Errorf("reading how busy %s is: %w", d.name, err)
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(out.Stdout), 10, 64)
		switch {
		case err != nil: // busy
			before = -1
		case before >= 0 && time.Duration(ns-before) < maxIdleWork:
			return "", nil // which it also has when it has ended, as its end will show
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

// suricataCounts reads the statistics at suricata's end. Numbers that are zero are not among them.
func suricataCounts(text string) (c Captured, err error) {
	if !strings.Contains(text, "\nCounter ") {
		return c, errors.New("suricata's statistics are not there")
	}
	found := map[string]int64{}
	for _, m := range suricataNumbers.FindAllStringSubmatch(text, -1) {
		if found[m[1]], err = strconv.ParseInt(m[2], 10, 64); err != nil {
			return c, err
		}
	}
	c.Frames, c.Dropped = found["decoder.pkts"], found["capture.kernel_drops"]
	c.Waiting = max(0, found["capture.kernel_packets"]-c.Frames-c.Dropped)
	return c, nil
}

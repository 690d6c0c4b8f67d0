package transition

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// The tests of this file compare the times of probes, as this package notes them, with the times that perf and tcpdump
// note for the same events.

// agreeUs is the largest allowed difference between the times of two meters, µs, median of a run. The authors of study
// 4 found 4 µs between their meters.
const agreeUs = 5.0

// comparedStamps compares one time of the probes with another meter's.
type comparedStamps struct {
	what  string              // name of the time
	other []int64             // the other meter's times, ns
	ours  func(Passage) int64 // the same time of a probe, ns
}

// Times of a probe: at its tap i, and at its ends.
func stopAt(i int) func(Passage) int64 { return func(p Passage) int64 { return p.StopNs[i] } }
func writeTime(p Passage) int64        { return p.WriteNs }
func queueTime(p Passage) int64        { return p.QueuedNs }
func leaveTime(p Passage) int64        { return p.LeftNs }
func read(p Passage) int64             { return p.ReadNs }

// TestTracepoints compares each time of a probe with tracepoints, which perf records.
func TestTracepoints(t *testing.T) {
	c := newChain(t)
	agree(t, func() (Passages, []comparedStamps) {
		perf := startPerf(t, c.way.Run)
		m := c.match(c.run(t))
		points := perf.stop(t)
		return m, []comparedStamps{
			{"write against sys_enter_sendto", points["sys_enter_sendto"], writeTime},
			{"queued against net_dev_queue", points["net_dev_queue gwtc"], queueTime},
			{"left against net_dev_start_xmit", points["net_dev_start_xmit gwtc"], leaveTime},
			{"the router's arrival against netif_receive_skb", points["netif_receive_skb gwtr"], stopAt(0)},
			{"the router's departure against net_dev_queue", points["net_dev_queue gwtq"], stopAt(1)},
			{"the server's arrival against netif_receive_skb", points["netif_receive_skb gwts"], stopAt(2)},
			{"read against sys_exit_read", points["sys_exit_read"], read},
		}
	})
}

// TestTcpdump compares the times of frames with those of tcpdump. tcpdump's own work lies between its stamp of an
// outgoing frame and the driver.
func TestTcpdump(t *testing.T) {
	c := newChain(t)
	agree(t, func() (Passages, []comparedStamps) {
		dumps := []*tcpdump{startTcpdump(t, c.client, "gwtc"), startTcpdump(t, c.router, "gwtr"), startTcpdump(t, c.router,
			"gwtq"), startTcpdump(t, c.server, "gwts")}
		m := c.match(c.run(t))
		var times [][]int64
		for _, d := range dumps {
			times = append(times, d.stop(t, c.way.Run, relateClocks()))
		}
		return m, []comparedStamps{
			{"queued", times[0], queueTime}, {"the router's arrival", times[1], stopAt(0)},
			{"the router's departure", times[2], stopAt(1)}, {"the server's arrival", times[3], stopAt(2)},
		}
	})
}

// maxComparisons is the largest number of runs. If another program runs between the two meters' stamps, their times
// differ in that run. Meters that really differ do so in every run.
const maxComparisons = 15

// agree makes both meters observe runs until each pair of times has agreed in one of them.
func agree(t *testing.T, observe func() (Passages, []comparedStamps)) {
	t.Helper()
	best := map[string]float64{} // median, µs
	for n := 1; ; n++ {
		m, list := observe()
		apart := 0
		for _, of := range list {
			median := math.Inf(1)
			if len(m.List) >= m.Counts.Sent/2 { // otherwise too few probes of this run have times
				median = of.apart(t, m)
			}
			if least, known := best[of.what]; !known || median < least {
				best[of.what] = median
			}
			if best[of.what] > agreeUs {
				apart++
			}
		}
		switch {
		case apart == 0:
			return
		case n == maxComparisons:
			for what, median := range best {
				if median > agreeUs {
					t.Errorf("%s: the medians of %d runs are %.1f µs apart and more, which is more than %g µs", what, maxComparisons,
						median,
						agreeUs)
				}
			}
			return
		}
	}
}

// apart returns the median difference between our times and the other meter's, µs.
func (of comparedStamps) apart(t *testing.T, m Passages) float64 {
	ours := make([]int64, len(m.List))
	for i, p := range m.List {
		ours[i] = of.ours(p)
	}
	apart := nearest(ours, of.other)
	if len(apart) == 0 {
		t.Fatalf("%s: nothing to compare", of.what)
	}
	median, p90 := float64(apart[len(apart)/2])/1e3, float64(apart[len(apart)*9/10])/1e3
	t.Logf("%s: median %.2f µs apart, 90th percentile %.2f µs, %d probes", of.what, median, p90, len(apart))
	return median
}

// nearest returns the distance of each time to the nearest of the others, sorted; nil if there are no others.
func nearest(times, others []int64) (apart []int64) {
	slices.Sort(others)
	for _, at := range times {
		i, _ := slices.BinarySearch(others, at)
		best := int64(-1)
		for _, j := range []int{i - 1, i} {
			if j >= 0 && j < len(others) && (best < 0 || abs(others[j]-at) < best) {
				best = abs(others[j] - at)
			}
		}
		if best >= 0 {
			apart = append(apart, best)
		}
	}
	slices.Sort(apart)
	return apart
}

// perfRecord is a running perf record.
type perfRecord struct {
	cmd  *exec.Cmd
	file string
}

// startPerf starts perf, which records the system calls and frames of probes with CLOCK_MONOTONIC times. When it
// returns, perf is recording.
func startPerf(t *testing.T, r Run) perfRecord {
	t.Helper()
	dir := t.TempDir()
	p := perfRecord{file: filepath.Join(dir, "perf.data")}
	control, answer := filepath.Join(dir, "control"), filepath.Join(dir, "answer")
	for _, fifo := range []string{control, answer} {
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	frame, data := fmt.Sprintf("len == %d", r.FrameBytes()), strconv.Itoa(r.Bytes)
	arrived := fmt.Sprintf("len == %d", r.FrameBytes()-14) // without the Ethernet header
	args := []string{"record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-o", p.file, "-D", "-1", "--control", "fifo:" +
		control + "," + answer}
	for _, e := range [][2]string{
		{"net:net_dev_queue", frame}, {"net:net_dev_start_xmit", frame}, {"net:netif_receive_skb", arrived},
		{"syscalls:sys_enter_sendto", "len == " + data}, {"syscalls:sys_exit_sendto", "ret == " + data},
		{"syscalls:sys_exit_read", "ret == " + data},
	} {
		args = append(args, "-e", e[0], "--filter", e[1])
	}
	p.cmd = exec.Command("perf", args...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // it mounts tracefs, and leaves it there
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill() })
	to, err := os.OpenFile(control, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	from, err := os.OpenFile(answer, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	fmt.Fprintln(to, "enable")
	from.SetReadDeadline(time.Now().Add(2 * time.Minute))
	if text, err := bufio.NewReader(from).ReadString('\n'); err != nil {
		t.Fatalf("perf does not record: %q, %v", text, err)
	}
	return p
}

// line matches a line of perf script: time, event and device.
var line = regexp.MustCompile(`\s(\d+)\.(\d{9}): +\w+:(\w+): (?:dev=(\S+))?`)

// stop ends the recording, and returns the times of events by their names, with those of devices.
func (p perfRecord) stop(t *testing.T) map[string][]int64 {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGINT)
	p.cmd.Wait()
	out, err := exec.Command("perf", "script", "--ns", "-i", p.file).Output()
	if err != nil {
		t.Fatal(err)
	}
	events := map[string][]int64{}
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		name := strings.TrimSpace(m[3] + " " + m[4])
		events[name] = append(events[name], nanos(m[1], m[2]))
	}
	return events
}

// nanos is a time that is printed in seconds with nine decimals.
func nanos(seconds, decimals string) int64 {
	s, _ := strconv.ParseInt(seconds, 10, 64)
	ns, _ := strconv.ParseInt(decimals, 10, 64)
	return s*1e9 + ns
}

// tcpdump is a running tcpdump.
type tcpdump struct {
	cmd  *exec.Cmd
	file string // of what it prints
}

// startTcpdump starts tcpdump on an interface. When it returns, tcpdump is capturing.
func startTcpdump(t *testing.T, s *netnstest.Space, ifname string) *tcpdump {
	t.Helper()
	d := &tcpdump{file: filepath.Join(t.TempDir(), "out")}
	out, err := os.Create(d.file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	// tcpdump takes frames in blocks. If it were woken for each, it would have the CPU between its stamp and the tap's.
	d.cmd = exec.Command("tcpdump", "-n", "-tt", "-l", "--time-stamp-precision", "nano", "-j", "host", "-i", ifname, "tcp")
	d.cmd.Stdout = out
	said, err := d.cmd.StderrPipe()
	if err == nil {
		s.Do(func() { err = d.cmd.Start() })
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.cmd.Process.Kill() })
	lines := bufio.NewReader(said)
	for text := ""; !strings.Contains(text, "listening on"); {
		if text, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("tcpdump does not capture: %v", err)
		}
	}
	go io.Copy(io.Discard, lines)
	return d
}

var captured = regexp.MustCompile(`(?m)^(\d+)\.(\d{9}) .* length (\d+)$`)

// stop returns the times of frames with probes, once it has all.
func (d *tcpdump) stop(t *testing.T, r Run, c clocks) (times []int64) {
	t.Helper()
	labtest.Await(t, "tcpdump to print the probes", func() bool {
		text, err := os.ReadFile(d.file)
		if err != nil {
			t.Fatal(err)
		}
		times = nil
		for _, m := range captured.FindAllStringSubmatch(string(text), -1) {
			if m[3] == strconv.Itoa(r.Bytes) {
				times = append(times, nanos(m[1], m[2])+c.offsetNs)
			}
		}
		return len(times) >= r.Count
	})
	d.cmd.Process.Signal(syscall.SIGINT)
	d.cmd.Wait()
	return times
}

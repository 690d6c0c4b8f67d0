package sink

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// TestMain makes the test binary a sink when its first argument is "sink". Otherwise it runs the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "sink" {
		if err := Main(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// wire is a network of a generator and a bridge that forwards each frame to a monitor. The kernel's protocols add no
// frames to it.
//
//	generator g0 ── in0 [bridge] out0 ── s0 monitor
type wire struct {
	generator, bridge, monitor *netnstest.Space
	reference                  *kernelCounter // counts at s0 what an AF_XDP sink has not taken
}

// newWire builds the network and waits until its links are up.
func newWire(t testing.TB) wire {
	t.Helper()
	network := wire{netnstest.NewSpace(t), netnstest.NewSpace(t), netnstest.NewSpace(t), &kernelCounter{promiscuity: -1}}
	for _, space := range []*netnstest.Space{network.generator, network.bridge, network.monitor} {
		space.Run(t, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1") // of links made later
	}
	network.bridge.Run(t, `ip link add br0 type bridge mcast_snooping 0
ip link add in0 type veth peer name g0 netns "$generator"; ip link add out0 type veth peer name s0 netns "$monitor"; ip link add end0 type veth peer name end1
ip link set br0 up; ip link set end1 up; for port in end0 in0 out0; do ip link set "$port" master br0 up; done`,
		fmt.Sprintf("generator=%d", network.generator.TID()), fmt.Sprintf("monitor=%d", network.monitor.TID()))
	network.generator.Run(t, "ip link set g0 up")
	network.monitor.Run(t, `ip link set s0 up; until ip link show s0 | grep -q "state UP"; do sleep 0.01; done`)
	network.bridge.Run(t, `until [ "$(bridge link | grep -c "state forwarding")" = 3 ]; do sleep 0.01; done`)
	var err error
	network.monitor.Do(func() {
		var target port
		if target, err = findPort("s0"); err == nil {
			target.ns.Close()
			err = network.reference.open(target)
		}
	})
	t.Cleanup(network.reference.close)
	if err != nil {
		t.Fatal(err)
	}
	return network
}

// framesSeen returns the number of frames that the monitor's sinks have seen.
func (w wire) framesSeen(t testing.TB) (n int64) {
	t.Helper()
	var count counter
	if err := w.reference.read(&count); err != nil {
		t.Fatal(err)
	}
	var out []byte
	var err error
	w.monitor.Do(func() { out, err = exec.Command("ethtool", "-S", "s0").Output() })
	for line := range strings.Lines(string(out)) {
		_, _ = fmt.Sscanf(strings.TrimSpace(line), "rx_queue_0_xdp_packets: %d", &n)
	}
	if err != nil {
		t.Fatal(err)
	}
	return count.frames + n
}

// send sends frames to an address that no host has. It returns their number by size, once the monitor has seen each
// frame that the bridge could forward.
func (w wire) send(t testing.TB, cfg frames.Config) map[int]int64 {
	t.Helper()
	sent := func(counter string) int64 { return counter64(t, w.bridge, "out0", counter) }
	before, dropped, came := sent("tx_packets"), sent("tx_dropped"), w.framesSeen(t)
	sizes := w.generate(t, cfg)
	labtest.Await(t, "the monitor to see all frames", func() bool {
		passed := sent("tx_packets") - before
		return passed+sent("tx_dropped")-dropped == totalFrames(sizes) && w.framesSeen(t)-came == passed
	})
	return sizes
}

// generate sends frames and returns their number by size, once the sender has ended.
func (w wire) generate(t testing.TB, cfg frames.Config) map[int]int64 {
	t.Helper()
	plan, err := frames.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var sender *send.Sender
	w.generator.Do(func() {
		sender, err = send.Start(context.Background(), send.Config{Link: "g0", Plan: plan, Engine: send.EnginePacket,
			MaxFor: 30 * time.Second, Streams: []send.Stream{{
				SrcMAC: send.MAC{2, 0, 0, 0, 0, 1}, DstMAC: send.MAC{2, 0, 0, 0, 0, 2},
				Src: netip.MustParseAddrPort("10.78.0.1:4000"),
				Dst: netip.AddrPortFrom(netip.MustParseAddr("10.78.0.2"), frames.Port),
			}}})
	})
	if err == nil {
		err = sender.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[int]int64{}
	for _, size := range sender.Stats().BySize {
		sizes[size.Bytes] = size.Frames
	}
	return sizes
}

// totalFrames adds up the numbers of frames of all sizes.
func totalFrames(sizes map[int]int64) (n int64) {
	for frames := range maps.Values(sizes) {
		n += frames
	}
	return n
}

// counter64 reads a 64-bit counter of an interface, such as "tx_packets".
func counter64(t testing.TB, space *netnstest.Space, name, counter string) (n int64) {
	t.Helper()
	var out []byte
	var err error
	space.Do(func() { out, err = exec.Command("ip", "-s", "-j", "link", "show", name).Output() })
	var links []struct {
		Stats map[string]map[string]int64 `json:"stats64"`
	}
	way, what, _ := strings.Cut(counter, "_")
	if err := errors.Join(err, json.Unmarshal(out, &links)); err != nil || len(links) != 1 {
		t.Fatalf("counters of %s: %v: %s", name, err, out)
	}
	return links[0].Stats[way][what]
}

// process is a sink in a process of its own.
type process struct {
	*exec.Cmd
	name   string
	out    *bufio.Reader
	stderr bytes.Buffer
}

// start starts a sink in a namespace and returns once it captures.
func start(t testing.TB, space *netnstest.Space, cfg Config) *process {
	t.Helper()
	return launch(t, space, cfg).ready(t)
}

// ready returns once the sink captures.
func (p *process) ready(t testing.TB) *process {
	t.Helper()
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		_ = p.Wait()
		t.Fatalf("%s: %q, %v: %s", p.name, line, err, &p.stderr)
	}
	return p
}

// launch starts a sink in a namespace and does not wait until it captures. attr change the process before its start.
func launch(t testing.TB, space *netnstest.Space, cfg Config, attr ...func(*exec.Cmd)) *process {
	t.Helper()
	running := &process{Cmd: exec.Command("/proc/self/exe", "sink", cfg.Arg()), name: fmt.Sprintf("%+v", cfg)}
	running.SysProcAttr = &syscall.SysProcAttr{}
	for _, change := range attr {
		change(running.Cmd)
	}
	running.Stderr = &running.stderr
	pipe, err := running.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	running.out = bufio.NewReader(pipe)
	space.Do(func() { err = running.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Process.Kill() })
	return running
}

// endAndCount ends the sink by SIGTERM and returns its counts.
func (p *process) endAndCount(t testing.TB) Counts {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%s has ended before: %s", p.name, &p.stderr)
	}
	counts, err := p.ended(t)
	if err != nil || p.stderr.Len() > 0 {
		t.Errorf("%s: %v: %s", p.name, err, &p.stderr)
	}
	return counts
}

// ended waits for the sink's end and returns its counts.
func (p *process) ended(t testing.TB) (counts Counts, err error) {
	t.Helper()
	line, _ := p.out.ReadString('\n') // a missing line is no JSON
	err = p.Wait()
	if bad := json.Unmarshal([]byte(line), &counts); bad != nil {
		t.Errorf("%s: counts %q: %v: %v: %s", p.name, line, bad, err, &p.stderr)
	}
	return counts, err
}

// mixedSizes returns a plan of n frames of four sizes. rate is frames a second; 0: all at once.
func mixedSizes(t testing.TB, n int64, rate float64) frames.Config {
	t.Helper()
	sizes, err := frames.Histogram("test", []frames.Weight{{Bytes: 60, Weight: 4}, {Bytes: 61, Weight: 2}, {Bytes: 590,
		Weight: 1}, {Bytes: 1514, Weight: 3}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := frames.Config{Sizes: sizes, Count: n, Seed: 1, Schedule: frames.Schedule{PacketsPerSecond: rate}}
	if rate == 0 {
		cfg.Schedule = frames.Schedule{AtOnce: true}
	}
	return cfg
}

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

// TestMain lets the test binary be a sink.
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

// wire is a generator, a bridge that sends each frame on to a monitor, and nothing else: no protocol of the kernel's
// adds frames.
//
//	generator g0 ── in0 [bridge] out0 ── s0 monitor
type wire struct {
	generator, bridge, monitor *netnstest.Space
	passed                     *inKernel // behind all sinks but AF_XDP's
}

func newWire(t testing.TB) wire {
	t.Helper()
	w := wire{netnstest.NewSpace(t), netnstest.NewSpace(t), netnstest.NewSpace(t), &inKernel{promiscuity: -1}}
	for _, s := range []*netnstest.Space{w.generator, w.bridge, w.monitor} {
		s.Run(t, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1") // of links made later
	}
	w.bridge.Run(t, `ip link add br0 type bridge mcast_snooping 0
ip link add in0 type veth peer name g0 netns "$generator"; ip link add out0 type veth peer name s0 netns "$monitor"; ip link add end0 type veth peer name end1
ip link set br0 up; ip link set end1 up; for port in end0 in0 out0; do ip link set "$port" master br0 up; done`,
		fmt.Sprintf("generator=%d", w.generator.TID()), fmt.Sprintf("monitor=%d", w.monitor.TID()))
	w.generator.Run(t, "ip link set g0 up")
	w.monitor.Run(t, `ip link set s0 up; until ip link show s0 | grep -q "state UP"; do sleep 0.01; done`)
	w.bridge.Run(t, `until [ "$(bridge link | grep -c "state forwarding")" = 3 ]; do sleep 0.01; done`)
	var err error
	w.monitor.Do(func() {
		var target port
		if target, err = findPort("s0"); err == nil {
			target.ns.Close()
			err = w.passed.open(target)
		}
	})
	t.Cleanup(w.passed.close)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// arrived is how many frames the monitor's sinks have seen.
func (w wire) arrived(t testing.TB) (n int64) {
	t.Helper()
	var c counter
	if err := w.passed.read(&c); err != nil {
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
	return c.frames + n
}

// send sends a plan of frames to an address that nobody has. It returns once the monitor has seen each that the bridge
// could send on.
func (w wire) send(t testing.TB, cfg frames.Config) map[int]int64 {
	t.Helper()
	sent := func(counter string) int64 { return counter64(t, w.bridge, "out0", counter) }
	before, dropped, came := sent("tx_packets"), sent("tx_dropped"), w.arrived(t)
	sizes := w.generate(t, cfg)
	labtest.Await(t, "the monitor to see all frames", func() bool {
		passed := sent("tx_packets") - before
		return passed+sent("tx_dropped")-dropped == totalFrames(sizes) && w.arrived(t)-came == passed
	})
	return sizes
}

// generate sends a plan of frames and returns their sizes once they have left.
func (w wire) generate(t testing.TB, cfg frames.Config) map[int]int64 {
	t.Helper()
	plan, err := frames.NewPlan(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var s *send.Sender
	w.generator.Do(func() {
		s, err = send.Start(context.Background(), send.Config{Link: "g0", Plan: plan, Engine: send.EnginePacket,
			MaxFor: 30 * time.Second, Streams: []send.Stream{{
				SrcMAC: send.MAC{2, 0, 0, 0, 0, 1}, DstMAC: send.MAC{2, 0, 0, 0, 0, 2},
				Src: netip.MustParseAddrPort("10.78.0.1:4000"),
				Dst: netip.AddrPortFrom(netip.MustParseAddr("10.78.0.2"), frames.Port),
			}}})
	})
	if err == nil {
		err = s.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[int]int64{}
	for _, size := range s.Stats().BySize {
		sizes[size.Bytes] = size.Frames
	}
	return sizes
}

func totalFrames(sizes map[int]int64) (n int64) {
	for frames := range maps.Values(sizes) {
		n += frames
	}
	return n
}

// counter64 reads a counter of an interface.
func counter64(t testing.TB, s *netnstest.Space, name, counter string) (n int64) {
	t.Helper()
	var out []byte
	var err error
	s.Do(func() { out, err = exec.Command("ip", "-s", "-j", "link", "show", name).Output() })
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
func start(t testing.TB, s *netnstest.Space, cfg Config) *process {
	t.Helper()
	return launch(t, s, cfg).ready(t)
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

func launch(t testing.TB, s *netnstest.Space, cfg Config, attr ...func(*exec.Cmd)) *process {
	t.Helper()
	p := &process{Cmd: exec.Command("/proc/self/exe", "sink", cfg.Arg()), name: fmt.Sprintf("%+v", cfg)}
	p.SysProcAttr = &syscall.SysProcAttr{}
	for _, change := range attr {
		change(p.Cmd)
	}
	p.Stderr = &p.stderr
	pipe, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(pipe)
	s.Do(func() { err = p.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// endAndCount ends the sink in order and returns its counts.
func (p *process) endAndCount(t testing.TB) Counts {
	t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%s has ended before: %s", p.name, &p.stderr)
	}
	n, err := p.ended(t)
	if err != nil || p.stderr.Len() > 0 {
		t.Errorf("%s: %v: %s", p.name, err, &p.stderr)
	}
	return n
}

// ended waits for the sink's end and returns its counts.
func (p *process) ended(t testing.TB) (n Counts, err error) {
	t.Helper()
	line, _ := p.out.ReadString('\n') // what is missing shows as JSON that is none
	err = p.Wait()
	if bad := json.Unmarshal([]byte(line), &n); bad != nil {
		t.Errorf("%s: counts %q: %v: %v: %s", p.name, line, bad, err, &p.stderr)
	}
	return n, err
}

// mixedSizes is a plan with frames of four sizes.
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

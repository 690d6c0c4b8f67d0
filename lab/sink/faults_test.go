package sink

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/labtest"
)

// These tests use a wire (main_test.go): frames from a generator pass a bridge and arrive at the interface s0 of a
// monitor, where sinks capture. launch starts a sink in a process, ready waits until it captures, and start does both.
// mixedSizes(t, n, rate) is a plan of n frames; rate 0 sends them all at once.

// TestInterfaceGoesDownOrAway: a sink whose interface goes down or is removed ends with an error that says so, and
// writes its counts.
func TestInterfaceGoesDownOrAway(t *testing.T) {
	wire := newWire(t)
	for _, tt := range []struct{ how, says string }{ // a shell command, and a part of the sink's error
		{"ip link set s0 down", "down: ip link set s0 up"}, {"ip link del s0", "removed"}} {
		var running []*process
		for _, cfg := range []Config{{Kind: "recv"}, {Kind: "mmap"}, {Kind: "ebpf"}, {Kind: "xdp"}} {
			cfg.Interface = "s0"
			running = append(running, launch(t, wire.monitor, cfg))
		}
		for _, program := range running {
			program.ready(t)
		}
		wire.send(t, mixedSizes(t, 10, 0))
		wire.monitor.Run(t, tt.how)
		for _, program := range running {
			counts, err := program.ended(t)
			if err == nil || !strings.Contains(program.stderr.String(), tt.says) ||
				!strings.Contains(program.stderr.String(), "s0") {
				t.Errorf("%s: %s: %v: %s", program.name, tt.how, err, &program.stderr)
			}
			// The AF_XDP socket took all frames.
			if taken := strings.Contains(program.name, "xdp"); taken && counts.Frames != 10 || !taken && counts.Frames != 0 {
				t.Errorf("%s: %s: it counts %+v", program.name, tt.how, counts)
			}
		}
		if tt.says != "removed" {
			wire.monitor.Run(t, `ip link set s0 up; until ip link show s0 | grep -q "state UP"; do sleep 0.01; done`)
			wire.bridge.Run(t, `until [ "$(bridge link | grep -c "state forwarding")" = 3 ]; do sleep 0.01; done`)
		}
	}
}

// TestOtherInterfacesMayGo: changes of other interfaces do not end a sink.
func TestOtherInterfacesMayGo(t *testing.T) {
	wire := newWire(t)
	running := start(t, wire.monitor, Config{Kind: "recv", Interface: "s0"})
	wire.monitor.Run(t,
		"ip link add other type veth peer name far; ip link set other up; ip link set other down; ip link del other; ip "+
			"link set s0 mtu 1600")
	wire.send(t, mixedSizes(t, 10, 0))
	if counts := running.endAndCount(t); counts.Frames != 10 {
		t.Errorf("counts %+v", counts)
	}
}

// TestRefusals: the error of a refusal names the remedy.
func TestRefusals(t *testing.T) {
	wire := newWire(t)
	wire.monitor.Run(t,
		"ip link add far type veth peer name down; ip link add many numrxqueues 2 type veth peer name more; ip link set "+
			"many up; ethtool -L many rx 2; ip link add large mtu 9000 type veth peer name other; ip link set large up; ip "+
			"tuntap add tun0 mode tun; ip link set tun0 up")
	first := start(t, wire.monitor, Config{Kind: "xdp", Interface: "s0"})
	nobody := func(cmd *exec.Cmd) { cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534} }
	var running []*process
	tests := []struct {
		cfg  Config
		as   []func(*exec.Cmd) // changes the sink's process
		says string
	}{
		{Config{Kind: "pcap", Interface: "s0"}, nil, "ebpf, mmap, recv, xdp"},
		{Config{Kind: "recv"}, nil, "--interface"},
		{Config{Kind: "recv", Interface: "none"}, nil, "no such interface"},
		{Config{Kind: "mmap", Interface: "down"}, nil, "ip link set down up"},
		{Config{Kind: "mmap", Interface: "tun0"}, nil, "Ethernet"},
		{Config{Kind: "recv", Interface: "s0", Snap: -1}, nil, "snap length"},
		{Config{Kind: "recv", Interface: "s0", Work: "sha256"}, nil, "memcpy, gzip"},
		{Config{Kind: "recv", Interface: "s0", Filter: "udp"}, nil, "tcpdump -ddd"},
		{Config{Kind: "mmap", Interface: "s0", Filter: "1,21 9 9 0"}, nil, "kernel refuses the filter"},
		{Config{Kind: "mmap", Interface: "s0", BufferKiB: 1}, nil, "which take 8 KiB"},
		{Config{Kind: "mmap", Interface: "s0", BufferKiB: maxBufferKiB + 1}, nil, "1 to 2097151"},
		{Config{Kind: "recv", Interface: "s0", BufferKiB: maxBufferKiB}, nil, "at most"},
		{Config{Kind: "xdp", Interface: "s0", BufferKiB: 64}, nil, "at least 128"},
		{Config{Kind: "xdp", Interface: "s0"}, nil, "another program has"},
		{Config{Kind: "xdp", Interface: "s0", Filter: "1,6 0 0 1"}, nil, "take mmap"},
		{Config{Kind: "xdp", Interface: "large"}, nil, "ip link set large mtu 1500"},
		{Config{Kind: "xdp", Interface: "many"}, nil, "2 receive queues"},
		{Config{Kind: "ebpf", Interface: "s0", Snap: 68}, nil, "take mmap"},
		{Config{Kind: "recv", Interface: "s0"}, []func(*exec.Cmd){nobody}, "run as root"},
		{Config{Kind: "mmap", Interface: "s0"}, []func(*exec.Cmd){nobody}, "run as root"},
		{Config{Kind: "xdp", Interface: "s0"}, []func(*exec.Cmd){nobody}, "run as root"},
		{Config{Kind: "ebpf", Interface: "s0"}, []func(*exec.Cmd){nobody}, "run as root"},
	}
	for _, tt := range tests {
		running = append(running, launch(t, wire.monitor, tt.cfg, tt.as...))
	}
	for i, program := range running {
		err := program.Wait()
		if text := program.stderr.String(); err == nil || !strings.Contains(text, tests[i].says) {
			t.Errorf("%s: %v: %s, want %q", program.name, err, text, tests[i].says)
		}
	}
	first.endAndCount(t)
}

// TestFramesLeftAtTheEnd: frames that are in the buffer at the deadline count neither as taken nor as lost.
func TestFramesLeftAtTheEnd(t *testing.T) {
	wire := newWire(t)
	for _, kind := range []string{"recv", "mmap", "xdp"} {
		t.Run(kind, func(t *testing.T) {
			var sink method
			var count *counter
			var err error
			wire.monitor.Do(func() {
				var target port
				cfg := Config{Kind: kind, Interface: "s0"}
				if target, err = findPort("s0"); err != nil {
					return
				}
				defer target.ns.Close()
				if count, err = newCounter(cfg); err == nil {
					sink, err = methods[kind](cfg, target)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer sink.close()
			wire.send(t, mixedSizes(t, 100, 0))
			labtest.Await(t, "the sink's buffer to fill", func() bool { return framesWait(t, sink) })
			lost, left, err := sink.finish(count, time.Time{})
			if err != nil || count.frames != 0 || lost != 0 || left != 100 {
				t.Errorf("%d counted, %d lost, %d left, %v", count.frames, lost, left, err)
			}
		})
	}
}

// framesWait reports whether 100 frames are in a sink's buffer.
func framesWait(t *testing.T, sink method) bool {
	switch w := sink.(type) {
	case *xdp:
		return *w.rx.producer == 100
	default:
		if err := w.tally(); err != nil {
			t.Fatal(err)
		}
		if ring, ok := w.(*mmap); ok {
			return ring.packets == 100
		}
		return w.(*recv).packets == 100
	}
}

// FuzzFilter: a filter that parseFilter accepts, written in tcpdump's form again, is parsed as the same program.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{udpOnly, arpOnly, "", ",", "1,6 0 0 0", "1,6 0 0", "2,6 0 0 0", "0",
		"1,6 0 0 4294967296", "1,6 0 0 -1", "x,6 0 0 0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		program, err := parseFilter(text)
		if err != nil {
			return
		}
		again := fmt.Sprint(len(program))
		for _, i := range program {
			again += fmt.Sprintf(",%d %d %d %d", i.Code, i.Jt, i.Jf, i.K)
		}
		if second, err := parseFilter(again); err != nil || fmt.Sprint(second) != fmt.Sprint(program) {
			t.Errorf("%q is %v, and %q %v: %v", text, program, again, second, err)
		}
	})
}

// TestFilterErrors: the error about a filter says what is wrong with its text.
func TestFilterErrors(t *testing.T) {
	for text, says := range map[string]string{
		"": "is empty", "udp": "length", "2,6 0 0 0": "1 instructions and says 2", "0": "0 instructions",
		"1,6 0 0":     "3 numbers",
		"1,6 0 256 0": "no number of 8 bits", "1,6 0 0 -1": "no number of 32 bits",
	} {
		if _, err := parseFilter(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestBuffersFitIntoTheMachine: a buffer may take half of the available memory. Without a known number any buffer may
// be tried.
func TestBuffersFitIntoTheMachine(t *testing.T) {
	const meminfo = "MemTotal:       23885228 kB\nMemFree:         1 kB\nMemAvailable:   20000 kB\n"
	for kib, fit := range map[int]bool{10_000: true, 10_001: false} {
		if err := checkAvailable(kib, meminfo); (err == nil) != fit {
			t.Errorf("%d KiB: %v", kib, err)
		}
	}
	if err := checkAvailable(10_001, "MemTotal: 1 kB\n"); err != nil {
		t.Errorf("by memory that is not said: %v", err)
	}
}

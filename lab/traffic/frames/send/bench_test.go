package send_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// The benchmarks of this file send frames over a link from gwt0 (client) to gwt1 (server), whose end drops them. They
// compare the two engines of package send with each other and with other generators (peers).

// polling lists who polls the receiving end of the link. In a softirq, receiving takes CPU time of the sending thread.
// With a polling thread of its own it does not.
var polling = []string{"softirq", "thread"}

// newSink returns a pair whose server end drops UDP at tc. The few short datagrams with which iperf3 begins pass.
func newSink(b *testing.B, polling string) labtest.Pair {
	b.Helper()
	p := newPair(b)
	if polling == "thread" {
		p.Server.Run(b, "unshare", "-m", "sh", "-ec", "mount -t sysfs sysfs /sys; echo 1 > /sys/class/net/gwt1/threaded")
	}
	p.Client.Run(b, "sh", "-ec", "tc qdisc del dev gwt0 root; ip neigh replace 10.77.0.1 lladdr $0 dev gwt0",
		streams(b, p, 1)[0].DstMAC.String())
	const pass, drop = -1, 2
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadAbs(12, asm.Half), asm.JNE.Imm(asm.R0, 0x0800, "pass"),
		asm.LoadAbs(23, asm.Byte), asm.JNE.Imm(asm.R0, 17, "pass"),
		asm.LoadAbs(16, asm.Half), asm.JLT.Imm(asm.R0, 46, "pass"),
		asm.Mov.Imm(asm.R0, drop), asm.Return(),
		asm.Mov.Imm(asm.R0, pass).WithSymbol("pass"), asm.Return(),
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { prog.Close() })
	var l link.Link
	p.Server.Do(func() {
		l, err = link.AttachTCX(
			link.TCXOptions{Program: prog, Attach: ebpf.AttachTCXIngress, Interface: linkIndex(b, "gwt1")})
	})
	if err != nil {
		b.Skipf("no tcx here: %v", err)
	}
	b.Cleanup(func() { l.Close() })
	return p
}

// linkIndex returns the index of a link in the calling thread's namespace.
func linkIndex(b *testing.B, name string) int {
	text, err := os.ReadFile("/proc/thread-self/net/igmp") // "3\tgwt1      :     1      V3"
	if err != nil {
		b.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == name {
			n, _ := strconv.Atoi(f[0])
			return n
		}
	}
	b.Errorf("no link %s", name)
	return 0
}

// arrived counts the packets that the server's end has received.
func arrived(b *testing.B, p labtest.Pair) (n int64) {
	p.Server.Do(func() {
		text, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			b.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if name, rest, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "gwt1" {
				n, _ = strconv.ParseInt(strings.Fields(rest)[1], 10, 64)
			}
		}
	})
	return n
}

// report reports the frames that one second of CPU time sent, and how many of them arrived.
func report(b *testing.B, frames, arrived, cpuNs int64) {
	b.ReportMetric(float64(frames)*1e6/float64(cpuNs), "kframes/core-s")
	b.ReportMetric(float64(arrived)*1e6/float64(cpuNs), "karrived/core-s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSend sends b.N frames as fast as the link takes them. A core's second includes the planner's work.
func BenchmarkSend(b *testing.B) {
	for _, poll := range polling {
		for _, e := range engines {
			for _, bytes := range []int{60, 1514} {
				b.Run(fmt.Sprintf("poll=%s/size=%d/by=%s", poll, bytes, e), func(b *testing.B) {
					p := newSink(b, poll)
					before := arrived(b, p)
					sent := carryOut(b, p.Client, send.Config{Streams: streams(b, p, 1), Engine: e, MaxFor: time.Minute,
						Plan: &steady{frames: b.N, sizes: []int{bytes}, streams: 1}})
					report(b, sent.Offered, arrived(b, p)-before, sent.ThreadNs+sent.PlannerNs)
					b.ReportMetric(float64(sent.Offered)/sent.Elapsed.Seconds()/1e3, "kframes/s")
					b.ReportMetric(float64(sent.Refused), "refused")
				})
			}
		}
	}
}

// BenchmarkRate sends frames at each rate, and reports the rate's error in percent and how late frames left.
func BenchmarkRate(b *testing.B) {
	sizes, err := frames.Named("60")
	if err != nil {
		b.Fatal(err)
	}
	for _, e := range engines {
		for _, kpps := range []int{1, 10, 100, 200, 400, 600, 800, 1000, 1400} {
			b.Run(fmt.Sprintf("kpps=%d/by=%s", kpps, e), func(b *testing.B) {
				p := newSink(b, "softirq")
				n := kpps * 500
				plan, err := frames.NewPlan(
					frames.Config{Sizes: sizes, Schedule: frames.Schedule{PacketsPerSecond: float64(kpps) * 1e3}, Count: int64(n)})
				if err != nil {
					b.Fatal(err)
				}
				sent := carryOut(b, p.Client, send.Config{Streams: streams(b, p, 1), Engine: e, Plan: plan})
				due := float64(n-1) / float64(kpps) * 1e6 // of the last frame, ns
				off := float64(sent.Last)/due - 1
				b.ReportMetric(100*off, "%off")
				b.ReportMetric(float64(sent.Late.Quantile(0.5)), "late-p50-ns")
				b.ReportMetric(float64(sent.Late.Quantile(0.99)), "late-p99-ns")
				b.ReportMetric(float64(sent.Late.Max), "late-max-ns")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// peers are other generators, with the arguments that make each send n frames as fast as it can. They run where they
// are installed.
var peers = []struct {
	name string
	argv func(b *testing.B, to send.Stream, bytes, n int) []string
}{
	{"tcpreplay", func(b *testing.B, to send.Stream, bytes, n int) []string {
		return []string{"--intf1=gwt0", "--topspeed", "--preload-pcap", "--quiet", "--loop=" + strconv.Itoa((n+999)/1000),
			capture(b, to, bytes)}
	}},
	{"mausezahn", func(_ *testing.B, to send.Stream, bytes, n int) []string {
		return []string{"gwt0", "-q", "-c", strconv.Itoa(n), "-d", "0", "-a", to.SrcMAC.String(), "-b", to.DstMAC.String(),
			"-A", to.Src.Addr().String(), "-B", to.Dst.Addr().String(), "-t", "udp", "sp=4000,dp=9", "-p",
			strconv.Itoa(bytes - frames.PayloadAt)}
	}},
	{"trafgen", func(b *testing.B, to send.Stream, bytes, n int) []string {
		var text strings.Builder
		for _, v := range frame(to, bytes) {
			fmt.Fprintf(&text, "%#02x, ", v)
		}
		path := filepath.Join(b.TempDir(), "frame.cfg")
		if err := os.WriteFile(path, []byte("{ "+text.String()+" }"), 0o644); err != nil {
			b.Fatal(err)
		}
		return []string{"--dev", "gwt0", "--conf", path, "--num", strconv.Itoa(n), "--cpus", "1", "--qdisc-path"}
	}},
	{"iperf3", func(_ *testing.B, _ send.Stream, bytes, n int) []string {
		return []string{"-c", labtest.ServerIP.String(), "-u", "-b", "0", "-l", strconv.Itoa(bytes - frames.PayloadAt), "-k",
			strconv.Itoa(n)}
	}},
}

// BenchmarkPeers is BenchmarkSend for other generators: run both at once to compare them.
func BenchmarkPeers(b *testing.B) {
	for _, poll := range polling {
		for _, peer := range peers {
			for _, bytes := range []int{60, 1514} {
				b.Run(fmt.Sprintf("poll=%s/size=%d/by=%s", poll, bytes, peer.name), func(b *testing.B) {
					path, err := exec.LookPath(peer.name)
					if err != nil {
						b.Skipf("%s is not installed", peer.name)
					}
					p := newSink(b, poll)
					if peer.name == "iperf3" {
						serveIperf3(b, p)
					}
					cmd := exec.Command(path, peer.argv(b, streams(b, p, 1)[0], bytes, b.N)...)
					before := arrived(b, p)
					var out []byte
					p.Client.Do(func() { out, err = cmd.CombinedOutput() })
					if err != nil {
						b.Skipf("%s: %v: %.300s", cmd, err, out)
					}
					cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
					report(b, int64(b.N), arrived(b, p)-before, int64(cpu))
				})
			}
		}
	}
}

// serveIperf3 starts a server for one client.
func serveIperf3(b *testing.B, p labtest.Pair) {
	cmd := exec.Command("iperf3", "-s", "-1", "--forceflush")
	out, err := cmd.StdoutPipe()
	if err == nil {
		p.Server.Do(func() { err = cmd.Start() })
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "listening") {
			return
		}
	}
	b.Fatal("iperf3 does not listen")
}

// frame returns a frame of a stream, without stamp and UDP checksum.
func frame(to send.Stream, bytes int) []byte {
	f := make([]byte, bytes)
	copy(f, to.DstMAC[:])
	copy(f[6:], to.SrcMAC[:])
	src, dst := to.Src.Addr().As4(), to.Dst.Addr().As4()
	copy(f[12:], []byte{8, 0, 0x45, 0, byte((bytes - 14) >> 8), byte(bytes - 14), 0, 0, 0x40, 0, 64, 17})
	copy(f[26:], src[:])
	copy(f[30:], dst[:])
	copy(f[34:], []byte{0x0f, 0xa0, 0, frames.Port, byte((bytes - 34) >> 8), byte(bytes - 34)})
	binary.BigEndian.PutUint16(f[24:], ^uint16(onesSum(f[14:34])))
	return f
}

// capture writes a pcap file with 1,000 frames of a stream and returns its path.
func capture(b *testing.B, to send.Stream, bytes int) string {
	le := binary.LittleEndian
	file := le.AppendUint32(nil, 0xa1b2c3d4)
	file = le.AppendUint32(file, 2|4<<16)
	for _, v := range []uint32{0, 0, 1 << 16, 1} { // time zone, accuracy, snap length, Ethernet
		file = le.AppendUint32(file, v)
	}
	for i := range uint32(1000) {
		for _, v := range []uint32{1, i, uint32(bytes), uint32(bytes)} {
			file = le.AppendUint32(file, v)
		}
		file = append(file, frame(to, bytes)...)
	}
	path := filepath.Join(b.TempDir(), "frames.pcap")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		b.Fatal(err)
	}
	return path
}

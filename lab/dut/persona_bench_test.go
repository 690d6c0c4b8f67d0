package dut

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// BenchmarkPersonas measures clients of kind "persona", which share one namespace. All lease from gatewayd, log in
// there with a real RADIUS server, and connect a stream each. It reports the seconds of each step, and KiB of memory a
// client: of the kernel's sockets on the whole machine, and of the agents of both ends. Its labs stay until the end, so
// use -benchtime 1x.
func BenchmarkPersonas(b *testing.B) {
	withGatewayd(b)
	for _, n := range []int{1_000, 10_000, 65_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				benchmarkPersonas(b, n)
			}
		})
	}
}

// benchmarkPersonas measures n clients once.
func benchmarkPersonas(b *testing.B, n int) {
	d := NewGateway(experiment.Variant{}, n)
	l := newTestLab(b, d, n)
	l.start(b, d)
	if _, err := l.server.End(b.Context(), agent.Ending{Name: "traffic"}); err != nil {
		b.Fatal(err)
	}
	before := l.memory(b)
	start := time.Now()
	took := func(what string) {
		b.ReportMetric(time.Since(start).Seconds(), "s-"+what)
		start = time.Now()
	}
	l.personas(b, n)
	took("lease")
	in, err := l.clientHost.Login(b.Context(), d.Traits().Admission, client.Pace{Parallel: 32})
	if err != nil || client.FirstFailure(in) != nil {
		b.Fatal(err, client.FirstFailure(in))
	}
	took("login")
	load := agent.Traffic{
		Kind: traffic.KindStreams, Direction: "up", Clients: n, OfferedMbps: 1000, MaxSeconds: 600,
		Server: agent.Server{Addr4: l.env.ServerIP}, Workers: agent.ProcessesFor(n, machine.HardFiles()),
	}
	if err := l.server.ServeTraffic(b.Context(), load); err != nil {
		b.Fatal(err)
	}
	if err := l.clientHost.StartTraffic(b.Context(), load); err != nil {
		b.Fatal(err)
	}
	took("connect")
	b.ReportMetric((l.memory(b)-before)/float64(n), "KiB/client")
	stats, err := l.server.TrafficStats(b.Context())
	if err != nil || stats.Broken > 0 {
		b.Fatalf("%v; %d streams broke: %s", err, stats.Broken, stats.FirstError)
	}
	if err := l.clientHost.StopTraffic(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// memory returns the memory of clients and server, KiB: the kernel's slabs of sockets and of what belongs to them, and
// the agents' own memory.
func (l *testLab) memory(t testing.TB) (kib float64) {
	t.Helper()
	const slabs = `awk '$1 ~ /^(TCP|tw_sock_TCP|request_sock_TCP|sock_inode_cache|filp|dentry|eventpoll_epi|eventpoll_pwq|skbuff_.*|tcp_bind.*_bucket|lsm_.*)$/ {s += $3*$4} END {printf "%.0f", s/1024}' /proc/slabinfo`
	const pss = `s=0; for p in "$1" $(pgrep -P "$1"); do
	s=$((s + $(awk '/^Pss:/ {print $2}' /proc/$p/smaps_rollup 2>/dev/null || echo 0))); done; echo $s`
	kib = number(t, l.server.must(t, slabs))
	for _, h := range []testHost{l.clientHost, l.server} {
		hello, err := h.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kib += number(t, runBesideLab(t, pss, fmt.Sprint(hello.PID)))
	}
	return kib
}

// runBesideLab runs a script outside of the lab's hosts, because programs on a host do not see its agent.
func runBesideLab(t testing.TB, script string, args ...string) string {
	t.Helper()
	out, err := exec.Command("sh", append([]string{"-ec", script, "sh"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// number parses the output of a script.
func number(t testing.TB, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

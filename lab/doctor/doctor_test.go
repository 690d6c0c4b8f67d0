package doctor

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// TestMain lets the test binary serve as its own agent, as gateweigh does.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// machineState is what of the machine an examination must not change.
func machineState(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	for _, cmd := range []string{"ip -o link | cut -d' ' -f2", "ip netns", "ip route", "nft list ruleset",
		"cat /proc/self/mounts", "sysctl net.ipv4 net.core kernel.pid_max"} {
		out, err := exec.Command("sh", "-c", cmd+" 2>/dev/null").Output()
		if err != nil && !strings.HasPrefix(cmd, "nft") && !strings.HasPrefix(cmd, "sysctl") {
			t.Fatalf("%s: %v", cmd, err)
		}
		b.Write(out)
	}
	for _, pattern := range []string{"/etc/*", "/run/*", "/var/lib/*", filepath.Join(os.TempDir(), "gateweigh-doctor-*")} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, names)
	}
	return b.String()
}

// leftovers are agents and polling threads of hosts the examination started.
func leftovers() (found []string) {
	comms, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range comms {
		comm, _ := os.ReadFile(name)
		args, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if bytes.HasPrefix(comm, []byte("napi/"+linkNames())) || bytes.Contains(args, []byte("-run\x00doctor")) {
			found = append(found, string(comm))
		}
	}
	return found
}

func TestExaminationFindsThisMachineAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // other examinations may run on the machine
	before := machineState(t)
	var messages []string
	r, err := Examine(t.Context(), Options{Quick: true, Status: func(s string) { messages = append(messages, s) }})
	if err != nil {
		t.Fatal(err)
	}
	// The kernel removes namespaces and their threads in its own time.
	labtest.Await(t, "everything of the examination to go", func() bool { return len(leftovers()) == 0 })
	if after := machineState(t); after != before {
		t.Errorf("the machine was\n%s\nand is\n%s", before, after)
	}
	if !r.CanRun || !strings.Contains(r.Verdict, "opennds") || len(messages) == 0 {
		t.Errorf("verdict %v, %q", r.CanRun, r.Verdict)
	}
	keys := map[string]bool{}
	for _, g := range r.Groups {
		for _, l := range g.Checks {
			if keys[l.Key] {
				t.Errorf("two lines are called %s", l.Key)
			}
			keys[l.Key] = true
			check(t, l, l.State)
			if l.What == "" || l.Found == "" || l.State == OK && l.Means == "" && g.Name != "Kernel" {
				t.Errorf("%s: what %q, found %q, means %q", l.Key, l.What, l.Found, l.Means)
			}
			if g.Name == "Kernel" && l.Needed && l.State != OK {
				t.Errorf("this kernel runs the lab, and yet %s: %s", l.Key, l.Found)
			}
		}
	}
	for _, a := range attempts {
		if !keys[a.key] {
			t.Errorf("no line %s", a.key)
		}
	}
}

// TestWhatBuildsOnAMissingFeatureIsNotTried: without some programs on PATH what
// needs them is missing, and what builds on that says so.
func TestWhatBuildsOnAMissingFeatureIsNotTried(t *testing.T) {
	// Debian has sh, cat and ip here, and nft, iptables, ethtool and tc elsewhere.
	t.Setenv("PATH", "/usr/bin:/bin")
	x := examineThisMachine(t)
	lines, inside := x.attempt(t.Context())
	if inside[machine.Backlog] == "" {
		t.Errorf("settings of a new namespace: %v; %+v", inside, lines)
	}
	for key, want := range map[string]string{
		keyVeth: "works", "kernel.threaded-napi": "ethtool", "kernel.gro-max-size": "not tried: threaded NAPI is missing",
		"kernel.task-clock": "not tried", keyNftables: "nft", keyIptables: "iptables",
		"kernel.nfqueue": "not tried: iptables-nft is missing", keyTUN: "works", "kernel.bpf-tc": "tc",
	} {
		i := slices.IndexFunc(lines, func(l Check) bool { return l.Key == key })
		if i < 0 || !strings.Contains(lines[i].Found, want) || (lines[i].State == OK) != (want == "works") {
			t.Errorf("%s: %+v, want %q", key, lines[i], want)
		}
	}
}

func TestNoiseWaitsForAnotherRun(t *testing.T) {
	unlock, err := runner.LockMachine("the test")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	lines, ticks := examineThisMachine(t).noise(t.Context(), true)
	if len(lines) != 1 {
		t.Fatalf("%d lines while another run measures", len(lines))
	}
	check(t, lines[0], Warn, "another run measures", "the test", "wait for the other run")
	check(t, ticks, Warn)
}

func TestNoiseWithoutALabIsTheLoopAlone(t *testing.T) {
	lines, _ := examineThisMachine(t).noise(t.Context(), false)
	if len(lines) != 3 || lines[0].Key != "noise.canary.cpu0" || lines[1].Key != "noise.canary.cpu1" {
		t.Fatalf("lines %+v", lines)
	}
	for _, l := range lines[:2] {
		if float64(l.Figures["median_ms"]) <= 0 || float64(l.Figures["p99_ratio"]) < 1 {
			t.Errorf("%s: %v", l.Key, l.Figures)
		}
	}
	check(t, lines[2], Warn, "not measured")
}

// TestDemandCoversARealLab counts what clients really take: the limits a report
// asks for must not be too low.
func TestDemandCoversARealLab(t *testing.T) {
	local, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	lab, err := topology.Portal(topology.Spec{}).Build(t.Context(), local, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer lab.Close()
	if err := lab.ServeDHCP(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	host := lab.Clients[0]
	if err := host.CreateClients(t.Context(), client.Config{Kind: client.KindMacvlan, Count: n, Parent: host.Ifs[0],
		LAN: lab.LAN, Gateway: lab.Gateway, Lab: 'a'}); err != nil {
		t.Fatal(err)
	}
	if leased, err := host.Lease(t.Context(), client.Pace{}); err != nil || client.FirstFailure(leased) != nil {
		t.Fatal(err, client.FirstFailure(leased))
	}
	if err := host.OpenMeter(t.Context(), agent.Meter{IfNames: host.Ifs, Support: true}); err != nil {
		t.Fatal(err)
	}
	load := agent.Traffic{
		Kind: traffic.KindStreams, Direction: "up", Clients: n, OfferedMbps: 20, MaxSeconds: 30, Server: lab.ServerIP}
	if err := lab.Host("server").ServeTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if err := host.StartTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if err := host.StartRTT(t.Context(), lab.ServerIP); err != nil {
		t.Fatal(err)
	}
	d := runner.Demand{Experiment: "test", Lab: topology.Portal(topology.Spec{}).Size(), Sides: []experiment.Side{{
		Client: client.KindMacvlan, Clients: n}}}
	files := len(entries(t, fmt.Sprintf("/proc/%d/fd", hostPID(t, host))))
	t.Logf("%d open files of the client host with %d clients, %d allowed for", files, n, d.Files())
	if int64(files) > d.Files() || files < 3*n {
		t.Errorf("%d open files with %d clients, a limit of %d is asked for", files, n, d.Files())
	}
	var tasks int
	for _, h := range lab.Hosts {
		own := len(entries(t, fmt.Sprintf("/proc/%d/task", hostPID(t, h))))
		t.Logf("%s has %d threads", h.Name, own)
		tasks += own
	}
	if int64(tasks) > d.Tasks() {
		t.Errorf("%d threads, %d are asked for", tasks, d.Tasks())
	}
	known := strings.Count(arp(t, lab.Host("router")), "\n") - 1 // without the heading
	if known < n || known > int(d.Neighbours()) {
		t.Errorf("the router knows %d neighbours with %d clients", known, n)
	}
}

func hostPID(t *testing.T, h *backend.Host) int {
	t.Helper()
	hello, err := h.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hello.PID
}

func entries(t *testing.T, dir string) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func arp(t *testing.T, h *backend.Host) string {
	t.Helper()
	out, err := h.Run(t.Context(), agent.Command{Argv: []string{"cat", "/proc/net/arp"}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Stdout
}

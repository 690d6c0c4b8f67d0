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

// TestMain lets the test binary be its own agent, as gateweigh is.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

// machineState describes the parts of the machine that an examination must not change.
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

// leftovers lists agents and polling threads of the examination's hosts.
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
	report, err := Examine(t.Context(), Options{Quick: true, Status: func(s string) { messages = append(messages, s) }})
	if err != nil {
		t.Fatal(err)
	}
	// The kernel removes namespaces and their threads some time after the last process has ended.
	labtest.Await(t, "everything of the examination to go", func() bool { return len(leftovers()) == 0 })
	if after := machineState(t); after != before {
		t.Errorf("the machine was\n%s\nand is\n%s", before, after)
	}
	if !report.CanRun || !strings.Contains(report.Verdict, "opennds") || len(messages) == 0 {
		t.Errorf("verdict %v, %q", report.CanRun, report.Verdict)
	}
	keys := map[string]bool{}
	for _, group := range report.Groups {
		for _, check := range group.Checks {
			if keys[check.Key] {
				t.Errorf("two lines are called %s", check.Key)
			}
			keys[check.Key] = true
			expect(t, check, check.State)
			if check.Subject == "" || check.Found == "" || check.State == OK && check.Means == "" && group.Name != "Kernel" {
				t.Errorf("%s: what %q, found %q, means %q", check.Key, check.Subject, check.Found, check.Means)
			}
			if group.Name == "Kernel" && check.Needed && check.State != OK {
				t.Errorf("this kernel runs the lab, and yet %s: %s", check.Key, check.Found)
			}
		}
	}
	for _, probe := range featureProbes {
		if !keys[probe.key] {
			t.Errorf("no line %s", probe.key)
		}
	}
}

// TestWhatBuildsOnAMissingFeatureIsNotTried: features whose program is not on PATH are missing, and features that
// require them are not tried.
func TestWhatBuildsOnAMissingFeatureIsNotTried(t *testing.T) {
	// Debian has sh, cat and ip in these folders, and nft, iptables, ethtool and tc in others.
	t.Setenv("PATH", "/usr/bin:/bin")
	x := examineThisMachine(t)
	checks, netnsSettings := x.probeFeatures(t.Context())
	if netnsSettings[machine.Backlog] == "" {
		t.Errorf("settings of a new namespace: %v; %+v", netnsSettings, checks)
	}
	for key, want := range map[string]string{
		keyVeth: "works", "kernel.threaded-napi": "ethtool", "kernel.gro-max-size": "not tried: threaded NAPI is missing",
		"kernel.task-clock": "not tried", keyNftables: "nft", keyIptables: "iptables",
		"kernel.nfqueue": "not tried: iptables-nft is missing", keyTUN: "works", "kernel.bpf-tc": "tc",
	} {
		i := slices.IndexFunc(checks, func(check Check) bool { return check.Key == key })
		if i < 0 || !strings.Contains(checks[i].Found, want) || (checks[i].State == OK) != (want == "works") {
			t.Errorf("%s: %+v, want %q", key, checks[i], want)
		}
	}
}

func TestNoiseWaitsForAnotherRun(t *testing.T) {
	unlock, err := runner.LockMachine("the test")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	checks, ticks := examineThisMachine(t).noise(t.Context(), true)
	if len(checks) != 1 {
		t.Fatalf("%d lines while another run measures", len(checks))
	}
	expect(t, checks[0], Warn, "another run measures", "the test", "wait for the other run")
	expect(t, ticks, Warn)
}

func TestNoiseWithoutALabIsTheLoopAlone(t *testing.T) {
	checks, _ := examineThisMachine(t).noise(t.Context(), false)
	if len(checks) != 3 || checks[0].Key != "noise.canary.cpu0" || checks[1].Key != "noise.canary.cpu1" {
		t.Fatalf("lines %+v", checks)
	}
	for _, check := range checks[:2] {
		if float64(check.Figures["median_ms"]) <= 0 || float64(check.Figures["p99_ratio"]) < 1 {
			t.Errorf("%s: %v", check.Key, check.Figures)
		}
	}
	expect(t, checks[2], Warn, "not measured")
}

// TestDemandCoversARealLab counts the files, threads and neighbours of a lab: runner.Demand must not be lower.
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
		Kind: traffic.KindStreams, Direction: "up", Clients: n, OfferedMbps: 20, MaxSeconds: 30,
		Server: agent.Server{Addr4: lab.ServerIP}}
	if err := lab.Host("server").ServeTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if err := host.StartTraffic(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	if err := host.StartRTT(t.Context(), agent.Server{Addr4: lab.ServerIP}); err != nil {
		t.Fatal(err)
	}
	demand := runner.Demand{Experiment: "test", Lab: topology.Portal(topology.Spec{}).Size(), Sides: []experiment.Side{{
		Client: client.KindMacvlan, Clients: n}}}
	files := len(entries(t, fmt.Sprintf("/proc/%d/fd", hostPID(t, host))))
	t.Logf("%d open files of the client host with %d clients, %d allowed for", files, n, demand.Files())
	if int64(files) > demand.Files() || files < 3*n {
		t.Errorf("%d open files with %d clients, a limit of %d is asked for", files, n, demand.Files())
	}
	var tasks int
	for _, h := range lab.Hosts {
		own := len(entries(t, fmt.Sprintf("/proc/%d/task", hostPID(t, h))))
		t.Logf("%s has %d threads", h.Name, own)
		tasks += own
	}
	if int64(tasks) > demand.Tasks() {
		t.Errorf("%d threads, %d are asked for", tasks, demand.Tasks())
	}
	known := strings.Count(arp(t, lab.Host("router")), "\n") - 1 // without the heading
	if known < n || known > int(demand.Neighbours()) {
		t.Errorf("the router knows %d neighbours with %d clients", known, n)
	}
}

func hostPID(t *testing.T, host *backend.Host) int {
	t.Helper()
	hello, err := host.Hello(t.Context())
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

func arp(t *testing.T, host *backend.Host) string {
	t.Helper()
	out, err := host.Run(t.Context(), agent.Command{Argv: []string{"cat", "/proc/net/arp"}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Stdout
}

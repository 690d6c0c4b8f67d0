package doctor

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/dut"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/runner"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// builtins returns the built-in experiments. It reads them once, because examinationOf is called hundreds of times.
var builtins = sync.OnceValue(measure.Catalogue().Builtins)

// examinationOf examines a machine that has the given files, by their paths, and two CPUs.
func examinationOf(files map[string]string) examination {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text)}
	}
	reading, err := machine.ReadFiles(fsys)
	if err != nil {
		panic(err)
	}
	reading.Root = true
	return examination{
		opts: Options{Status: func(string) {}}, machine: reading,
		placement: backend.Placement{Router: []int{1}, Endpoints: []int{0}},
		largest:   largestExperiment(builtins()), personas: mostPersonas(builtins()),
	}
}

// examineThisMachine examines this machine, by an agent that starts with the current PATH.
func examineThisMachine(t *testing.T) examination {
	t.Helper()
	x := examinationOf(nil)
	x.scratch = t.TempDir()
	local := backend.Netns{Options: backend.Options{Run: "doctor", LogDir: x.scratch}, Placement: x.placement}
	host, err := local.Machine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Stop() })
	x.backend, x.host = local, host
	return x
}

// withFileLimits examines a machine with these limits of open files.
func withFileLimits(soft, hard int64) examination {
	x := examinationOf(nil)
	x.machine.Limits.FilesSoft, x.machine.Limits.FilesHard = soft, hard
	return x
}

// limitCheckOf returns the check of a limit by its key.
func limitCheckOf(t *testing.T, x examination, key string) Check {
	t.Helper()
	for _, check := range x.limits(nil) {
		if check.Key == key {
			return check
		}
	}
	t.Fatalf("no line %s", key)
	return Check{}
}

// expect compares a check with a state and parts of its text. A check must have a remedy unless it is ok.
func expect(t *testing.T, check Check, state State, parts ...string) {
	t.Helper()
	if check.State != state {
		t.Errorf("%s: %s (%s), want %s", check.Key, check.State, check.Found, state)
	}
	for _, part := range parts {
		if !strings.Contains(check.Found+" | "+check.Means+" | "+check.Remedy, part) {
			t.Errorf("%s: no %q in: %s | %s | %s", check.Key, part, check.Found, check.Means, check.Remedy)
		}
	}
	if (check.Remedy == "") != (check.State == OK) {
		t.Errorf("%s is %s and says to do %q", check.Key, check.State, check.Remedy)
	}
}

func TestMachineLines(t *testing.T) {
	const cpu1 = "/sys/devices/system/cpu/cpu1/"
	one := examinationOf(nil)
	one.placement = backend.Placement{Router: []int{0}, Endpoints: []int{0}}
	expect(t, examinationOf(nil).cpus(), OK, "routers on CPU [1]")
	expect(t, one.cpus(), Warn, "two CPUs")

	expect(t, examinationOf(map[string]string{cpu1 + "topology/thread_siblings_list": "1\n"}).siblings(), OK)
	expect(t, examinationOf(map[string]string{cpu1 + "topology/thread_siblings_list": "0-1\n"}).siblings(), Warn,
		"CPU [0]", "taskset", "smt/control")

	expect(t, examinationOf(nil).frequency(), OK, "hypervisor or firmware")
	expect(t, examinationOf(map[string]string{cpu1 + "cpufreq/scaling_governor": "performance\n"}).frequency(), OK,
		"does not follow")
	expect(t, examinationOf(map[string]string{cpu1 + "cpufreq/scaling_governor": "performance",
		"/sys/devices/system/cpu/intel_pstate/no_turbo": "0"}).frequency(), OK, "boost on")
	expect(t, examinationOf(map[string]string{cpu1 + "cpufreq/scaling_governor": "powersave\n"}).frequency(), Warn,
		"powersave", "cpupower frequency-set -g performance")

	expect(t, examinationOf(map[string]string{"/proc/cpuinfo": "flags : fpu\n"}).virtual(), OK, "none seen")
	expect(t, examinationOf(map[string]string{"/proc/cpuinfo": "flags : hypervisor\n",
		"/proc/stat": "cpu  50 0 0 49 0 0 0 1\n"}).virtual(), OK, "virtual machine", "1.00 % steal")
	expect(t, examinationOf(map[string]string{"/proc/stat": "cpu  50 0 0 45 0 0 0 5\n"}).virtual(), Warn, "5.00 % steal",
		"dedicated CPUs")

	expect(t, examinationOf(nil).quota(), OK, "none")
	expect(t, examinationOf(
		map[string]string{"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/cpu.max": "150000 100000"}).quota(), Warn,
		"1.50 CPUs", "CPUQuota=")

	expect(t, examinationOf(
		map[string]string{"/proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n"}).memory(), OK,
		"login-storm (1000 clients)")
	expect(t, examinationOf(
		map[string]string{"/proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 200000 kB\n"}).memory(),
		Warn, "195 MiB available", "clients=20")
	expect(t, examinationOf(nil).memory(), Warn, "/proc")

	expect(t, otherPrograms([]machine.User{{PID: 7, Name: "idle", Cores: 0.001},
		{PID: 8, Name: "less", Cores: 0.002}}), OK, "0.3 % of a core")
	expect(t, otherPrograms([]machine.User{{PID: 7, Name: "make", Cores: 0.91}, {PID: 8, Name: "cc1", Cores: 0.5}}), Warn,
		"141.0 % of a core: make (process 7) 91 %, cc1 (process 8) 50 %", "stop them")
}

func TestKernelLinesWithoutNamespaces(t *testing.T) {
	expect(t, examinationOf(
		map[string]string{"/proc/pressure/cpu": "some avg10=1.50 avg60=0 avg300=0 total=9\n"}).pressure(), OK,
		"1.50 %")
	expect(t, examinationOf(nil).pressure(), Warn, "psi=1")
	expect(t, examinationOf(nil).tracefs(), Warn, "mount -t tracefs")
	expect(t, examinationOf(map[string]string{"/sys/kernel/tracing/README": "x"}).tracefs(), OK)
	expect(t, examinationOf(map[string]string{"/proc/sys/kernel/perf_event_paranoid": "2\n"}).perf(), OK,
		"does not bind root")
	const zero = "0000000000000000 A fixed\n0000000000000000 T _stext\n"
	hidden := map[string]string{
		"/proc/sys/kernel/perf_event_paranoid": "2\n", "/proc/sys/kernel/kptr_restrict": "2\n", "/proc/kallsyms": zero}
	expect(t, examinationOf(hidden).perf(), Warn, "hides", "sysctl kernel.kptr_restrict=1")
	hidden["/proc/sys/kernel/kptr_restrict"] = "1\n"
	expect(t, examinationOf(hidden).perf(), Warn, "CAP_SYSLOG")
	hidden["/proc/kallsyms"] = zero + "ffffffff81000000 T _text\n"
	expect(t, examinationOf(hidden).perf(), OK, "does not bind root")
	expect(t, examinationOf(nil).perf(), Warn, "CONFIG_PERF_EVENTS")
	user := examinationOf(map[string]string{"/proc/sys/kernel/perf_event_paranoid": "2\n"})
	user.machine.Root = false
	expect(t, user.perf(), Warn, "paranoid is 2", "root")
	checks, netnsSettings := user.kernel(context.Background())
	if len(netnsSettings) != 0 || len(checks) != 5 {
		t.Errorf("without root %d lines and settings %v, want 5 and none", len(checks), netnsSettings)
	}
	expect(t, checks[1], Warn, "not tried without root", "threaded NAPI", "sudo gateweigh doctor")

	expect(t, examinationOf(nil).accounting(), Warn, "not shown")
	expect(t, examinationOf(map[string]string{"/proc/sys/kernel/osrelease": "6.1.0\n",
		"/boot/config-6.1.0": "CONFIG_TICK_CPU_ACCOUNTING=y\n"}).accounting(), OK, "CONFIG_TICK_CPU_ACCOUNTING")
}

// TestWhatDevicesNeedOfTheKernelIsTried: each feature that a device needs has a probe, and a device that lacks it has a
// remedy.
func TestWhatDevicesNeedOfTheKernelIsTried(t *testing.T) {
	var kernel []Check // a kernel that lacks every feature
	tried := map[machine.Feature]bool{}
	for _, probe := range featureProbes {
		tried[machine.Feature(probe.subject)] = true
		kernel = append(kernel, Check{Key: probe.key, Subject: probe.subject, State: Missing})
	}
	for _, name := range dut.Names() {
		device, err := dut.New(name, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range device.Traits().Needs {
			needed := n.KernelFeature()
			for _, one := range needed.Alternatives() {
				if needed != "" && !tried[one] {
					t.Errorf("%s needs %s, which is not tried", name, one)
				}
			}
			text, do := examinationOf(nil).missingFeatures(name, device.Traits().Needs, kernel)
			if needed != "" && (!strings.Contains(text, string(needed)) || !strings.Contains(do, "above")) {
				t.Errorf("%s without %s: %q, to do: %q", name, needed, text, do)
			}
		}
	}
	dco := featureProbes[slices.IndexFunc(featureProbes,
		func(probe featureProbe) bool { return probe.subject == string(machine.OpenVPNDCO) })]
	if !strings.Contains(dco.remedy, "openvpn-dco-dkms") {
		t.Errorf("%s: %s", dco.subject, dco.remedy)
	}
}

func TestLimitLines(t *testing.T) {
	need := examinationOf(nil).largest
	expect(t, withFileLimits(4096, 20000).nofile(), OK, "hard limit 20000, soft 4096",
		"needs 4128 in an agent, 1128 in a daemon", "enough for 4968 clients")
	expect(t, withFileLimits(256, 256).nofile(), Warn, "ulimit -n 8256")
	expect(t, withFileLimits(0, 0).nofile(), OK, "no hard limit")
	expect(t, withFileLimits(1024, 20000).nofile(), Warn, "ulimit -Sn 2256")
	const gc = "/proc/sys/net/ipv4/neigh/default/gc_thresh"
	expect(t, examinationOf(map[string]string{gc + "1": "1024", gc + "2": "2048", gc + "3": "4096"}).neighbourTable(), OK,
		"needs 1003", "up to 2045 clients")
	expect(t, examinationOf(map[string]string{gc + "1": "128", gc + "2": "512", gc + "3": "1024"}).neighbourTable(), Warn,
		"sysctl -w net.ipv4.neigh.default.gc_thresh2=2006 net.ipv4.neigh.default.gc_thresh3=4012")
	expect(t, examinationOf(nil).neighbourTable(), Warn, "on the machine itself")

	busy := examinationOf(map[string]string{
		"/proc/loadavg": "0 0 0 1/200 9", "/proc/sys/kernel/pid_max": "32768", "/proc/sys/kernel/threads-max": "300",
		"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/pids.max": "100",
	})
	expect(t, limitCheckOf(t, busy, "limit.pid-max"), OK, "of which 200 are in use")
	expect(t, limitCheckOf(t, busy, "limit.threads-max"), Warn, "sysctl -w kernel.threads-max=")
	expect(t, limitCheckOf(t, busy, "limit.pids-cgroup"), Warn, "--pids-limit=-1")
	expect(t, limitCheckOf(t, examinationOf(nil), "limit.pids-cgroup"), OK, "no control group")

	const namespaces, conntrack = "limit.net-namespaces", "limit.conntrack"
	expect(t, limitCheckOf(t, examinationOf(nil), namespaces), OK)
	expect(t, limitCheckOf(t, examinationOf(map[string]string{"/proc/sys/user/max_net_namespaces": "96000"}),
		namespaces), OK, "needs 1003")
	expect(t, limitCheckOf(t, examinationOf(map[string]string{"/proc/sys/user/max_net_namespaces": "10"}),
		namespaces), Warn, "sysctl -w user.max_net_namespaces=1003")
	expect(t, limitCheckOf(t, examinationOf(nil), conntrack), OK, "not loaded")
	expect(t, limitCheckOf(t, examinationOf(map[string]string{"/proc/sys/net/netfilter/nf_conntrack_max": "512"}),
		conntrack), Warn, "nf_conntrack_max=64000")
	if need.Flows() != 16000 {
		t.Errorf("%s makes %d flows", need, need.Flows())
	}

	netnsSettings := map[string]string{machine.PortRange: "32768\t60999", machine.Backlog: "4096"}
	expect(t, examinationOf(nil).ports(netnsSettings), OK, "32768 to 60999 in each new network namespace")
	expect(t, examinationOf(map[string]string{"/proc/sys/" + machine.PortRange: "40000 40009"}).ports(nil), Warn,
		"were not tried", "ip_local_port_range=")
	expect(t, examinationOf(nil).ports(nil), Warn)
	expect(t, examinationOf(nil).listenQueue(netnsSettings), OK, "4096 in each new")
	expect(t, examinationOf(map[string]string{"/proc/sys/" + machine.Backlog: "128"}).listenQueue(nil), Warn,
		"somaxconn=16000")
}

func TestLargestExperimentCountsItsPrograms(t *testing.T) {
	few, many := runner.Demand{Sides: make([]experiment.Side, 2)}, runner.Demand{Sides: make([]experiment.Side, 2)}
	for i := range 2 {
		few.Sides[i].Clients, many.Sides[i].Clients, many.Sides[i].Traffic.Kind = 10, 10, traffic.KindIperf3
	}
	if many.Tasks()-few.Tasks() != 40 {
		t.Errorf("iperf3 adds %d tasks for 10 clients in two labs, want 40", many.Tasks()-few.Tasks())
	}
	if got := largestExperiment(builtins()); got.Clients() != 1000 || len(got.Sides) != 1 ||
		got.Experiment != "login-storm" {
		t.Errorf("largest is %s", got)
	}
}

// TestEveryProgramCanBeMissing: without any program on PATH, each check has the remedy of its program.
func TestEveryProgramCanBeMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	x := examineThisMachine(t)
	tools, err := x.tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, check := range tools {
		seen[check.Subject] = true
		if filepath.IsAbs(check.Subject) {
			continue // it is not looked for on PATH
		}
		expect(t, check, Missing, "not on PATH; for ")
		if check.Subject == "chilli" {
			expect(t, check, Missing, "build CoovaChilli")
		} else if !strings.Contains(check.Remedy, "apt-get install ") && !strings.Contains(check.Remedy, "build ") {
			t.Errorf("%s: %s", check.Subject, check.Remedy)
		}
	}
	for _, name := range []string{
		"ethtool", "dnsmasq", "iperf3", "opennds", "ndsctl", "chilli", "freeradius", "nft", "iptables", "perf", "tc"} {
		if !seen[name] {
			t.Errorf("no line for %s", name)
		}
	}
	devices, err := x.devices(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != len(dut.Names()) {
		t.Errorf("%d lines for %v", len(devices), dut.Names())
	}
	for _, check := range devices {
		switch check.Subject {
		case experiment.Clean:
			expect(t, check, OK)
		case "opennds":
			expect(t, check, Missing, "not on PATH: opennds, ndsctl, dnsmasq,",
				"sudo apt-get install bash bsdutils dnsmasq-base iproute2 iptables nftables opennds procps wget")
		case "gateway-nfqueue", "gateway-nfqueue-fast":
			expect(t, check, Missing, "not on PATH: gatewayd, dnsmasq, freeradius", "make build", "dnsmasq-base")
		case "gateway-ebpf", "gateway-tun", "gateway-tun-fast":
			expect(t, check, Missing, "not on PATH: gatewayd, freeradius, ss", "make build", "freeradius iproute2")
		case "coovachilli":
			expect(t, check, Missing, "sudo apt-get install freeradius iproute2 iptables; not in Debian")
		case "allowlist":
			expect(t, check, Missing, "not on PATH: nft", "sudo apt-get install nftables")
		default: // some capturing devices need only the lab's own program
			device, err := dut.New(check.Subject, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			needs := slices.DeleteFunc(
				slices.Clone(device.Traits().Needs), func(n dut.Need) bool { return filepath.IsAbs(n.Program) })
			if len(needs) > 0 {
				expect(t, check, Missing, "not on PATH: "+needs[0].Program, "sudo apt-get install ", needs[0].Package)
			} else {
				expect(t, check, OK)
			}
		}
	}
	report := newReport([]Group{{"Tools", tools}, {"Devices", devices}})
	if report.CanRun || !strings.Contains(report.Verdict, "missing dnsmasq, ethtool") {
		t.Errorf("verdict without tools: %v, %s", report.CanRun, report.Verdict)
	}
}

func TestDevicesFollowTheKernel(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // no kernel is fetched
	checks, err := examineThisMachine(t).devices(t.Context(),
		[]Check{{Key: keyNftables, State: Missing, Subject: "nftables"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range checks {
		if check.Subject == "allowlist" {
			expect(t, check, Missing, "the kernel lacks nftables", "see nftables",
				"gateweigh run quick --kernel debian --set duts=allowlist")
		}
	}
	for state, missing := range map[State]string{OK: "", Missing: "the kernel lacks nft queue or NFQUEUE"} {
		nfqueue := dut.NewGateway(experiment.Variant{Path: experiment.PathNFQueue}, 1)
		text, do := examineThisMachine(t).missingFeatures("gateway-nfqueue", nfqueue.Traits().Needs, []Check{{State: Missing,
			Subject: "NFQUEUE"}, {State: state, Subject: "nft queue"}})
		if text != missing || (do == "") != (missing == "") {
			t.Errorf("nft queue %s: %q, %q", state, text, do)
		}
	}
}

func TestReportsVerdict(t *testing.T) {
	device := func(name string, s State) Check { return Check{Key: deviceKey + name, State: s, Subject: name} }
	for name, c := range map[string]struct {
		lines []Check
		can   bool
		want  string
	}{
		"all": {[]Check{{Key: "a", State: OK, Needed: true}, device("opennds", OK), device("coovachilli", Missing)},
			true, "measures opennds here"},
		"lab broken": {
			[]Check{{Key: "a", Subject: "veth", State: Missing, Needed: true}, device("opennds", OK)}, false, "missing veth"},
		"useful only":   {[]Check{{Key: "a", Subject: "NFQUEUE", State: Missing}, device("opennds", OK)}, true, "opennds"},
		"clean alone":   {[]Check{device(experiment.Clean, OK), device("opennds", Missing)}, false, "none of the devices"},
		"a warning":     {[]Check{{Key: "a", State: Warn, Needed: true}, device("allowlist", OK)}, true, "allowlist"},
		"other devices": {[]Check{device("not-in-quick", OK)}, false, "none of the devices"},
	} {
		report := newReport([]Group{{"G", c.lines}})
		if report.CanRun != c.can || !strings.Contains(report.Verdict, c.want) {
			t.Errorf("%s: %v, %q", name, report.CanRun, report.Verdict)
		}
	}
}

func TestVerdictOfLoopTimes(t *testing.T) {
	pieces := func(n int, slow ...float64) []float64 {
		list := append([]float64{}, slow...)
		for range n {
			list = append(list, 1)
		}
		return list
	}
	expect(t, loopCheck(machine.Loop{CPU: 1, Pieces: pieces(2000, 2), CPUShare: 1}), OK,
		"median 1.000 ms, p99 1.00 × that, worst 2.0 ×", "good is p99")
	expect(t, loopCheck(machine.Loop{CPU: 1, Pieces: pieces(900, loopPieces(100, 3)...), CPUShare: 1}), Warn, "p99 3.00",
		"steal or a shifting clock")
	expect(t, loopCheck(machine.Loop{CPU: 1, Pieces: pieces(900, loopPieces(100, 3)...), CPUShare: 0.8}), Warn,
		"20.0 % to other programs", "end the busiest")
	expect(t, loopCheck(machine.Loop{CPU: 1, Pieces: pieces(999, 100), CPUShare: 1}), Warn, "9.0 % of the time lost")
	expect(t, loopCheck(machine.Loop{CPU: 1}), Warn, "did not run")
}

func loopPieces(n int, ms float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = ms
	}
	return list
}

func TestVerdictOfAAExperiment(t *testing.T) {
	summary := func(mean, sd float64) analysis.Summary {
		s := analysis.Summary{AA: analysis.AA{Blocks: 3, SDLog: analysis.Number(sd)}}
		s.AA.Ratio = analysis.Estimate{
			Mean: analysis.Number(mean), Lo: analysis.Number(mean - 0.02), Hi: analysis.Number(mean + 0.02), N: 3}
		return s
	}
	// χ² = 0.446 at 20 % with 2 degrees of freedom: √(2 / 0.446) = 2.117.
	// t = 2.571 with 5: 2.571 × 2.117 × 0.01 / √6 = 2.22 %.
	expect(t, aaCheck(summary(1.002, 0.01)), OK, "1.002 [0.982, 1.022]",
		"differences under about 2.2 % cannot be told apart with 6 blocks here")
	expect(t, aaCheck(summary(1.002, 0.08)), Warn, "19.4 %", "blocks=12")
	expect(t, aaCheck(summary(1.09, 0.01)), Warn, "differ by themselves")
	none := analysis.Summary{AA: analysis.AA{Ratio: analysis.Estimate{Lo: analysis.Absent(), Hi: analysis.Absent()},
		SDLog: analysis.Absent(), Rejects: []analysis.Tally{{Text: "steal"}}}}
	none.Trials = analysis.Counts{Accepted: 1, Rejected: 8}
	expect(t, aaCheck(none), Warn, "only 1 of 9 trials passed", "steal")
}

func TestGapIsSummedOverWork(t *testing.T) {
	at := func(second float64, ns, ticks, busy, idle int64, threads ...int) machine.Accounts {
		b := machine.Accounts{AtNs: int64(second * 1e9), Threads: map[int]machine.Account{}, Busy: busy, Idle: idle}
		for _, tid := range threads {
			b.Threads[tid] = machine.Account{Ns: ns, Ticks: ticks}
		}
		return b
	}
	var gap accountingGap
	gap.add(at(0, 0, 0, 0, 0, 5), at(1, 1e6, 0, 9, 0, 5), 1)            // setting up: no work
	gap.add(at(1, 0, 0, 0, 0, 5), at(2, 2e8, 19, 5, 75, 5), 1)          // 200 ms of the router, 250 of the CPU, 50 seen
	gap.add(at(2, 2e8, 19, 5, 75, 5), at(3, 4e8, 39, 15, 150, 5), 1)    // the same, 100 seen
	gap.add(at(3, 4e8, 39, 15, 150, 5, 6), at(4, 9e8, 80, 80, 0, 5), 1) // a lab ended in between
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if gap.seconds != 2 || !near(gap.exact, 0.4) || !near(gap.threadTicks, 0.39) || !near(gap.cpuTicks, 0.15) ||
		!near(gap.awake, 0.5) {
		t.Errorf("%+v", gap)
	}
	expect(t, gap.check([]int{1}), OK, "CPU [1] was awake for 25.0 %", "saw 30 % of that", "20.0 % exact, 19.5 % by",
		"read too low")
	expect(t, accountingGap{1, 0.2, 0.2, 0.24, 0.25}.check([]int{1}), OK, "saw 96 %", "nobody else's work")
	expect(t, accountingGap{}.check([]int{1}), Warn, "see Noise")
}

// Tests of runs on several machines by SSH.

package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/doctor"
	"github.com/gateweigh/gateweigh/lab/measure"
	"github.com/gateweigh/gateweigh/lab/measure/cost"
	"github.com/gateweigh/gateweigh/lab/result"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// small is an experiment of a few seconds with the device allowlist. reportOf returns the checks in the output of
// doctor --json, by key.

// TestOnMachines runs gateweigh with hosts that it reaches by ssh. sshtest emulates these machines (client, router and
// server, each with its own sshd) by namespaces. m.Tables returns the part of an experiment's file that names them, and
// m.State describes what a run may change on a machine. The parts run in this order on the same machines.
func TestOnMachines(t *testing.T) {
	m, dir := sshtest.New(t), t.TempDir()
	m.AddOrdinaryUser(t, "lab ALL=(root) NOPASSWD: ALL\n")
	for _, part := range []struct {
		name string
		test func(*testing.T, *sshtest.Machines, string)
	}{
		{"run", runOverSSH}, {"families", familiesOverSSH}, {"doctor", doctorOfHosts}, {"closed router", closedRouter},
		{"clocks", keptClocks}, {"small box", smallBox /* smallbox_test.go */}, {"bandwidth", portalBandwidth},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, m, dir) })
	}
}

// runOverSSH measures on three machines and makes the report. The router's login is that of an ordinary user with sudo.
func runOverSSH(t *testing.T, m *sshtest.Machines, dir string) {
	before := map[string]string{}
	for _, name := range sshtest.Names {
		before[name] = m.State(t, name)
	}
	write(t, dir, "small.toml", small+ordinaryTables(m))
	e := finish(t, command(t, dir, "run", "small.toml", "--out", "r"))
	measured(t, e)
	for _, want := range []string{"allowlist", "overhead", "r/report.html"} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("the table lacks %q:\n%s", want, e.stdout)
		}
	}
	run, err := measure.ReadRun(filepath.Join(dir, "r"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sshtest.Names {
		site := run.Environment.Machines[name]
		if site.Address != map[string]string{"router": "ordinary"}[name] && site.Address != name || site.Kernel == "" ||
			site.CPUs == 0 || site.AgentSHA256 == "" || len(site.Interfaces) < 2 {
			t.Errorf("machine of %s: %+v", name, site)
		}
		if list := run.Environment.Ports[name]; len(list) == 0 || list[0].Driver != "veth" || list[0].Threaded != "1" ||
			!slices.Contains(list[0].Offloads, "rx-gro") || slices.Contains(list[0].Offloads, "tx-tcp-segmentation") {
			t.Errorf("links of %s: %+v", name, list)
		}
		m.AwaitRestored(t, name, before[name])
	}
	page, err := os.ReadFile(filepath.Join(dir, "r", "report.html"))
	if !strings.Contains(string(page), "Link lan of router") {
		t.Errorf("the report does not show the router's links: %v", err)
	}
}

// familiesOverSSH measures three machines by IPv4, IPv6 and both. Afterwards they are as before: they keep no IPv6
// address, route or setting of the lab.
func familiesOverSSH(t *testing.T, m *sshtest.Machines, dir string) {
	before := map[string]string{}
	for _, name := range sshtest.Names {
		before[name] = m.State(t, name)
	}
	write(t, dir, "families.toml", strings.Replace(bothFamilies, `"allowlist", "floor"`, `"allowlist"`, 1)+m.Tables(2, ""))
	measured(t, finish(t, command(t, dir, "run", "families.toml", "--set", "redo=3", "--out", "families")))
	run, err := measure.ReadRun(filepath.Join(dir, "families"))
	if err != nil {
		t.Fatal(err)
	}
	accepted := map[string]int{}
	for _, trial := range run.Trials {
		sides := cost.SidesOf(trial)
		if trial.Accepted && min(sides.DUT.NAPINs, sides.Clean.NAPINs, sides.DUT.Packets, int64(sides.DUT.RTT.Probes)) > 0 {
			accepted[trial.Cell.Text(result.DUT)+" "+trial.Cell.Text(result.Family)]++
		}
	}
	for _, want := range []string{"allowlist 4", "allowlist 6", "allowlist both"} {
		if accepted[want] == 0 {
			t.Errorf("no trial of %s has figures and was accepted: %v", want, accepted)
		}
	}
	for _, name := range sshtest.Names {
		m.AwaitRestored(t, name, before[name])
	}
}

// ordinaryTables returns the experiment's tables of the machines, with an ordinary user's login on the router.
func ordinaryTables(m *sshtest.Machines) string {
	return strings.Replace(m.Tables(2, ""), `address = "router"`, `address = "ordinary"`, 1)
}

// closedRouter measures a router that gateweigh cannot log in to, from the client and the server. All outputs say which
// figures are unknown.
func closedRouter(t *testing.T, m *sshtest.Machines, dir string) {
	m.Run(t, "router", `sysctl -qw net.ipv4.ip_forward=1; ip addr add 10.8.0.1/24 dev rlan; ip link set rlan up
ip addr add 10.9.0.254/24 dev rwan; ip link set rwan up`)
	tables := m.ClosedTables("10.8.0.1/24", "10.9.0.254/24")
	write(t, dir, "cpu.toml", strings.Replace(small, `"allowlist"`, `"as-is"`, 1)+tables)
	refused := finish(t, command(t, dir, "run", "cpu.toml"))
	if refused.code != exitUsage || !strings.Contains(refused.stderr, `measure: "cost" needs the router's CPU`) ||
		!strings.Contains(refused.stderr, `or use measure = "throughput"`) {
		t.Errorf("exit %d: %s", refused.code, refused.stderr)
	}
	write(t, dir, "box.toml", `measure = "throughput"
duts = ["as-is"]
clients = [3]
blocks = 1
frame_sizes = [590]
max_kpps = 2
loss_ratios = [0.01]
trials = 1
window = "300ms"
redo = 3
`+tables)
	doctor := finish(t, command(t, dir, "doctor", "--experiment", "box.toml"))
	if doctor.code != 0 || !strings.Contains(doctor.stdout, "as-is on client (client) and server (server)") {
		t.Errorf("exit %d: %s%s", doctor.code, doctor.stdout, doctor.stderr)
	}
	e := finish(t, command(t, dir, "run", "box.toml", "--out", "box"))
	measured(t, e)
	const unknown = "The router has no agent: throughput, loss and round-trip times only"
	if !strings.Contains(e.stdout, "RTT µs") || strings.Contains(e.stdout, "CPU  ") ||
		!strings.Contains(e.stdout, unknown) {
		t.Errorf("the terminal:\n%s", e.stdout)
	}
	page, err1 := os.ReadFile(filepath.Join(dir, "box", "report.html"))
	rows, err2 := os.ReadFile(filepath.Join(dir, "box", "summary.csv"))
	if err1 != nil || err2 != nil || !strings.Contains(string(page), unknown) ||
		!strings.Contains(string(rows), "no-agent") ||
		!strings.Contains(string(rows), "rtt_p50_us") || strings.Contains(string(rows), "core_pct") {
		t.Errorf("page and rows do not say what is not known: %v %v\n%s", err1, err2, rows)
	}
	for _, again := range [][]string{{"report", "box"}, {"run", "--resume", "box"}} { // its experiment.toml is read again
		if e := finish(t, command(t, dir, again...)); e.code != 0 && e.code != exitRejected {
			t.Errorf("%s: exit %d: %s", again[0], e.code, e.stderr)
		}
	}
}

// portalBandwidth runs the experiment of study 1 on four machines, two of which hold the clients. Its table has the
// same rows and columns as in namespaces.
func portalBandwidth(t *testing.T, m *sshtest.Machines, dir string) {
	small := []string{"--set", "duts=allowlist", "--set", "clients=4", "--set", "offered_mbps=10,20", "--set", "blocks=1",
		"--set", "aa_blocks=0", "--set", "windows=1", "--set", "window=300ms", "--set", "warmup=200ms", "--set", "redo=3",
		"--set", "mode=interleaved"}
	builtin := finish(t, command(t, dir, "list", "portal-bandwidth"))
	_, file, found := strings.Cut(builtin.stdout, "\nname = ")
	if !found {
		t.Fatalf("no file in:\n%s", builtin.stdout)
	}
	write(t, dir, "study.toml", "name = "+strings.Replace(file, "\nhosts = 1\n", "\n", 1)+m.AddSecondClient(t))
	form := func(args ...string) (rows, columns []string) {
		out := args[len(args)-1]
		measured(t, finish(t, command(t, dir, append(append([]string{"run"}, args...), small...)...)))
		file, err := os.Open(filepath.Join(dir, out, "summary.csv"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		table, err := csv.NewReader(file).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range table[1:] {
			rows = append(rows, strings.Join(row[:5], " "))
		}
		// These columns exist only where the machine's noise was measured.
		return rows, slices.DeleteFunc(table[0], func(name string) bool { return strings.HasPrefix(name, "noise_") })
	}
	rows, columns := form("study.toml", "--out", "study")
	wantRows, wantColumns := form("portal-bandwidth", "--set", "client.hosts=2", "--out", "namespaces")
	t.Logf("windows differ from the length asked for by %.2f %% over ssh, and by %.2f %% in namespaces",
		windowError(t, filepath.Join(dir, "study"), 300*time.Millisecond),
		windowError(t, filepath.Join(dir, "namespaces"), 300*time.Millisecond))
	if !slices.Equal(rows, wantRows) || !slices.Equal(columns, wantColumns) || len(rows) < 2 {
		t.Errorf("on machines the rows are\n%v\nand in namespaces\n%v\nthe columns\n%v\n%v", rows, wantRows, columns,
			wantColumns)
	}
}

// keptClocks: one-way delays are left out when hosts have clocks of their own. With chronyd they are shown, with a
// bound of their error.
func keptClocks(t *testing.T, m *sshtest.Machines, dir string) {
	const some = "duts = [\"allowlist\"]\nclients = [1]\nframe_sizes = [590]\noffered_kpps = [1]\nblocks = 1\naa_blocks " +
		"= 0\n" +
		"windows = 1\nwindow = \"300ms\"\nwarmup = \"200ms\"\nredo = 3\ntraffic = { kind = \"frames\" }\n"
	runOf := func(name string) *result.Run {
		e := finish(t, command(t, dir, "run", name+".toml", "--out", name))
		measured(t, e)
		run, err := measure.ReadRun(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return &run
	}
	bounds := func(run *result.Run) (delays, bounds int) {
		for _, trial := range run.Trials {
			sides := cost.SidesOf(trial)
			if sides.DUT.Metrics[cost.DelayP50] > 0 {
				delays++
			}
			if sides.DUT.Metrics[cost.DelayBound] > 0 {
				bounds++
			}
		}
		return delays, bounds
	}
	write(t, dir, "apart.toml", some+m.Tables(2, ""))
	apart := runOf("apart")
	delays, _ := bounds(apart)
	if notes := strings.Join(apart.Environment.Notes, "\n"); delays > 0 ||
		!strings.Contains(notes, "One-way delays are left out: the hosts have no common clock.") {
		t.Errorf("%d delays by two clocks; notes: %s", delays, notes)
	}
	kept := strings.Replace(m.Tables(2, ""), "[backend]\n", "[backend]\nclock = \"chrony\"\n", 1)
	write(t, dir, "kept.toml", some+kept)
	refused := finish(t, command(t, dir, "run", "kept.toml"))
	if refused.code == 0 || !strings.Contains(refused.stderr, "start chronyd: systemctl start chrony") {
		t.Errorf("exit %d: %s", refused.code, refused.stderr)
	}
	m.Chrony(t)
	run := runOf("kept")
	delays, bounded := bounds(run)
	if notes := strings.Join(run.Environment.Notes, "\n"); delays == 0 || bounded != delays ||
		!strings.Contains(notes, "One-way delays are of two clocks, which differ by up to ± ") {
		t.Errorf("%d delays, %d with a bound; notes: %s", delays, bounded, notes)
	}
}

// doctorOfHosts: doctor examines every machine of an experiment, and reports all faults of each.
func doctorOfHosts(t *testing.T, m *sshtest.Machines, dir string) {
	write(t, dir, "small.toml", small+ordinaryTables(m))
	good := finish(t, command(t, dir, "doctor", "--experiment", "small.toml", "--json"))
	lines := reportOf(t, good.stdout)
	for _, key := range []string{"client.connection", "router.interface.rlan2", "router.tool.nft", "server.tool.ethtool",
		"server.clock", "router.disk", "device.allowlist"} {
		if lines[key].State != doctor.OK {
			t.Errorf("%s: %+v", key, lines[key])
		}
	}
	if good.code != 0 {
		t.Errorf("exit %d: %s%s", good.code, good.stdout, good.stderr)
	}
	tables := strings.NewReplacer(
		`["rlan", "rlan2"]`, `"mgmt"`, `["rwan", "rwan2"]`, `"eth77"`, `["ceth", "ceth2"]`, `"ceth"`,
		`["seth", "seth2"]`, `"seth"`, `"client"`, `"nowhere.invalid"`, `"server"`, `"unknown"`).Replace(m.Tables(2, ""))
	write(t, dir, "faulty.toml", strings.Replace(small, `["allowlist"]`, `["allowlist", "coovachilli"]`, 1)+tables)
	bad := finish(t, command(t, dir, "doctor", "--experiment", "faulty.toml", "--json"))
	lines = reportOf(t, bad.stdout)
	for key, want := range map[string]doctor.Check{
		"client.connection": {Found: "faulty.toml:", Remedy: "name it in ~/.ssh/config"},
		"server.connection": {
			Found: "its host key is not known yet", Remedy: "connect once by hand and look at it: ssh unknown"},
		"router.interface.mgmt":  {Found: "it carries this ssh connection", Remedy: "backend.host.router.lan"},
		"router.interface.eth77": {Found: "there is no interface eth77", Remedy: "backend.host.router.wan"},
		"router.tool.chilli":     {Found: "for coovachilli", Remedy: "build CoovaChilli"},
		"device.coovachilli":     {Found: "not on PATH: chilli"},
	} {
		line := lines[key]
		if line.State != doctor.Missing || !strings.Contains(line.Found, want.Found) ||
			!strings.Contains(line.Remedy, want.Remedy) {
			t.Errorf("%s: %+v, want %+v", key, line, want)
		}
	}
	if bad.code != exitNothingRan ||
		!strings.Contains(bad.stderr, "client (nowhere.invalid) (address); router (router) (lan mgmt, wan eth77)") {
		t.Errorf("exit %d: %s", bad.code, bad.stderr)
	}
}

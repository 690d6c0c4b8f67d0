package runner

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/experiment"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/topology"
	"github.com/gateweigh/gateweigh/lab/traffic"
)

// roomy returns a machine whose limits no demand of these tests reaches.
func roomy() machine.Machine {
	return machine.Machine{
		Limits: machine.Limits{Neighbours: [3]int64{1 << 20, 1 << 20, 1 << 20}, PIDMax: 1 << 20, ThreadsMax: 1 << 20,
			Namespaces: 1 << 20, FilesHard: 1 << 20},
		Memory: machine.Memory{Available: 64 << 20},
	}
}

// oneClientHost is the size of a lab with one client host.
var oneClientHost = topology.Portal(topology.Spec{}).Size()

// demandOf returns the demand of two labs with n clients each, of one kind.
func demandOf(kind string, n int) Demand {
	s := experiment.Side{Client: kind, Clients: n}
	return Demand{Experiment: "x", Sides: []experiment.Side{s, s}, Lab: oneClientHost}
}

// TestDemandBeyondALimitIsRefusedWithWhatFits: each limit in turn is too low. The refusal names the largest number of
// clients that fits, and a new limit that is high enough.
func TestDemandBeyondALimitIsRefusedWithWhatFits(t *testing.T) {
	for name, tt := range map[string]struct {
		d     Demand
		lower func(*machine.Limits, *machine.Memory) // lowers limits of a machine that has enough of everything
		want  string                                 // the refusal; empty: the demand is met
	}{
		"neighbours": {demandOf(client.KindMacvlan, 250),
			func(l *machine.Limits, _ *machine.Memory) { l.Neighbours[2] = 256 },
			"clients: the machine's table of neighbours has room for 256, and x (250 clients) takes 506: about 125 clients " +
				"fit, or raise it: sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=1012"},
		"namespaces": {demandOf(client.KindMacvlan, 250),
			func(l *machine.Limits, _ *machine.Memory) { l.Namespaces, l.InUse = 130, 30 },
			"clients: the machine's room for more network namespaces is 100, and x (250 clients) takes 506: about 47 clients " +
				"fit, or raise it: sudo sysctl -w user.max_net_namespaces=536"},
		"tasks": {iperf3Of(250), func(l *machine.Limits, _ *machine.Memory) { l.PIDMax, l.Tasks = 1200, 200 },
			"clients: the machine's room for more processes and threads is 1000, and x (250 clients) takes 1352: about 162 " +
				"clients fit, or raise it: sudo sysctl -w kernel.pid_max=6208"},
		"tasks of a group": {iperf3Of(250), func(l *machine.Limits, _ *machine.Memory) {
			l.GroupTasks = machine.Headroom{Limit: 1200, Used: 200, File: "/sys/fs/cgroup/a b/pids.max"}
		},
			"clients: the control group has room for 1000 more processes and threads (/sys/fs/cgroup/a b/pids.max), and x " +
				"(250 clients) takes 1352: about 162 clients fit, or raise it: podman run --pids-limit=-1 …, or a higher number " +
				"in /sys/fs/cgroup/a b/pids.max"},
		"memory": {demandOf(client.KindPersona, 65_000), func(_ *machine.Limits, m *machine.Memory) { m.Available = 2 << 20 },
			"clients: the machine has 2097152 KiB of memory to give, and x (65000 clients) takes 2993216: about 42598 clients " +
				"fit"},
		"files": {demandOf(client.KindMacvlan, 4000), func(l *machine.Limits, _ *machine.Memory) { l.FilesHard = 1024 },
			"clients: the hard limit of open files is 1024, and x (4000 clients) takes 16128: about 224 clients fit, or raise " +
				"it: ulimit -Hn 16128"},
		"files, shared": {
			demandOf(client.KindPersona, 65_000), func(l *machine.Limits, _ *machine.Memory) { l.FilesHard = 1300 },
			"clients: the hard limit of open files is 1300, and x (65000 clients) takes 9149: about 2208 clients fit, or " +
				"raise it: ulimit -Hn 9149"},
		"one client": {demandOf(client.KindMacvlan, 250), func(l *machine.Limits, _ *machine.Memory) { l.Neighbours[2] = 8 },
			"clients: the machine's table of neighbours has room for 8, and x (250 clients) takes 506: about 1 client fits, " +
				"or raise it: sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=1012"},
		"personas take no neighbours": {
			demandOf(client.KindPersona, 65_000), func(l *machine.Limits, _ *machine.Memory) { l.Neighbours[2] = 128 }, ""},
		"a storm at devices that enter clients": {Demand{Experiment: "x", Sides: demandOf(client.KindMacvlan, 1000).Sides[:1],
			Lab: oneClientHost, Enters: true}, func(l *machine.Limits, _ *machine.Memory) { l.Neighbours[2] = 128 }, ""},
		"personas take no namespaces": {
			demandOf(client.KindPersona, 65_000), func(l *machine.Limits, _ *machine.Memory) { l.Namespaces = 128 }, ""},
		"20,000 files are enough": {
			demandOf(client.KindPersona, 65_000), func(l *machine.Limits, _ *machine.Memory) { l.FilesHard = 20_000 }, ""},
		"what is not shown is not tested": {demandOf(client.KindMacvlan, 4000), func(l *machine.Limits,
			m *machine.Memory) {
			*l, *m = machine.Limits{}, machine.Memory{}
		}, ""},
	} {
		m := roomy()
		tt.lower(&m.Limits, &m.Memory)
		got := ""
		if err := checkLimits(m, tt.d); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: %s\nwant %s", name, got, tt.want)
		}
		if _, after, refused := strings.Cut(got, ": about "); refused {
			checkFits(t, m, tt.d, after)
		}
	}
}

// checkFits reads the number of clients from text ("12 clients fit …"), and requires the demand to be met with that
// number and refused with one more.
func checkFits(t *testing.T, m machine.Machine, d Demand, text string) {
	t.Helper()
	var fits int
	if _, err := fmt.Sscan(text, &fits); err != nil {
		t.Fatal(err)
	}
	for i := range d.Sides {
		d.Sides[i].Clients = fits
	}
	if err := checkLimits(m, d); err != nil {
		t.Errorf("the %d clients it names: %v", fits, err)
	}
	for i := range d.Sides {
		d.Sides[i].Clients++
	}
	if checkLimits(m, d) == nil {
		t.Errorf("%d clients fit as well", fits+1)
	}
}

// iperf3Of is demandOf for clients of kind macvlan with traffic of iperf3.
func iperf3Of(n int) Demand {
	d := demandOf(client.KindMacvlan, n)
	for i := range d.Sides {
		d.Sides[i].Traffic.Kind = traffic.KindIperf3
	}
	return d
}

// TestDemandFollowsTheTopology: a lab with three client hosts has two hosts and a switch more than one with one. Each
// of them takes a namespace, tasks and memory.
func TestDemandFollowsTheTopology(t *testing.T) {
	e, err := shipped.Builtin("quick")
	if err != nil {
		t.Fatal(err)
	}
	one := DemandOf(e)
	if err := e.Set("client.hosts", "3"); err != nil {
		t.Fatal(err)
	}
	three := DemandOf(e)
	const labs, more = 2, 3 // two client hosts and the switch
	for what, got := range map[string]int64{
		"namespaces": three.Namespaces() - one.Namespaces() - labs*more,
		"memory":     three.MemoryKiB() - one.MemoryKiB() - labs*more*MemoryPerHost<<10,
		"tasks":      three.Tasks() - one.Tasks() - labs*more*tasksPerHost,
		"neighbours": three.Neighbours() - one.Neighbours() - labs*(more-1), // a switch has no addresses
	} {
		if got != 0 {
			t.Errorf("%s: off by %d", what, got)
		}
	}
}

// TestFilesAreRaisedAndLowered runs in a process of its own, because it lowers its limits for good.
func TestFilesAreRaisedAndLowered(t *testing.T) {
	const inside = "GATEWEIGH_TEST_FILES"
	if os.Getenv(inside) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	low := unix.Rlimit{Cur: 1024, Max: 1024}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	// hard returns the hard and the soft limit of open files of this process's children.
	hard := func() string {
		out, err := exec.Command("sh", "-c", "ulimit -Hn; ulimit -Sn").Output() // what agents and daemons get
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(out)), " ")
	}
	d := demandOf(client.KindPersona, 65_000)
	want, high := "", "1024 1024" // without CAP_SYS_RESOURCE, as in a container
	if mayRaise(t) {
		want, high = "The hard limit of open files was raised from 1024 to 17024, for this run's processes only.",
			"17024 1024"
	}
	text, lower := raiseFiles(d)
	if text != want || hard() != high {
		t.Errorf("said %q, want %q; children have the limits %s, want %s", text, want, hard(), high)
	}
	for range 2 {
		lower()
		if got := hard(); got != "1024 1024" {
			t.Errorf("afterwards children have the limits %s", got)
		}
	}
	if text, _ := raiseFiles(demandOf(client.KindMacvlan, 10)); text != "" {
		t.Errorf("nothing was to be raised: %q", text)
	}
	if err := syscall.Setresuid(65534, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if text, _ := raiseFiles(d); text != "" || hard() != "1024 1024" {
		t.Errorf("as nobody: %q, limits %s", text, hard())
	}
}

// mayRaise reports whether this process has CAP_SYS_RESOURCE.
func mayRaise(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		t.Fatal(err)
	}
	return sets[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// TestWhoEntersNeighbours: a login storm takes entries of the kernel's neighbour table unless all of its devices enter
// their clients there themselves.
func TestWhoEntersNeighbours(t *testing.T) {
	e, err := shipped.Builtin("login-storm")
	if err != nil {
		t.Fatal(err)
	}
	for duts, enters := range map[string]bool{"gateway-ebpf,gateway-tun": true, "gateway-ebpf,opennds": false} {
		if err := e.Set("duts", duts); err != nil {
			t.Fatal(err)
		}
		if d := DemandOf(e); d.Enters != enters || (d.Neighbours() < 1000) != enters {
			t.Errorf("%s: the devices enter clients: %v, and the kernel learns %d", duts, d.Enters, d.Neighbours())
		}
	}
}

// TestLinesAreNoNeighbours: PPPoE clients (subscriber lines) take no entries that the kernel learns: their sessions
// need none, and the lab enters the clients of the clean router.
func TestLinesAreNoNeighbours(t *testing.T) {
	e, err := shipped.Parse("x.toml", []byte(
		"duts = [\"gateway-pppoe-ebpf\"]\nclients = [10000]\noffered_mbps = [100]\n[client]\nkind = \"pppoe\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := DemandOf(e); d.Neighbours() > 1000 {
		t.Errorf("the kernel learns %d", d.Neighbours())
	}
}

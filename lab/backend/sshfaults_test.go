// Tests of machines that cannot be hosts, and of hosts that end. sshtest makes the machines (m); remotes makes the
// backend of them (ssh_test.go), and open opens it.

package backend_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/sshtest"
	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// TestFaultsOverSSH: machines that cannot be hosts are refused with the key that says so; and however a host ends, its
// machine is as it was.
func TestFaultsOverSSH(t *testing.T) {
	m := sshtest.New(t)
	putAgents(t, m)
	t.Run("refused", func(t *testing.T) { refusedMachines(t, m) })
	t.Run("sudo", func(t *testing.T) { sudoOnRouter(t, m) })
	t.Run("another build", func(t *testing.T) { otherBuilds(t, m) })
	t.Run("ended", func(t *testing.T) { endedHosts(t, m) })
}

// refusal is a machine that cannot be a host.
type refusal struct {
	name   string
	host   string // what the machine is to be
	change func(*backend.Remote)
	before string // what is done on the machine first, and undone
	after  string
	key    string // what is said of it
	want   string
}

func address(name string) func(*backend.Remote) {
	return func(r *backend.Remote) { r.Address = name }
}

func lan(name string) func(*backend.Remote) {
	return func(r *backend.Remote) { r.Links["lan"] = []string{name} }
}

// fakeUname makes uname print something else. A shell that sshd starts reads this file.
func fakeUname(system, processor string) string {
	return `mkdir /root/bin; echo "PATH=/root/bin:\$PATH" >/root/.bashrc; cat >/root/bin/uname <<'END'
#!/bin/sh
case $1 in -s) echo ` + system + `;; -m) echo ` + processor + `;; esac
END
chmod 755 /root/bin/uname`
}

const noBashrc = "rm -r /root/.bashrc /root/bin"

var refusals = []refusal{
	{"no such name", "client", address("nowhere.invalid"), "", "", "address", "name it in ~/.ssh/config"},
	{"takes no key", "router", address("stranger"), "", "", "address", "Permission denied"},
	{"takes another key", "router", address("other"), "", "", "address", "takes none of your keys"},
	{"host key not known", "router", address("unknown"), "", "", "address", "its host key is not known yet"},
	{"host key changed", "router", address("changed"), "", "", "address", "its host key has changed"},
	{"no sshd", "router", address("deaf"), "", "", "address", "no sshd listens there"},
	{"another host's machine", "server", address("router"), "", "", "address", "is the same machine as router"},
	{"another system", "router", nil, fakeUname("FreeBSD", "amd64"), noBashrc, "address", "runs FreeBSD"},
	{"another processor", "router", nil, fakeUname("Linux", "s390x"), noBashrc, "address",
		"no agent for its processor (s390x)"},
	{"an agent that was not built", "router", nil, fakeUname("Linux", "riscv64"), noBashrc, "address", "make agents"},
	{"no place for a program", "router", nil,
		"for d in /tmp /dev/shm /var/tmp /root; do mount -o remount,noexec $d; done",
		"for d in /tmp /dev/shm /var/tmp /root; do mount -o remount,exec $d; done", "address", "noexec"},
	{"a full disk", "router", nil, "for d in /tmp /dev/shm /var/tmp /root; do mount -t tmpfs -o size=64k full $d; done",
		"for d in /tmp /dev/shm /var/tmp /root; do umount $d; done", "address", "KiB free of"},
	{"a CPU that is not there", "router", func(r *backend.Remote) { r.CPUs = []int{999} }, "", "", "cpus", "CPU 999"},

	{"ssh's own", "router", lan("mgmt"), "", "", "lan", "it carries this ssh connection (10.99.0.254 to 10.99.0.2)"},
	{"below ssh's own", "router", lan("rlan2"),
		"ip link add br0 type bridge; ip link set rlan2 master br0; ip addr add 10.99.0.2/32 dev br0", "ip link del br0",
		"lan",
		"it carries this ssh connection (10.99.0.254 to 10.99.0.2), below br0"},
	{"a default route's", "router", lan("rlan2"),
		"ip link set rlan2 up; ip addr add 10.5.0.1/24 dev rlan2; ip route add default dev rlan2",
		"ip addr flush dev rlan2; ip link set rlan2 down", "lan", "it carries the machine's default route"},
	{"absent", "router", lan("eth77"), "", "", "lan", "there is no interface eth77: here are mgmt, rlan"},
	{"a bridge's port", "router", lan("rlan2"), "ip link add br0 type bridge; ip link set rlan2 master br0",
		"ip link del br0",
		"lan", "a port of br0"},
	{"below another", "router", lan("rlan2"), "ip link add link rlan2 name up0 type macvlan", "ip link del up0", "lan",
		"up0 stands on it"},
	{"with a hook", "router", lan("rlan2"), "tc qdisc add dev rlan2 clsact", "tc qdisc del dev rlan2 clsact", "lan",
		"it has a clsact hook"},
	{"with a queue", "router", lan("rlan2"), "tc qdisc add dev rlan2 root tbf rate 1mbit burst 5k limit 5k",
		"tc qdisc del dev rlan2 root", "lan", "its queue is of kind tbf"},
}

func refusedMachines(t *testing.T, m *sshtest.Machines) {
	before := m.State(t, "router")
	// for refusals of links: what a host's links are is read when it starts
	connected := open(t, remotes(m).Machines[:1], m)
	for _, r := range refusals {
		t.Run(r.name, func(t *testing.T) {
			if r.before != "" {
				m.Run(t, "router", r.before)
				defer m.Run(t, "router", r.after)
			}
			var err error
			if r.key == "lan" {
				lan := connected.remotes[0].Links["lan"]
				r.change(&connected.remotes[0])
				_, err = connected.Start(t.Context(), "a/router", true)
				connected.remotes[0].Links["lan"] = lan
			} else {
				err = refused(t, m, r)
			}
			list := backend.HostErrors(err)
			if len(list) != 1 || list[0].Host != r.host || list[0].Key != r.key ||
				!strings.Contains(err.Error(), r.want) {
				t.Errorf("%v: %+v: want %s of %s, and %q", err, list, r.key, r.host, r.want)
			}
		})
	}
	if err := connected.Close(); err != nil {
		t.Error(err)
	}
	m.AwaitRestored(t, "router", before)
}

// refused opens a backend with a machine that cannot be a host.
func refused(t *testing.T, m *sshtest.Machines, r refusal) error {
	t.Helper()
	s := remotes(m)
	if r.host == "router" { // alone, which is quicker
		s.Machines = s.Machines[:1]
	}
	for i := range s.Machines {
		if s.Machines[i].Host == r.host && r.change != nil {
			r.change(&s.Machines[i])
		}
	}
	b, err := s.Open(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err == nil {
		b.Close()
	}
	return err
}

// opened is an open backend, and what it was opened with.
type opened struct {
	backend.Backend
	remotes []backend.Remote
}

// open connects to machines over SSH.
func open(t *testing.T, machines []backend.Remote, m *sshtest.Machines) opened {
	t.Helper()
	s := backend.SSH{Config: m.Config, Machines: machines}
	b, err := s.Open(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return opened{b, machines}
}

// ending is a way in which a host ends, a script on the router or beside it. They share a connection until one ends
// that too.
type ending struct {
	name   string
	script string // on the machine
	cut    bool   // the connection is cut off as long as the host is waited for
	want   string // what the lab says
	closes bool   // the connection ends with it
}

var ends = []ending{
	{"agent killed", "kill -9 $agent", false, "ended", false},
	{"agent stopped, then the lab ends", "kill -STOP $agent", false, "", false},
	{"guard killed", "kill -9 $guard", false, "ended", false},
	{"guard told to end", "kill -TERM $guard", false, "ended", false},
	{"guard and connection killed while the agent answers", `kill -STOP $agent; sleep 1
kill -9 $guard $sshd; kill -CONT $agent`, false, "ended", true},
	{"in order", "", false, "", true},
	{"sshd killed", "kill -9 $sshd", false, "ended", true},
	{"cut off", "", true, "ended", true},
}

// find has the numbers of the processes of host a/router: among those of the machine, not among the lab's. They are
// told apart by their UTS namespace, because a guard's first thread may be the one that works in the host's network.
const find = `guard=$(pgrep --ns $$ --nslist uts -f '[a]gent-guard.*"a/router"'); agent=$(pgrep -P "$guard")
sshd=$(ps -o ppid= "$guard" | tr -d ' '); [ "$guard" -a "$agent" -a "$sshd" ]; `

func endedHosts(t *testing.T, m *sshtest.Machines) {
	m.Run(t, "router", `ip link set rlan up; ip link set rwan up; ip addr add 10.6.0.1/24 dev rlan
ip route add 10.7.0.0/16 via 10.6.0.9 dev rlan; ethtool -K rwan gro on`)
	before := m.State(t, "router")
	const forLogs = 500 * time.Millisecond
	defer backend.ShortenPatience(20*time.Second, forLogs)()
	var b backend.Backend
	for _, e := range ends {
		if b == nil {
			if e.cut { // which the agent notices by its patience alone; others need more where a machine is busy
				backend.ShortenPatience(3*time.Second, forLogs)
			}
			b = open(t, remotes(m).Machines[:1], m)
		}
		t.Run(e.name, func(t *testing.T) { e.try(t, m, b, before) })
		if e.closes {
			b.Close()
			m.AwaitRestored(t, "router", before)
			b = nil
		}
	}
}

// try ends a host in one way, and waits until its machine is in the state that it had before.
func (e ending) try(t *testing.T, m *sshtest.Machines, b backend.Backend, before string) {
	h := changed(t, b)
	if e.script != "" {
		m.Run(t, "router", find+e.script)
	}
	if e.cut {
		m.Cut(t, "router", true)
		defer m.Cut(t, "router", false)
	}
	if e.want == "" {
		h.Stop()
	}
	after := ""
	defer func() {
		if t.Failed() {
			t.Logf("the machine is not as it was:\n%s", sshtest.Difference(before, after))
		}
	}()
	labtest.Await(t, "the machine as it was", func() bool {
		after = m.State(t, "router")
		return withoutKeeper(after) == withoutKeeper(before)
	})
	if e.want == "" || e.cut {
		return
	}
	select {
	case <-h.Done():
	case <-time.After(10 * time.Second):
	}
	if err := h.Err(); err == nil || !strings.Contains(err.Error(), e.want) {
		t.Errorf("the lab says %v, want %q", err, e.want)
	}
}

// withoutKeeper is a look at a machine without the agent that keeps its program there, and without ssh's interface,
// which may be cut off.
func withoutKeeper(look string) string {
	var lines []string
	for line := range strings.Lines(look) {
		if !strings.Contains(line, "keeper") && !strings.Contains(line, "gateweigh-") && !strings.Contains(line, "mgmt") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// changed is a router whose interfaces are not what they were.
func changed(t *testing.T, b backend.Backend) *backend.Host {
	t.Helper()
	h, err := b.Start(t.Context(), "a/router", true)
	if err != nil {
		t.Fatal(err)
	}
	err = h.Apply(t.Context(), agent.Network{
		Links: []agent.Link{
			{Name: "rlan", Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.137.254/24")}, QueueLen: 77, CPUs: h.CPUs},
			{Name: "rwan", Addrs: []netip.Prefix{netip.MustParsePrefix("192.168.89.99/24")}, QueueLen: 77, CPUs: h.CPUs},
		},
		Routes:  []agent.Route{{Via: netip.MustParseAddr("192.168.89.1")}},
		Sysctls: map[string]string{"ipv4/ip_forward": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

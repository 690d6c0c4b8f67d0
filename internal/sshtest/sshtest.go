// Package sshtest makes machines for tests of ssh. Each is a set of namespaces (network, mount, UTS) with Debian's sshd
// and keys of its own. Cables (veth pairs) connect the machines.
package sshtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Machines are the three machines of study 1's network. The test itself reaches each by ssh:
//
//	client ceth  ═══ rlan  router rwan  ═══ seth  server      each has an interface "mgmt" for ssh
//	       ceth2 ═══ rlan2        rwan2 ═══ seth2
type Machines struct {
	// Config is a configuration file for ssh -F. It knows each machine by its name, and the router also by names for
	// faults: "stranger" (a user without a key), "other" (a key that the router does not accept), "unknown" (no host key
	// is known), "changed" (another host key is known), "deaf" (a port where no sshd listens). After AddOrdinaryUser
	// "ordinary" logs in as a user who is not root.
	Config string
	Dir    string         // keys and configuration; the machines see it too
	pids   map[string]int // of each machine's first process
}

// Names of the machines, in the order of their addresses 10.99.0.1 and on.
var Names = []string{"client", "router", "server"}

// machineScript makes a machine of the namespaces that it runs in, with its own /root, /run and temporary folders. It
// waits for a line on its standard input, which boot sends when the interface mgmt is there.
const machineScript = `
hostname "$name"; mount --make-rprivate /
mount -t tmpfs run /run; mkdir /run/sshd /run/kit; mount --bind "$dir" /run/kit
for d in /root /tmp /dev/shm /var/tmp; do mount -t tmpfs own $d; chmod 1777 $d; done; chmod 700 /root
mount -t sysfs sysfs /sys
ip link set lo up
echo ready; read go
sysctl -qw net.ipv6.conf.all.disable_ipv6=1
ip addr add "$address/24" dev mgmt; ip link set mgmt up
exec /usr/sbin/sshd -D -e -f /run/kit/sshd_$name`

// New makes the machines. They end with the test.
func New(t testing.TB) *Machines {
	t.Helper()
	m := &Machines{Dir: t.TempDir(), pids: map[string]int{}}
	m.Config = filepath.Join(m.Dir, "config")
	m.keys(t)
	bash(t, "ip link add mgmt type bridge; ip addr add 10.99.0.254/24 dev mgmt; ip link set mgmt up; ip link set lo up")
	t.Cleanup(func() { exec.Command("ip", "link", "del", "mgmt").Run() })
	for i, name := range Names {
		m.boot(t, name, fmt.Sprintf("10.99.0.%d", i+1))
	}
	m.cable(t)
	for _, name := range Names {
		m.await(t, name)
	}
	return m
}

func (m *Machines) await(t testing.TB, name string) {
	t.Helper()
	netnstest.Until(t, "sshd of "+name, func() bool {
		return exec.Command("ssh", "-F", m.Config, name, "true").Run() == nil
	})
}

// second is the client machine that Second makes.
const second = "client2"

// AddSecondClient makes a second client machine, and a switch that connects both clients ("ceth3") with the router
// ("rlan3"). It returns the tables of an experiment with these machines.
func (m *Machines) AddSecondClient(t testing.TB) string {
	t.Helper()
	m.boot(t, second, "10.99.0.4")
	bash(t, "ip link add lanswitch type bridge mcast_snooping 0; ip link set lanswitch up")
	t.Cleanup(func() { exec.Command("ip", "link", "del", "lanswitch").Run() })
	for i, end := range [][2]string{{"client", "ceth3"}, {second, "ceth3"}, {"router", "rlan3"}} {
		bash(t, fmt.Sprintf("ip link add lan%d type veth peer name %s netns %d; ip link set lan%[1]d master lanswitch up", i,
			end[1], m.pids[end[0]]))
	}
	m.await(t, second)
	return strings.NewReplacer("\"ceth\"", "\"ceth3\"", "\"rlan\"", "\"rlan3\"").Replace(m.Tables(1, "")) +
		"[backend.host.client2]\naddress = \"client2\"\ninterface = \"ceth3\"\n"
}

// commonConfig has the router's other names (see Machines.Config) and the options for all hosts.
const commonConfig = `Host stranger
 User nobody
Host ordinary
 User lab
Host unknown
 HostKeyAlias unknown
Host changed
 HostKeyAlias 10.99.0.1
Host deaf
 Port 2
Host other
 IdentityFile %[1]s/other
Host stranger other ordinary unknown changed deaf
 HostName 10.99.0.2
Host * !other
 IdentityFile %[1]s/id
Host *
 User root
 IdentitiesOnly yes
 UserKnownHostsFile %[1]s/known_hosts
 GlobalKnownHostsFile none
 StrictHostKeyChecking yes
`

// keys makes the keys of all machines and of the test, and the configurations of ssh and sshd.
func (m *Machines) keys(t testing.TB) {
	t.Helper()
	bash(t, "cd "+m.Dir+
		"; for k in id other host_client host_router host_server host_client2; do ssh-keygen -q -t ed25519 -N '' -f $k; "+
		"done; "+
		"cp id.pub authorized_keys; chmod 700 .")
	var config, known strings.Builder
	for i, name := range append(slices.Clone(Names), second) {
		address := fmt.Sprintf("10.99.0.%d", i+1)
		fmt.Fprintf(&config, "Host %s\n HostName %s\n", name, address)
		key, err := os.ReadFile(filepath.Join(m.Dir, "host_"+name+".pub"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&known, "%s %s", address, key)
		m.write(t, "sshd_"+name, "ListenAddress "+address+"\nHostKey /run/kit/host_"+name+`
PidFile none
AuthorizedKeysFile /run/kit/authorized_keys /run/keys/%u
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxSessions 10
`)
	}
	fmt.Fprintf(&config, commonConfig, m.Dir)
	m.write(t, "config", config.String())
	m.write(t, "known_hosts", known.String())
}

func (m *Machines) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// boot starts a machine and connects it to the test by its interface mgmt.
func (m *Machines) boot(t testing.TB, name, address string) {
	t.Helper()
	cmd := exec.Command("unshare", "--net", "--mount", "--uts", "bash", "-ec", machineScript)
	cmd.Env = append(os.Environ(), "name="+name, "address="+address, "dir="+m.Dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.WaitDelay = time.Second // a session of sshd that lives on holds the output open
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		if t.Failed() {
			t.Logf("the end of what sshd of %s says: %s", name, log.Bytes()[max(0, log.Len()-150):])
		}
	})
	ready := make([]byte, len("ready\n"))
	if _, err := out.Read(ready); err != nil {
		t.Fatalf("starting %s: %v: %s", name, err, log.String())
	}
	m.pids[name] = cmd.Process.Pid
	bash(t, fmt.Sprintf(
		"ip link add m-%s type veth peer name mgmt netns %d; ip link set m-%[1]s master mgmt up", name, cmd.Process.Pid))
	in.Write([]byte("go\n"))
}

// Run runs a script in a machine's namespaces, without ssh, and returns what it prints.
func (m *Machines) Run(t testing.TB, name, script string) string {
	t.Helper()
	out, err := m.command(name, script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s: %v: %s", name, script, err, out[max(0, len(out)-1000):])
	}
	return string(out)
}

func (m *Machines) command(name, script string) *exec.Cmd {
	cmd := exec.Command("nsenter", "-t", strconv.Itoa(m.pids[name]), "-n", "-m", "-u", "bash", "-ec", script)
	cmd.Dir = "/"
	return cmd
}

// AddOrdinaryUser gives the router a user "lab" who is not root, and gives sudo there these rules. It changes copies of
// the files in /etc that only the router sees. Called again it only sets the rules.
func (m *Machines) AddOrdinaryUser(t testing.TB, sudoers string) {
	t.Helper()
	m.write(t, "sudoers", sudoers)
	m.Run(t, "router", ordinaryScript)
}

const ordinaryScript = `
if ! [ -d /run/etc ]; then
mkdir /run/etc /run/keys /run/lab; chown 1500 /run/lab; install -m 644 /run/kit/id.pub /run/keys/lab
for f in passwd shadow group sudoers; do cp -p /etc/$f /run/etc; mount --bind /run/etc/$f /etc/$f; done
echo "lab:x:1500:1500::/run/lab:/bin/bash" >>/etc/passwd; echo "lab:*:19000:0:99999:7:::" >>/etc/shadow
echo "lab:x:1500:" >>/etc/group; mount -t tmpfs none /etc/sudoers.d
fi
cat /run/kit/sudoers >/etc/sudoers`

// Chrony starts Debian's chronyd on server and client, and waits until the client's follows the server's. Neither sets
// the clock, because all machines here share the clock of this one.
func (m *Machines) Chrony(t testing.TB) {
	t.Helper()
	m.write(t, "chrony_server", "local stratum 10\nallow\n")
	m.write(t, "chrony_client", "server 10.99.0.3 iburst minpoll -4 maxpoll -4\nport 0\n")
	for _, name := range []string{"server", "client"} {
		cmd := exec.Command(
			"nsenter", "-t", strconv.Itoa(m.pids[name]), "-n", "-m", "-u", "chronyd", "-x", "-d", "-u", "root",
			"-f", "/run/kit/chrony_"+name)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		netnstest.Until(t, "chronyd of "+name, func() bool {
			out, _ := m.command(name, "chronyc -n -c tracking").Output()
			return strings.Contains(string(out), "Normal")
		})
	}
}

// Cut cuts a machine's connection to the test, or mends it.
func (m *Machines) Cut(t testing.TB, name string, cut bool) {
	t.Helper()
	bash(t, "ip link set m-"+name+map[bool]string{true: " down", false: " up"}[cut])
}

// Tables returns the tables of an experiment whose hosts are these machines, with one or two pairs of ports. more has
// further keys of the router.
func (m *Machines) Tables(pairs int, more string) string {
	ports := func(name string) string {
		if pairs == 1 {
			return fmt.Sprintf("%q", name)
		}
		return fmt.Sprintf("[%q, %q]", name, name+"2")
	}
	return fmt.Sprintf(`
[backend]
kind = "ssh"
config = %q
[backend.host.router]
address = "router"
lan = %s
wan = %s
%s
[backend.host.client]
address = "client"
interface = %s
[backend.host.server]
address = "server"
interface = %s
`, m.Config, ports("rlan"), ports("rwan"), more, ports("ceth"), ports("seth"))
}

// ClosedTables returns Tables for a router that the lab does not log in to, with the router's addresses.
func (m *Machines) ClosedTables(lan, wan string) string {
	return fmt.Sprintf(`
[backend]
kind = "ssh"
config = %q
[backend.host.router]
lan_address = %q
wan_address = %q
[backend.host.client]
address = "client"
interface = "ceth"
[backend.host.server]
address = "server"
interface = "seth"
`, m.Config, lan, wan)
}

// State returns, as text to compare, all of a machine that a lab might change: links with their offloads, addresses,
// routes, queues, rules, sysctls, files in temporary folders, and agents that run.
func (m *Machines) State(t testing.TB, name string) string {
	t.Helper()
	return m.Run(t, name, lookScript)
}

// AwaitRestored waits until a machine's State is again what it was before. The kernel removes namespaces a moment after
// the last program in them has ended.
func (m *Machines) AwaitRestored(t testing.TB, name, before string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		after := m.State(t, name)
		if after == before {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s is not as it was:\n%s", name, Difference(before, after))
			return
		}
	}
}

// Difference returns the lines that only one of two texts has, with - for before and + for after.
func Difference(before, after string) string {
	var lines []string
	for i, pair := range [2][2]string{{before, after}, {after, before}} {
		for line := range strings.Lines(pair[0]) {
			if !strings.Contains(pair[1], line) {
				lines = append(lines, []string{"- ", "+ "}[i]+line)
			}
		}
	}
	return strings.Join(lines, "")
}

// lookScript prints a machine's State. It hides that an interface that has never been up has no queue, and afterwards
// the queue "noqueue".
const lookScript = `set +e
{ ip -d link; ip addr; } | sed "s/ state [A-Z]*//; s/NO-CARRIER,//; s/ qdisc noop / qdisc noqueue /"
ip route show table all; ip -6 route show table all; tc qdisc | grep -v noqueue; nft list ruleset
for i in $(ls /sys/class/net); do
[ $i = lo ] || { ethtool -k $i; echo threaded $(cat /sys/class/net/$i/threaded); }
done
grep -rs . /proc/sys/net/ipv4 /proc/sys/net/ipv6/conf | grep -v -E 'stable_secret|/route/'
ls -A /tmp /dev/shm /var/tmp /root; hostname
pgrep --ns $$ --nslist net -a -f '[a]gent-' | cut -d ' ' -f 2-
true`

// bash runs a script in the test's own network.
func bash(t testing.TB, script string) {
	t.Helper()
	if out, err := exec.Command("bash", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

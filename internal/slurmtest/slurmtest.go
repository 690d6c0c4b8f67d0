// Package slurmtest runs a real Slurm for tests: munged, slurmctld and several slurmd on one machine, without systemd,
// in the test's own network namespace. Jobs share the test's other namespaces, so labs run in them.
package slurmtest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net/netip"
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

// Cluster is a Slurm that runs.
type Cluster struct {
	Dir    string // slurm.conf, logs and state
	t      *testing.T
	ctld   *exec.Cmd                   // slurmctld, the controller
	daemon map[string]*exec.Cmd        // slurmd, by its node
	space  map[string]*netnstest.Space // the node's network, by node; empty where all share the test's
}

// address is that of the controller, and of all nodes without a network of their own. 127.0.0.1 would not do: on a
// machine without another address the C library resolves no names at all (AI_ADDRCONFIG).
const address = "10.99.0.1"

// bridge connects nodes that have a network of their own. Their addresses are 10.99.0.11, 10.99.0.12, …
const bridge = "slurm0"

// firstPort is the port of the first node's slurmd; the others have the ports after it.
const firstPort = 7001

// Start starts a cluster with this number of nodes, node1, node2, …, and sets SLURM_CONF for this process. All of it,
// with its jobs, ends with the test. Where Slurm is not installed the test fails.
func Start(t *testing.T, nodes int) *Cluster {
	t.Helper()
	return start(t, nodes, false)
}

// StartApart is Start with a network namespace for each node, as if each were a machine. The lock that keeps two runs
// from measuring at the same time belongs to a network, so runs on several nodes can measure at the same time. The
// nodes share the CPUs.
func StartApart(t *testing.T, nodes int) *Cluster {
	t.Helper()
	return start(t, nodes, true)
}

func start(t *testing.T, nodes int, apart bool) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "slurm")
	if err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o755) // else munge refuses it
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Dir: dir, t: t, daemon: map[string]*exec.Cmd{}, space: map[string]*netnstest.Space{}}
	t.Setenv("SLURM_CONF", filepath.Join(c.Dir, "slurm.conf"))
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	if apart {
		c.connect(nodes)
	} else {
		c.run("ip", "addr", "add", address+"/32", "dev", "lo")
	}
	t.Cleanup(func() {
		c.end()
		if apart {
			c.run("ip", "link", "del", bridge)
		} else {
			c.run("ip", "addr", "del", address+"/32", "dev", "lo")
		}
	})
	c.configure(nodes, apart)
	c.start("munged", "--foreground", "--socket="+c.file("munge.sock"), "--key-file="+c.file("munge.key"),
		"--pid-file="+c.file("munge.pid"), "--log-file="+c.file("munge.log"), "--seed-file="+c.file("munge.seed"))
	c.Wait("munged", func() bool { return exec.Command("munge", "-S", c.file("munge.sock"), "-n").Run() == nil })
	c.StartController()
	for n := range nodes {
		c.StartNode(fmt.Sprintf("node%d", n+1))
	}
	c.AwaitIdle(nodes)
	return c
}

// AwaitIdle waits until this number of nodes is idle.
func (c *Cluster) AwaitIdle(nodes int) {
	c.t.Helper()
	c.Wait("idle nodes", func() bool {
		list := strings.Fields(c.Slurm("sinfo", "-h", "-N", "-o", "%N=%T"))
		return len(slices.DeleteFunc(list, func(node string) bool { return !strings.HasSuffix(node, "=idle") })) == nodes
	})
}

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

// connect makes a network namespace for each node, and connects it with the test's by a bridge.
func (c *Cluster) connect(nodes int) {
	c.t.Helper()
	c.run("ip", "link", "add", bridge, "type", "bridge")
	c.run("ip", "addr", "add", address+"/24", "dev", bridge)
	c.run("ip", "link", "set", bridge, "up")
	for n := range nodes {
		name := fmt.Sprintf("node%d", n+1)
		s := netnstest.NewSpace(c.t)
		c.run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(s.TID()))
		c.run("ip", "link", "set", name, "master", bridge, "up")
		s.Enable(c.t, "eth0", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, 0, byte(11 + n)}), 24))
		c.space[name] = s
	}
}

func (c *Cluster) configure(nodes int, apart bool) {
	host, err := os.Hostname()
	if err != nil {
		c.t.Fatal(err)
	}
	key := make([]byte, 128)
	if _, err := rand.Read(key); err != nil {
		c.t.Fatal(err)
	}
	where := address
	if apart {
		where = fmt.Sprintf("10.99.0.[11-%d]", 10+nodes)
	}
	conf := strings.NewReplacer("NODEADDR", where, "DIR", c.Dir, "HOST", strings.Split(host, ".")[0], "ADDRESS", address,
		"NODES", strconv.Itoa(nodes), "PORTS", fmt.Sprintf("%d-%d", firstPort, firstPort+nodes-1)).Replace(configuration)
	for _, f := range []struct {
		name string
		data []byte
		mode os.FileMode
	}{{"munge.key", key, 0o400}, {"slurm.conf", []byte(conf), 0o644}} {
		if err := os.WriteFile(c.file(f.name), f.data, f.mode); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.Mkdir(c.file("state"), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// configuration is slurm.conf: no accounting and no control groups; each job gets a whole node; a lost node is noticed
// within seconds.
const configuration = `ClusterName=test
SlurmctldHost=HOST(ADDRESS)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=DIR/munge.sock
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/spool.%n
SlurmctldPidFile=DIR/ctld.pid
SlurmdPidFile=DIR/slurmd.%n.pid
SlurmctldLogFile=DIR/ctld.log
SlurmdLogFile=DIR/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=6
MessageTimeout=2
KillWait=2
MpiDefault=none
NodeName=node[1-NODES] NodeHostname=localhost NodeAddr=NODEADDR Port=[PORTS] CPUs=2 Feature=amd,10g State=UNKNOWN
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=EXCLUSIVE
`

// StartController starts slurmctld with the state that the last one saved.
func (c *Cluster) StartController() { c.ctld = c.start("slurmctld", "-D") }

// KillController ends slurmctld by a signal that it cannot catch, and waits until it is gone.
func (c *Cluster) KillController() {
	c.t.Helper()
	if err := c.ctld.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	_ = c.ctld.Wait() // it was killed
}

// AwaitSaved waits until slurmctld has saved its present state, because it forgets the rest when it is killed.
func (c *Cluster) AwaitSaved() {
	c.t.Helper()
	mark := fmt.Sprintf("saved-%d", time.Now().UnixNano())
	job := c.Slurm("sbatch", "--parsable", "--hold", "--comment="+mark, "--output=/dev/null", "--wrap=true")
	c.Wait("saved state", func() bool {
		state, _ := os.ReadFile(filepath.Join(c.Dir, "state", "job_state")) // absent while it is replaced
		return bytes.Contains(state, []byte(mark))
	})
	c.Slurm("scancel", strings.TrimSpace(job))
}

// StartNode starts a node's slurmd.
func (c *Cluster) StartNode(name string) {
	c.t.Helper()
	s := c.space[name]
	if s == nil {
		c.daemon[name] = c.start("slurmd", "-D", "-N", name)
		return
	}
	c.daemon[name] = exec.Command("slurmd", "-D", "-N", name)
	if err := s.Start(c.daemon[name]); err != nil {
		c.t.Fatalf("%v: make deps installs Slurm", err)
	}
}

// StartNodeWithout starts a node's slurmd so that it sees a folder empty, as on a machine that does not share the
// folder.
func (c *Cluster) StartNodeWithout(name, folder string) {
	c.daemon[name] = c.start("unshare", "--mount", "sh", "-c", `mount -t tmpfs own "$1" && exec slurmd -D -N "$0"`, name,
		folder)
}

// KillDaemon ends a node's slurmd by a signal that it cannot catch; its jobs live on.
func (c *Cluster) KillDaemon(name string) {
	c.t.Helper()
	if err := c.daemon[name].Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	_ = c.daemon[name].Wait() // it was killed
}

// KillNode ends all processes of a node at once, jobs included, as when its power fails.
func (c *Cluster) KillNode(name string) {
	c.t.Helper()
	c.KillDaemon(name)
	c.kill("SLURMD_NODENAME="+name, c.file("spool."+name))
}

// Slurm runs one of Slurm's commands and returns what it prints. It logs a failure of the command.
func (c *Cluster) Slurm(name string, args ...string) string {
	c.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		c.t.Logf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Wait waits until reached returns true, at most a minute; what names the state for the error.
func (c *Cluster) Wait(what string, reached func() bool) {
	c.t.Helper()
	const within = time.Minute
	for end := time.Now().Add(within); !reached(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			log, _ := os.ReadFile(c.file("ctld.log"))
			c.t.Fatalf("no %s within %s; slurmctld says:\n%s", what, within, log)
		}
	}
}

func (c *Cluster) run(name string, args ...string) {
	c.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

func (c *Cluster) start(name string, args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		c.t.Fatalf("%v: make deps installs Slurm", err)
	}
	return cmd
}

// end kills all processes that were started with this cluster's configuration, also jobs that have left their parents.
func (c *Cluster) end() {
	c.Wait("end of all processes", func() bool { return c.kill("SLURM_CONF="+c.file("slurm.conf")) == 0 })
}

// kill kills the processes of this cluster that have a variable in their environment, or one of the texts of called in
// their command line. It returns how many it killed. This process is spared.
func (c *Cluster) kill(variable string, called ...string) (n int) {
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		c.t.Fatal(err)
	}
	var pids []int
	for _, dir := range list {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		environment, _ := os.ReadFile(filepath.Join(dir, "environ")) // a process may end meanwhile
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found := bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+variable+"\x00"))
		for _, text := range called {
			found = found || bytes.Contains(line, []byte(text))
		}
		mine := bytes.Contains(environment, []byte("SLURM_CONF="+c.file("slurm.conf")+"\x00"))
		if found && mine && pid != os.Getpid() {
			pids = append(pids, pid)
			pids = append(pids, stepDaemon(pid)...)
		}
	}
	// Stopped first, no process reacts to another's end.
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, pid := range pids {
			if syscall.Kill(pid, signal) == nil && signal == syscall.SIGKILL {
				n++
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // reaps it where it is a child of this process
			}
		}
	}
	return n
}

// stepDaemon returns the slurmstepd that started a process, or nothing. kill cannot find a slurmstepd by its command
// line or environment, because these do not name the node.
func stepDaemon(pid int) []int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // the process may end meanwhile
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 2 {
		return nil
	}
	name, _ := os.ReadFile("/proc/" + fields[1] + "/comm")
	parent, err := strconv.Atoi(fields[1])
	if err != nil || strings.TrimSpace(string(name)) != "slurmstepd" {
		return nil
	}
	return []int{parent}
}

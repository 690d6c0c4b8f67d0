// Tests of hosts in network namespaces of this machine, and of the programs that run on them. The test's program is
// also the agent of each host (TestMain).

package backend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/backend"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// TestMain lets the test binary serve as its own agent, as gateweigh does.
func TestMain(m *testing.M) {
	agent.RunAs(os.Args)
	os.Exit(m.Run())
}

func local(t *testing.T) backend.Backend {
	t.Helper()
	b, err := backend.Local(t.Context(), backend.Options{Run: "test", LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startHost starts a router's host in namespaces of this machine. It ends with the test.
func startHost(t *testing.T) *backend.Host {
	t.Helper()
	h, err := local(t).Start(t.Context(), "a/router", true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Stop() })
	return h
}

// machine returns, as text, the state of the machine that a host must not change.
func machine(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	for _, cmd := range []string{
		"ip -o link", "ip netns", "ip route", "nft list ruleset", "cat /proc/self/mounts", "sysctl -a"} {
		out, err := exec.Command("sh", "-c", cmd+" 2>/dev/null").Output()
		if err != nil && len(out) == 0 && !strings.HasPrefix(cmd, "nft") {
			t.Fatalf("%s: %v", cmd, err)
		}
		for line := range strings.Lines(string(out)) {
			if !volatile(line) {
				fmt.Fprintf(&b, "%s: %s", cmd, line)
			}
		}
	}
	for _, dir := range []string{"/etc", "/run", "/var/lib"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			fmt.Fprintf(&b, "%s/%s\n", dir, e.Name())
		}
	}
	return b.String()
}

// volatile reports whether a line of sysctl shows a value that changes by itself.
func volatile(line string) bool {
	for _, key := range []string{"fs.dentry-state", "fs.file-nr", "fs.inode", "fs.quota", "kernel.random",
		"kernel.ns_last_pid", "kernel.pty.nr", "kernel.perf_event_max_sample_rate", "net.netfilter.nf_conntrack_count",
		"kernel.sched_domain"} {
		if strings.HasPrefix(line, key) {
			return true
		}
	}
	return false
}

func TestHostKeepsItsChangesToItself(t *testing.T) {
	before := machine(t)
	h := startHost(t)
	ctx := t.Context()
	script := `echo nameserver 127.0.0.9 >/etc/resolv.conf
		mkdir -p /etc/newgateway /var/run/gw /var/lib/gw /var/log/gw
		touch /etc/newgateway/conf /tmp/ndsctl.sock /run/x /var/log/gw/log
		mount -t tmpfs none /usr/local
		sysctl -qw net.ipv4.ip_forward=1
		ip link add probe0 type veth peer name probe1
		cat /etc/resolv.conf; ls /etc/newgateway; ls /sys/class/net`
	out, err := h.Run(ctx, agent.Command{Argv: []string{"sh", "-ec", script}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nameserver 127.0.0.9", "conf", "probe0", "lo"} {
		if !strings.Contains(out.Stdout, want) {
			t.Errorf("inside the host %q is missing from:\n%s", want, out.Stdout)
		}
	}
	if strings.Contains(out.Stdout, "eth0") {
		t.Error("the host sees an interface of the machine")
	}
	if err := h.WriteFile(ctx, "/var/run/sub/file", []byte("text\x00more"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := h.Run(ctx, agent.Command{Argv: []string{"cat", "/run/sub/file"}}); err != nil ||
		out.Stdout != "text\x00more" {
		t.Errorf("read back %q, %v", out.Stdout, err)
	}
	h.Stop()
	if after := machine(t); after != before {
		t.Errorf("the machine has changed:\n%s", lineDiff(before, after))
	}
}

// TestProgramsHaveTheHostsTmp: the lab's TMPDIR, which libpam-tmpdir sets for example, does not exist on a host.
// Programs on the host use the host's /tmp.
func TestProgramsHaveTheHostsTmp(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if out, err := startHost(t).Run(t.Context(), agent.Command{Argv: []string{"mktemp"}}); err != nil ||
		!strings.HasPrefix(out.Stdout, "/tmp/tmp.") {
		t.Errorf("a temporary file is %q, %v", out.Stdout, err)
	}
}

// TestProgramsHeedSignals: the lab was started with signals ignored, as by nohup or in a script's background. Programs
// on hosts react to these signals all the same.
func TestProgramsHeedSignals(t *testing.T) {
	signals := []os.Signal{syscall.SIGHUP, syscall.SIGINT}
	signal.Ignore(signals...)
	defer signal.Reset(signals...)
	out, err := startHost(t).Run(
		t.Context(), agent.Command{Argv: []string{"sh", "-c", `trap "echo trapped" HUP INT; kill -HUP $$; kill -INT $$`}})
	if err != nil || out.Stdout != "trapped\ntrapped\n" {
		t.Errorf("%q, %v", out.Stdout, err)
	}
}

func lineDiff(a, b string) string {
	var out []string
	al, bl := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, l := range al {
		if !slices.Contains(bl, l) {
			out = append(out, "-"+l)
		}
	}
	for _, l := range bl {
		if !slices.Contains(al, l) {
			out = append(out, "+"+l)
		}
	}
	return strings.Join(out, "\n")
}

func TestRunReportsStatusAndOutput(t *testing.T) {
	h := startHost(t)
	out, err := h.Run(t.Context(), agent.Command{Argv: []string{"sh", "-c", "echo spoken; echo why >&2; exit 3"}})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "why") {
		t.Errorf("error = %v, want status and last lines", err)
	}
	if out.Stdout != "spoken\n" || out.Stderr != "why\n" || out.ExitCode != 3 {
		t.Errorf("output = %+v", out)
	}
	_, err = h.Run(t.Context(),
		agent.Command{Argv: []string{"sh", "-c", "sleep 60 & sleep 60"}, Timeout: 200 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "still running after 200ms") {
		t.Errorf("hanging command: %v", err)
	}
	if _, err := h.Run(t.Context(), agent.Command{Argv: []string{"no-such-program"}}); err == nil ||
		!strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("missing program: %v", err)
	}
}

func TestCancelledRunEndsItsProgram(t *testing.T) {
	h := startHost(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	mine := errors.New("the user pressed Ctrl-C")
	ended := make(chan error, 1)
	go func() {
		_, err := h.Run(ctx, agent.Command{Argv: []string{"sleep", marked(4711)}})
		ended <- err
	}()
	labtest.Await(t, "the program to run", func() bool { return running("sleep\x00"+marked(4711)) == 1 })
	cancel(mine)
	if err := <-ended; !errors.Is(err, mine) {
		t.Errorf("error = %v, want the cause", err)
	}
	labtest.Await(t, "the program to end", func() bool { return running("sleep\x00"+marked(4711)) == 0 })
}

// marked returns a number of seconds that contains this process's number. No other program of the machine sleeps for
// that time, even if this test runs twice.
func marked(seconds int) string { return fmt.Sprintf("%d.%d", seconds, os.Getpid()) }

// processes lists processes of the machine whose command line contains text.
func processes(text string) (pids []int) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		raw, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if pid, notOne := strconv.Atoi(d.Name()); err == nil && notOne == nil && strings.Contains(string(raw), text) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// running returns the number of processes whose command line contains text.
func running(text string) int { return len(processes(text)) }

func TestSpawnedProgramsAreWatchedAndEnd(t *testing.T) {
	h := startHost(t)
	ctx := t.Context()
	spawn := func(name, script string) {
		t.Helper()
		if err := h.Spawn(ctx, agent.Command{Name: name, Argv: []string{"sh", "-c", script}}); err != nil {
			t.Fatal(err)
		}
	}
	spawn("stays", "sleep "+marked(4712))
	spawn("dies", "echo last words; exit 7")
	var list []agent.Program
	labtest.Await(t, "the death to be seen", func() bool {
		var err error
		if list, err = h.Programs(ctx); err != nil {
			t.Fatal(err)
		}
		return len(list) == 2 && list[0].Ended
	})
	want := []agent.Program{{Name: "dies", Ended: true, Status: "exit status 7", Output: "last words"}, {Name: "stays"}}
	if !slices.Equal(list, want) {
		t.Errorf("programs = %+v, want %+v", list, want)
	}
	if err := h.Spawn(ctx, agent.Command{Name: "stays", Argv: []string{"true"}}); err == nil ||
		!strings.Contains(err.Error(), "runs already") {
		t.Errorf("second program of the same name: %v", err)
	}
	for _, c := range []struct {
		name string
		want agent.Program
	}{
		{"stays", agent.Program{Name: "stays", Ended: true, Signal: "SIGTERM", Status: "signal: terminated"}},
		{"stays", agent.Program{}},
		{"unknown", agent.Program{}},
		{"dies", agent.Program{Name: "dies", Ended: true, Status: "exit status 7", Output: "last words\n"}},
	} {
		if got, err := h.End(ctx, agent.Ending{Name: c.name}); err != nil || got != c.want {
			t.Errorf("ending %s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	if n := running("sleep\x00" + marked(4712)); n != 0 {
		t.Errorf("%d children of the ended program run", n)
	}
}

func TestNothingOutlivesAKilledAgent(t *testing.T) {
	h := startHost(t)
	// A daemon that leaves its session, as badly behaved gateways do.
	script := fmt.Sprintf("setsid sh -c 'sleep %[1]s & trap \"\" TERM HUP; sleep %[1]s' >/dev/null 2>&1 &", marked(4713))
	if _, err := h.Run(t.Context(), agent.Command{Argv: []string{"sh", "-c", script}}); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "the daemon to run", func() bool { return running("sleep\x00"+marked(4713)) == 2 })
	hello, err := h.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(hello.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	labtest.Await(t, "everything to end", func() bool { return running("sleep\x00"+marked(4713)) == 0 })
	<-h.Done()
	if _, err := h.Hello(t.Context()); err == nil || !strings.Contains(err.Error(), "the agent of host ") {
		t.Errorf("a dead agent answers: %v", err)
	}
}

func TestCleanEndsOrphansOnly(t *testing.T) {
	alive := startHost(t)
	// An agent whose lab is gone although its standard input is still open, as
	// when another process has inherited the lab's end of it.
	run := "gone-" + strconv.Itoa(os.Getpid()) // other runs of this test may be under way
	opts := agent.Options{Run: run, Host: "b/router", LogDir: t.TempDir(), Isolated: true}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append([]string{"-c", "sleep " + marked(4714) + ` | unshare -nm "$@" >/dev/null &`, "sh", self},
		opts.Args()...)
	if err := exec.Command("sh", argv...).Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endAll("sleep\x00" + marked(4714)) })
	var first []int
	labtest.Await(t, "the orphan's first process", func() bool {
		for _, pid := range processes(run) {
			first = append(first, labtest.Children(t, pid, agent.InitCommand)...)
		}
		return len(first) == 1
	})
	ended, err := backend.Clean(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended = slices.DeleteFunc(ended, func(o backend.Orphan) bool { return o.Run != run })
	if len(ended) != 1 || ended[0].Host != "b/router" {
		t.Errorf("Clean ended %+v, want the agent of run %s", ended, run)
	}
	labtest.Await(t, "the orphan's programs to end",
		func() bool { return !slices.Contains(processes(agent.InitCommand), first[0]) })
	if _, err := alive.Hello(t.Context()); err != nil {
		t.Errorf("Clean touched a living run: %v", err)
	}
}

// TestCleanEndsAStoppedBurner: the agent of a machine was stopped when its lab died, and its burner still slows CPUs
// down. clean ends both, even if both are stopped.
func TestCleanEndsAStoppedBurner(t *testing.T) {
	run := "burned-" + strconv.Itoa(os.Getpid())
	opts := agent.Options{Run: run, Host: "machine", LogDir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cpu := local(t).Describe().Placement.Router[0]
	request := fmt.Sprintf(`{"id":1,"verb":"Slow","args":[{"cpus":[%d],"speed":0.99}]}`, cpu)
	argv := append([]string{"-c", "(echo '" + request + "'; exec sleep " + marked(4715) +
		`) | unshare -n "$@" >/dev/null &`, "sh", self}, opts.Args()...)
	if err := exec.Command("sh", argv...).Run(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endAll("sleep\x00" + marked(4715)) })
	var pids []int
	labtest.Await(t, "the burner", func() bool {
		for _, pid := range processes(run) {
			if pids = append([]int{pid}, labtest.Children(t, pid, agent.BurnerCommand)...); len(pids) == 2 {
				return true
			}
		}
		return false
	})
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	ended, err := backend.Clean(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if !slices.ContainsFunc(ended, func(o backend.Orphan) bool { return o.PID == pid }) {
			t.Errorf("Clean ended %+v, want process %d too", ended, pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// endAll kills the processes whose command line contains text.
func endAll(text string) {
	for _, pid := range processes(text) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

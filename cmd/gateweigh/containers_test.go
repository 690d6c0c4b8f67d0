package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/doctor"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/result"
)

// enough are the options of podman from docs/ci.md for a run in a container with no more rights than it needs.
var enough = []string{"--pid=host", "--cap-add=SYS_ADMIN,NET_ADMIN,NET_RAW,SYS_NICE"}

// container runs gateweigh in a container of podman. Its root is an overlay over this machine's files, which ends with
// the container. The folder dir is shared with the machine.
func container(t *testing.T, dir string, options []string, args ...string) ended {
	t.Helper()
	cmd := command(t, dir)
	storage, group := t.TempDir(), fmt.Sprintf("gateweigh-test-%d", os.Getpid())
	t.Cleanup(func() { removeGroups(t, group) })
	// crun takes no machine with control groups of both versions; and storage is mounted where it ends with the container.
	const alone = `for g in /sys/fs/cgroup/unified; do [ ! -d $g ] || umount $g; done; exec "$@"`
	podman := []string{
		"podman", "--root", storage, "--runroot", storage + "/run", "--tmpdir", storage + "/tmp", "--cgroup-manager",
		"cgroupfs", "--events-backend", "none",
		"run", "--rm", "--network", "none", "--cgroup-parent", "/" + group, "--env", "GATEWEIGH_TEST_MAIN=1", "--env", mark,
		"--ulimit", "nofile=" + lowered(t, unix.RLIMIT_NOFILE, 16384), "--ulimit",
		"nproc=" + lowered(t, unix.RLIMIT_NPROC, 16384),
		"--volume", cmd.Path + ":/gateweigh:ro", "--volume", dir + ":" + dir, "--workdir", dir,
	}
	podman = slices.Concat(podman, options, []string{"--rootfs", "/:O", "/gateweigh"}, args)
	return finish(t, exec.Command("unshare", slices.Concat([]string{"-m", "sh", "-ec", alone, "sh"}, podman)...))
}

// removeGroups removes what podman leaves of its control groups, once the processes in them have ended.
func removeGroups(t *testing.T, group string) {
	t.Helper()
	labtest.Await(t, "the control groups of containers to go", func() bool {
		left := false
		for _, pattern := range []string{"/*/" + group + "/*", "/" + group + "/*", "/*/" + group, "/" + group} {
			// children first
			names, _ := filepath.Glob("/sys/fs/cgroup" + pattern) // the pattern is valid
			for _, name := range names {
				if info, err := os.Stat(name); err == nil && info.IsDir() {
					left = os.Remove(name) != nil || left
				}
			}
		}
		return !left
	})
}

// lowered formats a resource limit that this process may set as an option of podman.
func lowered(t *testing.T, resource int, most uint64) string {
	t.Helper()
	var own unix.Rlimit
	if err := unix.Getrlimit(resource, &own); err != nil {
		t.Fatal(err)
	}
	n := min(most, own.Max)
	return fmt.Sprintf("%d:%d", n, n)
}

// once is the experiment of the shortest run.
var once = strings.NewReplacer("blocks = 2", "blocks = 1", "[10, 20]", "[10]", "aa_blocks = 1", "aa_blocks = 0",
	"windows = 2", "windows = 1").Replace(small)

// TestContainersMeasure: with the options that doctor and docs/ci.md advise, a run measures, and doctor says that it
// would.
func TestContainersMeasure(t *testing.T) {
	manual, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string][]string{
		"all rights": {"--pid=host", "--privileged"}, "those it needs": enough} {
		if text := strings.Join(options, " "); !strings.Contains(string(manual), text) {
			t.Errorf("docs/ci.md does not name %s", text)
		}
		dir := t.TempDir()
		write(t, dir, "once.toml", once)
		measured(t, container(t, dir, options, "run", "once.toml", "--out", "r"))
		if len(trials(t, filepath.Join(dir, "r"))) == 0 {
			t.Errorf("%s: nothing was measured", name)
		}
		e := container(t, dir, options, "doctor", "--quick", "--json")
		if l := reportOf(t, e.stdout)["machine.rights"]; e.code != 0 || l.State != doctor.OK {
			t.Errorf("%s: doctor: exit %d: %+v\n%s", name, e.code, l, e.stderr)
		}
	}
}

// TestContainersAreRefused: run gives the reason and the option that helps. So does doctor, if the reason concerns all
// labs.
func TestContainersAreRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "once.toml", once)
	for name, tt := range map[string]struct {
		options   []string
		why, help string
	}{
		"its own processes": {[]string{"--privileged"}, hidden, "--pid=host"},
		"no rights":         {[]string{"--pid=host"}, "CAP_SYS_ADMIN", "--cap-add=SYS_ADMIN,NET_ADMIN,"},
		"few processes": {
			append(slices.Clone(enough), "--pids-limit=60"), "/pids.max), and once (3 clients) takes", "--pids-limit=-1"},
		"little memory": {append(slices.Clone(enough), "--memory=200m"), "/" + groupFile("memory") +
			"), and once (3 clients) takes", "--memory"},
	} {
		e := container(t, dir, tt.options, "run", "once.toml", "--out", "r")
		if e.code != exitFailed || !strings.Contains(e.stderr, tt.why) || !strings.Contains(e.stderr, tt.help) {
			t.Errorf("%s: run: exit %d\n%s%s", name, e.code, e.stdout, e.stderr)
		}
		e = container(t, dir, tt.options, "doctor", "--quick", "--json")
		if !strings.Contains(e.stdout, tt.help) {
			t.Errorf("%s: doctor: exit %d, no %q in\n%s%s", name, e.code, tt.help, e.stdout, e.stderr)
		}
	}
}

// groupFile is the file with a container's limit. It differs between the versions of control groups.
func groupFile(controller string) string {
	if _, err := os.Stat("/sys/fs/cgroup/" + controller); err == nil {
		return map[string]string{"memory": "memory.limit_in_bytes", "cpu": "cpu.cfs_quota_us"}[controller]
	}
	return controller + ".max"
}

// TestContainersWithAQuota: a run that a control group may stop foresees it, and names the file and the option; where
// it was stopped, the run's notes say so.
func TestContainersWithAQuota(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "once.toml", once)
	const foreseen = "control group allows the lab 0.2 of "
	e := container(t, dir, append(slices.Clone(enough), "--cpus=0.2"), "run", "once.toml", "--out", "r")
	env, err := os.ReadFile(filepath.Join(dir, "r", result.EnvironmentFile))
	for what, text := range map[string]string{"it says": e.stderr, "it notes": string(env)} {
		if err != nil || !strings.Contains(text, foreseen) || !strings.Contains(text, "/"+groupFile("cpu")+")") ||
			!strings.Contains(text, "--cpus") {
			t.Errorf("exit %d, %v: %s\n%s", e.code, err, what, text)
		}
	}
	if !strings.Contains(string(env), "stopped the lab's programs for ") {
		t.Errorf("a fifth of a CPU was enough, or nobody looked:\n%s", env)
	}
}

// TestFilteredCalls: a system call that a container's filter refuses is named, not what it was for. One that only some
// devices make does not keep others from being measured.
func TestFilteredCalls(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "once.toml", once)
	for _, call := range []string{"unshare", "mount", "setns", "sched_setaffinity", "perf_event_open"} {
		e := container(t, dir, filtering(t, dir, call), "run", "once.toml", "--out", "r")
		if e.code != exitFailed || !strings.Contains(e.stderr, "a seccomp filter refuses "+call) ||
			!strings.Contains(e.stderr, "seccomp=unconfined") {
			t.Errorf("%s: exit %d\n%s%s", call, e.code, e.stdout, e.stderr)
		}
	}
	const text = "a seccomp filter refuses bpf"
	without := filtering(t, dir, "bpf")
	measured(t, container(t, dir, without, "run", "once.toml", "--out", "r"))
	var l listing
	e := container(t, dir, without, "list", "--json", "floor")
	if err := json.Unmarshal([]byte(e.stdout), &l); err != nil || len(l.Devices) != 1 || l.Devices[0].Here ||
		!strings.Contains(l.Devices[0].Reason, text) || l.Devices[0].Kernel != "" {
		t.Errorf("exit %d, %v: %+v\n%s", e.code, err, l, e.stderr)
	}
	lines := reportOf(t, container(t, dir, without, "doctor", "--quick", "--json").stdout)
	if l := lines["kernel.bpf-tc"]; !strings.Contains(l.Found, text) || !strings.Contains(l.Remedy, "seccomp=unconfined") {
		t.Errorf("doctor: %+v", l)
	}
	if l := lines["device.floor"]; strings.Contains(l.Found, "kernel lacks") || strings.Contains(l.Remedy, "--kernel") {
		t.Errorf("doctor: %+v", l)
	}
}

// filtering returns the options of a container that refuses a system call.
func filtering(t *testing.T, dir, call string) []string {
	t.Helper()
	const profile = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": [%q], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}`
	return append(slices.Clone(enough), "--security-opt=seccomp="+write(t, dir, call+".json", fmt.Sprintf(profile, call)))
}

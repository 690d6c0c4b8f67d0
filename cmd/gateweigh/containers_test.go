// Tests of gateweigh in containers.

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

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// small is an experiment of a few seconds with the device allowlist. reportOf returns the checks in the output of
// doctor --json, by key.

// minimal are the podman options from docs/ci.md that give a run the rights it needs and no others.
var minimal = []string{"--pid=host", "--cap-add=SYS_ADMIN,NET_ADMIN,NET_RAW,SYS_NICE"}

// container runs gateweigh in a container of podman. The container's root is an overlay over this machine's files, and
// is discarded with it. dir is shared with the machine.
func container(t *testing.T, dir string, options []string, args ...string) ended {
	t.Helper()
	cmd := command(t, dir)
	storage, group := t.TempDir(), fmt.Sprintf("gateweigh-test-%d", os.Getpid())
	t.Cleanup(func() { removeGroups(t, group) })
	// crun refuses machines that have control groups of both versions, so those of version 2 are unmounted. The mount
	// namespace also ends the mount of podman's storage.
	const alone = `for g in /sys/fs/cgroup/unified; do [ ! -d $g ] || umount $g; done; exec "$@"`
	podman := []string{
		"podman", "--root", storage, "--runroot", storage + "/run", "--tmpdir", storage + "/tmp", "--cgroup-manager",
		"cgroupfs", "--events-backend", "none",
		"run", "--rm", "--network", "none", "--cgroup-parent", "/" + group, "--env", "GATEWEIGH_TEST_MAIN=1", "--env", mark,
		"--ulimit", "nofile=" + limitOption(t, unix.RLIMIT_NOFILE, 16384), "--ulimit",
		"nproc=" + limitOption(t, unix.RLIMIT_NPROC, 16384),
		"--volume", cmd.Path + ":/gateweigh:ro", "--volume", dir + ":" + dir, "--workdir", dir,
	}
	podman = slices.Concat(podman, options, []string{"--rootfs", "/:O", "/gateweigh"}, args)
	return finish(t, exec.Command("unshare", slices.Concat([]string{"-m", "sh", "-ec", alone, "sh"}, podman)...))
}

// removeGroups removes the control groups that podman leaves, once their processes have ended.
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

// limitOption returns a resource limit, at most most and at most what this process may set, as podman takes it.
func limitOption(t *testing.T, resource int, most uint64) string {
	t.Helper()
	var own unix.Rlimit
	if err := unix.Getrlimit(resource, &own); err != nil {
		t.Fatal(err)
	}
	n := min(most, own.Max)
	return fmt.Sprintf("%d:%d", n, n)
}

// once is an experiment of a single window.
var once = strings.NewReplacer("blocks = 2", "blocks = 1", "[10, 20]", "[10]", "aa_blocks = 1", "aa_blocks = 0",
	"windows = 2", "windows = 1").Replace(small)

// TestContainersMeasure: with the options that doctor and docs/ci.md advise, a run in a container measures, and doctor
// says that it can.
func TestContainersMeasure(t *testing.T) {
	manual, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string][]string{
		"all rights": {"--pid=host", "--privileged"}, "those it needs": minimal} {
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

// TestContainersAreRefused: in a container with too few rights, run gives the reason and the option that helps. doctor
// does too, if the reason concerns all labs.
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
			append(slices.Clone(minimal), "--pids-limit=60"), "/pids.max), and once (3 clients) takes", "--pids-limit=-1"},
		"little memory": {append(slices.Clone(minimal), "--memory=200m"), "/" + groupFile("memory") +
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

// groupFile returns the file that holds a container's limit. Its name depends on the version of control groups.
func groupFile(controller string) string {
	if _, err := os.Stat("/sys/fs/cgroup/" + controller); err == nil {
		return map[string]string{"memory": "memory.limit_in_bytes", "cpu": "cpu.cfs_quota_us"}[controller]
	}
	return controller + ".max"
}

// TestContainersWithAQuota: when a control group limits the lab's CPU time, run warns before it measures and names the
// file and the option. The run's notes say for how long the group stopped the lab.
func TestContainersWithAQuota(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "once.toml", once)
	const foreseen = "control group allows the lab 0.2 of "
	e := container(t, dir, append(slices.Clone(minimal), "--cpus=0.2"), "run", "once.toml", "--out", "r")
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

// TestFilteredCalls: when a container's seccomp filter refuses a system call, the error names the call. When only some
// devices need the call, the others are measured.
func TestFilteredCalls(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "once.toml", once)
	for _, call := range []string{"unshare", "mount", "setns", "sched_setaffinity", "perf_event_open"} {
		e := container(t, dir, filterOptions(t, dir, call), "run", "once.toml", "--out", "r")
		if e.code != exitFailed || !strings.Contains(e.stderr, "a seccomp filter refuses "+call) ||
			!strings.Contains(e.stderr, "seccomp=unconfined") {
			t.Errorf("%s: exit %d\n%s%s", call, e.code, e.stdout, e.stderr)
		}
	}
	const text = "a seccomp filter refuses bpf"
	without := filterOptions(t, dir, "bpf")
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

// filterOptions returns the options of a container whose filter refuses a system call.
func filterOptions(t *testing.T, dir, call string) []string {
	t.Helper()
	const profile = `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": [%q], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}`
	return append(slices.Clone(minimal), "--security-opt=seccomp="+write(t, dir, call+".json", fmt.Sprintf(profile, call)))
}

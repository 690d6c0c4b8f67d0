// Tests of runs without some of the rights that they need.

package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/lab/doctor"
)

// Helpers of other files: command prepares a call of gateweigh in a folder, and finish runs it and returns its exit
// code and output. measured accepts the exit codes 0 and exitRejected: on a busy machine some trials are rejected.
// small is an experiment of a few seconds with the device allowlist. reportOf returns the checks in the output of
// doctor --json, by key.

// under makes another program, such as unshare or setpriv, start a command.
func under(cmd *exec.Cmd, argv ...string) *exec.Cmd {
	cmd.Args = slices.Concat(argv, []string{cmd.Path}, cmd.Args[1:])
	cmd.Path, cmd.Err = "", nil
	if cmd.Path, cmd.Err = exec.LookPath(argv[0]); cmd.Err != nil {
		cmd.Path = argv[0]
	}
	return cmd
}

// withoutSbin hides /usr/sbin and /usr/local/sbin from a command. Other processes keep them.
func withoutSbin(cmd *exec.Cmd) {
	const hide = `for d in /usr/local/sbin /usr/sbin; do PATH=/usr/bin:/bin mount -t tmpfs none $d; done; exec "$@"`
	under(cmd, "/usr/bin/unshare", "-m", "/bin/sh", "-ec", hide, "sh")
}

// refusedBy runs doctor inside another program and requires it to say that nothing can run. It returns doctor's verdict
// and its checks by key.
func refusedBy(t *testing.T, dir string, in ...string) (verdict string, lines map[string]doctor.Check) {
	t.Helper()
	e := finish(t, under(command(t, dir, "doctor", "--quick", "--json"), in...))
	var r doctor.Report
	if err := json.Unmarshal([]byte(e.stdout), &r); err != nil || e.code != exitNothingRan {
		t.Fatalf("exit %d, %v\n%s%s", e.code, err, e.stdout, e.stderr)
	}
	return r.Verdict, reportOf(t, e.stdout)
}

// hidden is the reason that run and doctor give.
const hidden = "this process namespace hides the kernel's threads: run with --pid=host"

// TestOwnProcessNamespace runs as a container does that has all capabilities and a process namespace of its own. run
// and doctor name the namespace as the only reason why they refuse.
func TestOwnProcessNamespace(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", small)
	for name, in := range map[string][]string{
		"a /proc of its own":  {"unshare", "--fork", "--pid", "--mount-proc"},
		"the machine's /proc": {"unshare", "--fork", "--pid"},
	} {
		e := finish(t, under(command(t, dir, "run", "small.toml", "--out", "r"), in...))
		if e.code != exitFailed || !strings.Contains(e.stderr, hidden) || strings.Contains(e.stderr+e.stdout, "5.12") {
			t.Errorf("%s: run: exit %d\n%s%s", name, e.code, e.stdout, e.stderr)
		}
		verdict, lines := refusedBy(t, dir, in...)
		if l := lines["machine.rights"]; l.Found != hidden || l.Remedy == "" || !strings.Contains(verdict, hidden) {
			t.Errorf("%s: %q: %+v", name, verdict, l)
		}
		if name == "the machine's /proc" {
			continue // this /proc knows no process of the new namespace by its number, so no host starts
		}
		if l := lines["kernel.threaded-napi"]; !strings.Contains(l.Found, hidden) ||
			strings.Contains(l.Found+l.Remedy, "5.12") {
			t.Errorf("%s: %+v", name, l)
		}
		if l := lines["device.allowlist"]; l.State != doctor.OK {
			t.Errorf("%s: what does not need these threads: %+v", name, l)
		}
	}
}

// TestMissingCapabilities: run and doctor name capabilities that every lab needs, and the container's option that
// grants them.
func TestMissingCapabilities(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml", small)
	for _, lacking := range [][]string{{"sys_admin"}, {"net_admin"}, {"net_raw"}, {"net_bind_service"}, {"sys_chroot"}, {
		"sys_nice"}, {"net_admin", "sys_nice"}} {
		set, names := "", []string{}
		for _, c := range lacking {
			set, names = set+",-"+c, append(names, strings.ToUpper(c))
		}
		without := []string{"setpriv", "--bounding-set=" + set[1:]}
		option := "--cap-add=" + strings.Join(names, ",")
		e := finish(t, under(command(t, dir, "run", "small.toml", "--out", "r"), without...))
		if e.code != exitFailed || !strings.Contains(e.stderr, option) || strings.Contains(e.stderr, "kernel lacks") {
			t.Errorf("%v: run: exit %d\n%s%s", lacking, e.code, e.stdout, e.stderr)
		}
		verdict, lines := refusedBy(t, dir, without...)
		l := lines["machine.rights"]
		for _, name := range names {
			if !strings.Contains(l.Found, "CAP_"+name) || !strings.Contains(verdict, "CAP_"+name) ||
				!strings.Contains(l.Remedy, option) {
				t.Errorf("%v: doctor: %q: %+v", lacking, verdict, l)
			}
		}
		if l := lines["kernel.threaded-napi"]; strings.Contains(l.Remedy, "5.12") {
			t.Errorf("%v: doctor blames the kernel: %+v", lacking, l)
		}
	}
}

// TestDevicesWithoutRights: without CAP_SYS_ADMIN, list says that a device lacks the capability. It does not blame the
// kernel.
func TestDevicesWithoutRights(t *testing.T) {
	e := finish(t, under(command(t, t.TempDir(), "list", "--json", "allowlist"), "setpriv", "--bounding-set=-sys_admin"))
	var l listing
	if err := json.Unmarshal([]byte(e.stdout), &l); err != nil {
		t.Fatalf("%v\n%s%s", err, e.stdout, e.stderr)
	}
	for _, d := range l.Devices {
		if d.Here || !strings.Contains(d.Reason, "CAP_SYS_ADMIN") || strings.Contains(d.Reason, "kernel lacks") ||
			d.Kernel != "" {
			t.Errorf("%+v", d)
		}
	}
	if len(l.Devices)+len(l.Experiments) == 0 {
		t.Error("nothing is listed")
	}
}

// TestPathWithoutSbin: a run finds all programs with the PATH that root has after su without "-".
func TestPathWithoutSbin(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "small.toml",
		strings.NewReplacer("blocks = 2", "blocks = 1", "[10, 20]", "[10]", "aa_blocks = 1", "aa_blocks = 0").Replace(small))
	cmd := command(t, dir, "run", "small.toml", "--out", "r")
	cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin")
	measured(t, finish(t, cmd))
	if len(trials(t, filepath.Join(dir, "r"))) == 0 {
		t.Error("nothing was measured")
	}
}

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

// under has another program start a command: unshare, setpriv.
func under(cmd *exec.Cmd, argv ...string) *exec.Cmd {
	cmd.Args = slices.Concat(argv, []string{cmd.Path}, cmd.Args[1:])
	cmd.Path, cmd.Err = "", nil
	if cmd.Path, cmd.Err = exec.LookPath(argv[0]); cmd.Err != nil {
		cmd.Path = argv[0]
	}
	return cmd
}

// withoutSbin hides the folders of administrators' programs from a command, and from nobody else.
func withoutSbin(cmd *exec.Cmd) {
	const hide = `for d in /usr/local/sbin /usr/sbin; do PATH=/usr/bin:/bin mount -t tmpfs none $d; done; exec "$@"`
	under(cmd, "/usr/bin/unshare", "-m", "/bin/sh", "-ec", hide, "sh")
}

// refusedBy runs doctor, which says that nothing can run, inside another program: its verdict and its lines by key.
func refusedBy(t *testing.T, dir string, in ...string) (verdict string, lines map[string]doctor.Check) {
	t.Helper()
	e := finish(t, under(command(t, dir, "doctor", "--quick", "--json"), in...))
	var r doctor.Report
	if err := json.Unmarshal([]byte(e.stdout), &r); err != nil || e.code != exitNothingRan {
		t.Fatalf("exit %d, %v\n%s%s", e.code, err, e.stdout, e.stderr)
	}
	return r.Verdict, reportOf(t, e.stdout)
}

const hidden = "this process namespace hides the kernel's threads: run with --pid=host"

// TestOwnProcessNamespace is a container's, with all capabilities: run and doctor name it, and nothing else.
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
			continue // which knows no process of this namespace by its number: no host starts
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

// TestMissingCapabilities: those that every lab needs are named, with the option of a container that gives them.
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

// TestDevicesWithoutRights: a device is not called impossible for a kernel that has all it needs.
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

// TestPathWithoutSbin is root's after su without "-": all programs are found.
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

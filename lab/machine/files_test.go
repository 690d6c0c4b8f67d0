package machine

import (
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// machineOf is a machine with the given files.
func machineOf(contents map[string]string) files {
	m := fstest.MapFS{}
	for name, text := range contents {
		m[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text)}
	}
	return files{m}
}

// cgroupsHybrid is /proc/self/cgroup of a machine with both versions.
const cgroupsHybrid = `9:name=systemd:/
8:pids:/
4:memory:/process_api/08d0
1:cpu,cpuacct:/user.slice/user-1000.slice
0::/user.slice/user-1000.slice/session-3.scope
`

func TestParseCgroups(t *testing.T) {
	got, err := parseCgroups(strings.NewReader(cgroupsHybrid))
	if err != nil || len(got) != 5 {
		t.Fatalf("%v, %v", got, err)
	}
	if want := (cgroup{[]string{"cpu", "cpuacct"}, "/user.slice/user-1000.slice"}); !reflect.DeepEqual(got[3], want) {
		t.Errorf("cpu: %+v, want %+v", got[3], want)
	}
	if want := (cgroup{nil, "/user.slice/user-1000.slice/session-3.scope"}); !reflect.DeepEqual(got[4], want) {
		t.Errorf("version 2: %+v, want %+v", got[4], want)
	}
	for _, bad := range []string{"0:", "cpu", "1:cpu:relative"} {
		if got, err := parseCgroups(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: %+v, no error", bad, got)
		}
	}
}

func TestQuotaIsTheTightestOfAllAncestors(t *testing.T) {
	const own = "/proc/self/cgroup"
	for name, c := range map[string]struct {
		files map[string]string
		want  float64
	}{
		"none":             {map[string]string{own: "0::/a/b\n", "/sys/fs/cgroup/a/cpu.max": "max 100000\n"}, 0},
		"version 2":        {map[string]string{own: "0::/a/b\n", "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "/sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 1.5},
		"two limits":       {map[string]string{own: "0::/a/b\n", "/sys/fs/cgroup/a/b/cpu.max": "50000 100000\n", "/sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, 0.5},
		"version 1":        {map[string]string{own: "1:cpu:/c\n", "/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "200000\n", "/sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n"}, 2},
		"version 1, none":  {map[string]string{own: "1:cpu:/\n", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 0},
		"no control group": {nil, 0},
	} {
		if got := machineOf(c.files).quota(); got != c.want {
			t.Errorf("%s: %v CPUs, want %v", name, got, c.want)
		}
	}
	pids := machineOf(map[string]string{own: "0::/a\n", "/sys/fs/cgroup/a/pids.max": "100\n", "/sys/fs/cgroup/pids.max": "max\n"})
	if got := pids.maxTasks(); got != 100 {
		t.Errorf("pids.max %d, want 100", got)
	}
}

func TestParsers(t *testing.T) {
	for text, want := range map[string][]int{"0": {0}, "0-2,4\n": {0, 1, 2, 4}, "": nil} {
		if got, err := parseCPUList(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("CPUs %q: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"x", "3-1", "-1", "0-99999999"} {
		if got, err := parseCPUList(bad); err == nil {
			t.Errorf("CPUs %q: %v, no error", bad, got)
		}
	}
	if n, err := parseLoadTasks("0.52 0.58 0.59 3/602 12345"); err != nil || n != 602 {
		t.Errorf("tasks %d, %v", n, err)
	}
	for _, bad := range []string{"", "0.1 0.2 0.3 3 5"} {
		if n, err := parseLoadTasks(bad); err == nil {
			t.Errorf("tasks of %q: %d, no error", bad, n)
		}
	}
	config, err := parseConfig(strings.NewReader("# CONFIG_X is not set\nCONFIG_TICK_CPU_ACCOUNTING=y\nCONFIG_HZ=250\n"), Accounting...)
	if err != nil || !reflect.DeepEqual(config, map[string]string{"CONFIG_TICK_CPU_ACCOUNTING": "y"}) {
		t.Errorf("config %v, %v", config, err)
	}
	// A polling thread's name holds spaces and parentheses in no kernel, a program's may.
	ticks, err := parseTicks([]byte("42 (a (b) c) S 2 0 0 0 -1 2129984 0 0 0 0 17 25 3 4 20 0 1 0 100 0 0\n"))
	if err != nil || ticks != 42 {
		t.Errorf("ticks %d, %v; want 17 + 25", ticks, err)
	}
	if _, err := parseTicks([]byte("42 (x) S 1")); err == nil {
		t.Error("a short stat gives no error")
	}
	for text, want := range map[string]string{
		"processor\t: 0\nmodel name\t: EPYC\nflags\t\t: fpu hypervisor sse\n": "EPYC hypervisor", "flags\t\t: fpu sse\n": " none seen", "": " ",
	} {
		if model, virtualisation := parseCPUInfo(text); model+" "+virtualisation != want {
			t.Errorf("%q: %q, %q", text, model, virtualisation)
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte(cgroupsHybrid))
	f.Add([]byte("0-2,4"))
	f.Add([]byte("42 (a) S 2 0 0 0 -1 1 0 0 0 0 17 25 3"))
	f.Fuzz(func(t *testing.T, b []byte) {
		text := string(b)
		if groups, err := parseCgroups(strings.NewReader(text)); err == nil {
			for _, g := range groups {
				if !strings.HasPrefix(g.path, "/") {
					t.Errorf("a control group without a path: %+v", g)
				}
			}
		}
		if cpus, err := parseCPUList(text); err == nil {
			for _, cpu := range cpus {
				if cpu < 0 {
					t.Errorf("CPU %d", cpu)
				}
			}
		}
		if q := parseQuota(text, ""); q < 0 {
			t.Errorf("quota %v", q)
		}
		parseTicks(b)
		parseLoadTasks(text)
		machineOf(map[string]string{"/proc/self/cgroup": text}).quota()
	})
}

func TestRouterThreadsAreKnownByName(t *testing.T) {
	for comm, want := range map[string]bool{
		"napi/gabc2d-r0-8194\n": true, "napi/gabc2d-r1-\n": true, "napi/gabc2d-c0-12\n": false, "napi/eth0-8193\n": false, "kworker/0:1\n": false,
	} {
		if got := routerThread.MatchString(comm); got != want {
			t.Errorf("%q: %v", comm, got)
		}
	}
}

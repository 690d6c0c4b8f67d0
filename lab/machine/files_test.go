// Tests of what files in /proc and /sys say of a machine. machineOf is a machine with files of the test.

package machine

import (
	"io/fs"
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

func TestControlGroupsOfBothVersions(t *testing.T) {
	limits := func(cgroups string) map[string]float64 {
		found := map[string]float64{}
		for _, controller := range []string{"cpu", "pids", "io"} {
			machineOf(map[string]string{"/proc/self/cgroup": cgroups}).eachGroup(
				controller, "v1", "v2", func(file string) { found[file]++ })
		}
		return found
	}
	got := limits(cgroupsHybrid)
	for file, want := range map[string]float64{
		"/sys/fs/cgroup/cpu/user.slice/user-1000.slice/v1":             1, // of one of two controllers
		"/sys/fs/cgroup/cpu/v1":                                        1,
		"/sys/fs/cgroup/pids/v1":                                       1,
		"/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/v2": 3, // for each controller
		"/sys/fs/cgroup/v2":                                            3,
		"/sys/fs/cgroup/io/v1":                                         0,
	} {
		if got[file] != want {
			t.Errorf("%s is read %g times, want %g", file, got[file], want)
		}
	}
	for _, bad := range []string{"0:", "cpu", "1:cpu:relative"} {
		if got := limits(bad); len(got) > 0 {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestQuotaIsTheTightestOfAllAncestors(t *testing.T) {
	const own, v2 = "/proc/self/cgroup", "/sys/fs/cgroup"
	for name, c := range map[string]struct {
		files map[string]string
		want  Quota
	}{
		"none": {map[string]string{own: "0::/a/b\n", v2 + "/a/cpu.max": "max 100000\n"}, Quota{}},
		"version 2": {map[string]string{own: "0::/a/b\n", v2 + "/a/b/cpu.max": "max 100000\n", v2 +
			"/a/cpu.max": "150000 100000\n"}, Quota{1.5, v2 + "/a/cpu.max", 0}},
		"two limits": {map[string]string{own: "0::/a/b\n", v2 + "/a/b/cpu.max": "50000 100000\n", v2 +
			"/a/cpu.max": "150000 100000\n"}, Quota{0.5, v2 + "/a/b/cpu.max", 0}},
		"its own namespace of groups": {map[string]string{own: "0::/\n", v2 + "/cpu.max": "50000 100000\n", v2 +
			"/cpu.stat": "usage_usec 900\nnr_throttled 7\nthrottled_usec 2500000\n"},
			Quota{0.5, v2 + "/cpu.max", 2.5}},
		"both versions": {map[string]string{own: "1:memory:/m\n0::/u\n", v2 + "/unified/cgroup.controllers": "cpu\n", v2 +
			"/unified/u/cpu.max": "200000 100000\n"}, Quota{2, v2 + "/unified/u/cpu.max", 0}},
		"version 1": {map[string]string{own: "1:cpu:/c\n", v2 + "/cpu/c/cpu.cfs_quota_us": "200000\n", v2 +
			"/cpu/c/cpu.cfs_period_us": "100000\n", v2 + "/cpu/c/cpu.stat": "nr_throttled 1\nthrottled_time 500000000\n"},
			Quota{2, v2 + "/cpu/c/cpu.cfs_quota_us", 0.5}},
		"version 1, none": {map[string]string{own: "1:cpu:/\n", v2 + "/cpu/cpu.cfs_quota_us": "-1\n", v2 +
			"/cpu/cpu.cfs_period_us": "100000\n"}, Quota{}},
		"no control group": {nil, Quota{}},
	} {
		if got := machineOf(c.files).quota(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for _, m := range []Machine{
		{Quota: Quota{CPUs: 2, File: "f"}, Usable: []int{0, 1}}, {Quota: Quota{CPUs: 1.5, File: "f"}, Usable: []int{4}}} {
		if q := m.TightQuota(); q != (Quota{}) {
			t.Errorf("%+v of %d CPUs is a limit", q, len(m.Usable))
		}
	}
}

// TestRoomIsTheLeastOfAllAncestors: a group above with a higher limit may have less room, because others are in it too.
func TestRoomIsTheLeastOfAllAncestors(t *testing.T) {
	const own, v2, v1 = "/proc/self/cgroup", "/sys/fs/cgroup", "/sys/fs/cgroup/memory"
	for name, c := range map[string]struct {
		files         map[string]string
		tasks, memory Headroom
	}{
		"no control group": {nil, Headroom{}, Headroom{}},
		"no limit": {map[string]string{own: "0::/a\n", v2 + "/a/pids.max": "max\n", v2 + "/a/pids.current": "7\n",
			v2 + "/a/memory.max": "max\n"}, Headroom{}, Headroom{}},
		"version 2": {map[string]string{own: "0::/a\n", v2 + "/a/pids.max": "100\n", v2 + "/a/pids.current": "7\n",
			v2 + "/pids.max": "max\n"}, Headroom{100, 7, v2 + "/a/pids.max"}, Headroom{}},
		"less room above": {map[string]string{own: "0::/a/b\n", v2 + "/a/b/pids.max": "100\n", v2 +
			"/a/b/pids.current": "7\n", v2 + "/a/pids.max": "200\n", v2 + "/a/pids.current": "190\n"},
			Headroom{200, 190, v2 + "/a/pids.max"}, Headroom{}},
		"memory": {map[string]string{own: "0::/a\n", v2 + "/a/memory.max": "1048576\n", v2 +
			"/a/memory.current": "524288\n", v2 + "/a/memory.stat": "anon 1\ninactive_file 262144\n"}, Headroom{},
			Headroom{1024, 256, v2 + "/a/memory.max"}},
		"memory, version 1": {map[string]string{own: "4:memory:/c\n", v1 + "/c/memory.limit_in_bytes": "1048576\n", v1 +
			"/c/memory.usage_in_bytes": "524288\n", v1 + "/c/memory.stat": "inactive_file 1\ntotal_inactive_file 262144\n"},
			Headroom{}, Headroom{1024, 256, v1 + "/c/memory.limit_in_bytes"}},
		"version 1, no limit": {map[string]string{own: "4:memory:/\n8:pids:/\n", v1 +
			"/memory.limit_in_bytes": "9223372036854771712\n", "/sys/fs/cgroup/pids/pids.max": "max\n"}, Headroom{}, Headroom{}},
	} {
		s := machineOf(c.files)
		if tasks, memory := s.tasks(), s.memory(); tasks != c.tasks || memory != c.memory {
			t.Errorf("%s: tasks %+v, memory %+v KiB; want %+v, %+v", name, tasks, memory, c.tasks, c.memory)
		}
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
	for text, want := range map[string]int64{"0.52 0.58 0.59 3/602 12345": 602, "": 0, "0.1 0.2 0.3 3 5": 0} {
		if n := parseLoadTasks(text); n != want {
			t.Errorf("%d tasks in %q, want %d", n, text, want)
		}
	}
	config := machineOf(map[string]string{
		"/boot/config-6": "# CONFIG_X is not set\nCONFIG_TICK_CPU_ACCOUNTING=y\nCONFIG_HZ=250\n"}).config("6")
	if !reflect.DeepEqual(config, []string{"CONFIG_TICK_CPU_ACCOUNTING"}) {
		t.Errorf("config %v", config)
	}
	if config := machineOf(nil).config("6"); config != nil {
		t.Errorf("config %v of a machine that shows none", config)
	}
	for text, want := range map[string]string{
		"processor\t: 0\nmodel name\t: EPYC\nflags\t\t: fpu hypervisor sse\n": "EPYC hypervisor",
		"flags\t\t: fpu sse\n": " none seen", "": " ",
	} {
		if model, virtualisation := parseCPUInfo(text); model+" "+virtualisation != want {
			t.Errorf("%q: %q, %q", text, model, virtualisation)
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte(cgroupsHybrid))
	f.Add([]byte("0-2,4"))
	f.Fuzz(func(t *testing.T, b []byte) {
		text := string(b)
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
		parseLoadTasks(text)
		machineOf(map[string]string{"/proc/self/cgroup": text}).quota()
	})
}

func TestNamespacesInUse(t *testing.T) {
	in := func(link string) *fstest.MapFile { return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(link)} }
	m, err := ReadFiles(
		fstest.MapFS{"proc/1/ns/net": in("net:[1]"), "proc/20/ns/net": in("net:[1]"), "proc/300/ns/net": in(
			"net:[2]"), "proc/self/ns/net": in("net:[3]")})
	if err != nil || m.Limits.InUse != 2 {
		t.Errorf("%d namespaces in use, %v; want 2", m.Limits.InUse, err)
	}
}

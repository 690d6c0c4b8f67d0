package machine

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// files reads the files of a machine below /.
type files struct{ fsys fs.FS }

// text is a file's content without surrounding space, "" when it cannot be read.
func (s files) text(name string) string {
	b, _ := fs.ReadFile(s.fsys, strings.TrimPrefix(name, "/"))
	return strings.TrimSpace(string(b))
}

// number returns the integer that a file holds, or 0 when it holds none.
func (s files) number(name string) int64 {
	n, err := strconv.ParseInt(s.text(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

const groupsRoot = "/sys/fs/cgroup"

// cgroup2Root returns the folder of control groups of version 2. It is groupsRoot, or a folder in it on machines that
// use both versions.
func (s files) cgroup2Root() string {
	if hybrid := groupsRoot + "/unified"; s.text(hybrid+"/cgroup.controllers") != "" {
		return hybrid
	}
	return groupsRoot
}

// eachGroup calls visit with a file of each control group that has the controller and this process in it, and then with
// the same file of all groups above, as far as this process sees them.
func (s files) eachGroup(controller, v1name, v2name string, visit func(file string)) {
	for line := range strings.Lines(s.text("/proc/self/cgroup")) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // ID:CONTROLLERS:/PATH, cgroups(7)
		if len(f) < 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		root, name := s.cgroup2Root(), v2name
		if f[1] != "" { // version 1
			if !slices.Contains(strings.Split(f[1], ","), controller) {
				continue
			}
			root, name = path.Join(groupsRoot, controller), v1name
		}
		for dir := path.Clean(f[2]); ; dir = path.Dir(dir) {
			visit(path.Join(root, dir, name))
			if dir == "/" {
				break
			}
		}
	}
}

// Quota is the CPU time that control groups allow a process. The group that allows least counts.
type Quota struct {
	CPUs float64 `json:"cpus"` // 0: no limit
	File string  `json:"file"` // has the limit
	// Throttled is how long the group's programs have waited for CPU time since the group was made: the sum over all of
	// them, seconds.
	Throttled float64 `json:"stopped_seconds"`
}

// TightQuota returns the machine's quota where the lab could use it up, and zero elsewhere.
func (m Machine) TightQuota() Quota {
	if m.Quota.CPUs >= float64(len(m.Usable)) && len(m.Usable) > 0 {
		return Quota{}
	}
	return m.Quota
}

// quota returns the CPU time that this process's control groups allow.
func (s files) quota() (least Quota) {
	s.eachGroup("cpu", "cpu.cfs_quota_us", "cpu.max", func(file string) {
		dir := path.Dir(file)
		n := parseQuota(s.text(file), s.text(path.Join(dir, "cpu.cfs_period_us")))
		if n > 0 && (least.CPUs == 0 || n < least.CPUs) {
			throttled := float64(s.entry(path.Join(dir, "cpu.stat"), "throttled_usec"))/1e6 +
				float64(s.entry(path.Join(dir, "cpu.stat"), "throttled_time"))/1e9
			least = Quota{n, file, throttled} // cpu.stat has throttled_usec in version 2, throttled_time in version 1
		}
	})
	return least
}

// entry returns the number beside a name in a file of lines "NAME NUMBER", or 0 without such a line.
func (s files) entry(file, name string) (n int64) {
	for line := range strings.Lines(s.text(file)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == name {
			n, _ = strconv.ParseInt(value, 10, 64) // 0 where it is none
		}
	}
	return n
}

// parseQuota reads cpu.max ("50000 100000", "max 100000") or, with its period
// in a file of its own, cpu.cfs_quota_us ("-1" is no limit). 0 means no limit.
func parseQuota(quota, period string) float64 {
	f := strings.Fields(quota + " " + period)
	if len(f) < 2 {
		return 0
	}
	q, err1 := strconv.ParseFloat(f[0], 64)
	p, err2 := strconv.ParseFloat(f[1], 64)
	if err1 != nil || err2 != nil || !(q > 0) || !(p > 0) {
		return 0
	}
	return q / p
}

// Headroom is a limit of a control group and how much of it is used. Of several groups the one that leaves least
// counts.
type Headroom struct {
	Limit int64 `json:"limit"` // 0: none
	Used  int64 `json:"used"`  // by all processes of that group
	// File has the limit. It is empty without one.
	File string `json:"file,omitempty"`
}

// tighter returns the headroom of which less is left.
func (a Headroom) tighter(b Headroom) Headroom {
	if b.Limit > 0 && (a.Limit == 0 || b.Limit-b.Used < a.Limit-a.Used) {
		return b
	}
	return a
}

// tasks returns the headroom for processes and threads.
func (s files) tasks() (least Headroom) {
	s.eachGroup("pids", "pids.max", "pids.max", func(file string) {
		least = least.tighter(Headroom{s.number(file), s.number(path.Join(path.Dir(file), "pids.current")), file})
	})
	return least
}

// memory returns the headroom for memory, KiB. Cached files that were not used lately count as free.
func (s files) memory() (least Headroom) {
	s.eachGroup("memory", "memory.limit_in_bytes", "memory.max", func(file string) {
		dir := path.Dir(file)
		limit, used := s.number(file), s.number(path.Join(dir, "memory.current")) // "max" is 0
		idle := "inactive_file"
		if strings.HasSuffix(file, "limit_in_bytes") {
			used, idle = s.number(path.Join(dir, "memory.usage_in_bytes")), "total_inactive_file"
		}
		used -= min(s.entry(path.Join(dir, "memory.stat"), idle), used) // cached files count as free
		if limit < 1<<50 {                                              // in version 1 no limit is a huge number
			least = least.tighter(Headroom{limit >> 10, used >> 10, file})
		}
	})
	return least
}

// namespaces counts the network namespaces of the processes that this process sees. Namespaces without a process are
// not counted.
func (s files) namespaces() int64 {
	links, _ := fs.Glob(s.fsys, "proc/[0-9]*/ns/net") // the pattern is valid
	seen := map[string]bool{}
	for _, name := range links {
		if link, err := fs.ReadLink(s.fsys, name); err == nil { // an error: the process has ended
			seen[link] = true
		}
	}
	return int64(len(seen))
}

// parseCPUList reads the kernel's lists of CPUs: "0-2,4".
func parseCPUList(text string) (cpus []int, err error) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		if part == "" {
			continue
		}
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err1 := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		const most = 1 << 16 // no kernel has more CPUs
		if err1 != nil || err2 != nil || a < 0 || b < a || b > most {
			return nil, fmt.Errorf("list of CPUs: %q: want numbers and ranges such as 0-3", part)
		}
		for cpu := a; cpu <= b; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// cpus describes each CPU, by its number.
func (s files) cpus() map[int]CPU {
	dirs, err := fs.Glob(s.fsys, "sys/devices/system/cpu/cpu[0-9]*")
	if err != nil {
		return nil
	}
	list := map[int]CPU{}
	for _, dir := range dirs {
		if n, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "cpu")); err == nil {
			siblings, _ := parseCPUList(s.text(dir + "/topology/thread_siblings_list")) // none with an error
			list[n] = CPU{
				siblings, s.text(dir + "/cpufreq/scaling_governor"), s.text(dir + "/cpufreq/scaling_driver")}
		}
	}
	return list
}

// tracing tells whether this process can read the kernel's tracing files.
func (s files) tracing() Tracing {
	entries, err := fs.ReadDir(s.fsys, "sys/kernel/tracing")
	switch {
	case errors.Is(err, fs.ErrPermission):
		return TracingDenied
	case len(entries) == 0:
		return TracingAbsent
	}
	return TracingMounted
}

// Accounting are the kernel's ways to account for CPU time (init/Kconfig).
var Accounting = []string{"CONFIG_TICK_CPU_ACCOUNTING", "CONFIG_VIRT_CPU_ACCOUNTING_GEN",
	"CONFIG_VIRT_CPU_ACCOUNTING_NATIVE", "CONFIG_IRQ_TIME_ACCOUNTING"}

// config lists the options of Accounting that are set. It is nil when the kernel does not show its configuration.
func (s files) config(release string) []string {
	set := s.options(release)
	if set == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(Accounting), func(option string) bool { return set[option] != "y" })
}

// options returns the set options of the kernel's configuration with their values: "y", "m", a number, a text. It looks
// where distributions keep the configuration, and returns nil when it finds none.
func (s files) options(release string) map[string]string {
	for _, name := range []string{"proc/config.gz", "boot/config-" + release, "lib/modules/" + release + "/config"} {
		raw, err := fs.ReadFile(s.fsys, name)
		if err != nil {
			continue
		}
		if strings.HasSuffix(name, ".gz") {
			r, err := gzip.NewReader(bytes.NewReader(raw))
			if err != nil {
				return nil
			}
			if raw, err = io.ReadAll(r); err != nil {
				return nil
			}
		}
		set := map[string]string{}
		for line := range strings.Lines(string(raw)) {
			if option, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(option, "#") {
				set[option] = value
			}
		}
		return set
	}
	return nil
}

// openFiles returns the soft limit of open files of programs that this process starts, and the hard limit of this
// process. 0 is no limit. A Go program raises its own soft limit to the hard one when it starts, but gives its children
// the former one. So the soft limit is that of a shell.
func openFiles() (soft, hard int64) {
	out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn").Output()
	if err == nil {
		soft, _ = strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64) // 0: "unlimited"
	}
	return soft, HardFiles()
}

// HardFiles returns this process's hard limit of open files, or 0 without one.
func HardFiles() int64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max >= 1<<62 {
		return 0
	}
	return int64(limit.Max)
}

// parseLoadTasks reads the number of tasks from /proc/loadavg, whose fourth field is "running/all". It returns 0 for
// another format.
func parseLoadTasks(text string) int64 {
	var load float64
	var running, all int64
	if _, err := fmt.Sscanf(text, "%f %f %f %d/%d", &load, &load, &load, &running, &all); err != nil {
		return 0
	}
	return all
}

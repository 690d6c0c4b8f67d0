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

// files are those of a machine below /.
type files struct{ fsys fs.FS }

// text is a file's content without surrounding space, "" when it cannot be read.
func (s files) text(name string) string {
	b, _ := fs.ReadFile(s.fsys, strings.TrimPrefix(name, "/"))
	return strings.TrimSpace(string(b))
}

// number is a file that holds one integer; 0 when it does not.
func (s files) number(name string) int64 {
	n, err := strconv.ParseInt(s.text(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

const groupsRoot = "/sys/fs/cgroup"

// unified is where groups of version 2 are: beside those of version 1 in a folder of their own.
func (s files) unified() string {
	if beside := groupsRoot + "/unified"; s.text(beside+"/cgroup.controllers") != "" {
		return beside
	}
	return groupsRoot
}

// eachGroup calls visit with a file of each control group of this process that has a controller, and of all groups
// above them, as far as this process sees them.
func (s files) eachGroup(controller, v1name, v2name string, visit func(file string)) {
	for line := range strings.Lines(s.text("/proc/self/cgroup")) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // ID:CONTROLLERS:/PATH, cgroups(7)
		if len(f) < 3 || !strings.HasPrefix(f[2], "/") {
			continue
		}
		root, name := s.unified(), v2name
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

// Quota is the CPU time that control groups allow a process: that of the group that allows least.
type Quota struct {
	CPUs float64 `json:"cpus"` // 0: no limit
	File string  `json:"file"` // that says so
	// Stopped is for how long the group's programs have waited for more since it was made, seconds of all of them
	// together.
	Stopped float64 `json:"stopped_seconds"`
}

// TightQuota is the machine's quota where the lab could use it up; zero elsewhere.
func (m Machine) TightQuota() Quota {
	if m.Quota.CPUs >= float64(len(m.Usable)) && len(m.Usable) > 0 {
		return Quota{}
	}
	return m.Quota
}

// quota is the CPU time this process's control groups allow.
func (s files) quota() (least Quota) {
	s.eachGroup("cpu", "cpu.cfs_quota_us", "cpu.max", func(file string) {
		dir := path.Dir(file)
		n := parseQuota(s.text(file), s.text(path.Join(dir, "cpu.cfs_period_us")))
		if n > 0 && (least.CPUs == 0 || n < least.CPUs) {
			stopped := float64(s.entry(path.Join(dir, "cpu.stat"), "throttled_usec"))/1e6 +
				float64(s.entry(path.Join(dir, "cpu.stat"), "throttled_time"))/1e9
			least = Quota{n, file, stopped} // a file has one of the two
		}
	})
	return least
}

// entry is a number of a file with lines of a name and a number; 0 where it has no such line.
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

// Share is what control groups leave a process of something: that of the group with the least room.
type Share struct {
	Limit int64 `json:"limit"` // 0: none
	Used  int64 `json:"used"`  // by all processes of that group
	// File says what the limit is; empty: none.
	File string `json:"file,omitempty"`
}

// tighter is whichever of two shares leaves less room.
func (a Share) tighter(b Share) Share {
	if b.Limit > 0 && (a.Limit == 0 || b.Limit-b.Used < a.Limit-a.Used) {
		return b
	}
	return a
}

// tasks is what control groups leave of processes and threads.
func (s files) tasks() (least Share) {
	s.eachGroup("pids", "pids.max", "pids.max", func(file string) {
		least = least.tighter(Share{s.number(file), s.number(path.Join(path.Dir(file), "pids.current")), file})
	})
	return least
}

// memory is what control groups leave of it, KiB. Copies of files that nobody has used lately count as free.
func (s files) memory() (least Share) {
	s.eachGroup("memory", "memory.limit_in_bytes", "memory.max", func(file string) {
		dir := path.Dir(file)
		limit, used := s.number(file), s.number(path.Join(dir, "memory.current")) // "max" is 0
		idle := "inactive_file"
		if strings.HasSuffix(file, "limit_in_bytes") {
			used, idle = s.number(path.Join(dir, "memory.usage_in_bytes")), "total_inactive_file"
		}
		used -= min(s.entry(path.Join(dir, "memory.stat"), idle), used) // those count as free
		if limit < 1<<50 {                                              // version 1 has the largest number for no limit
			least = least.tighter(Share{limit >> 10, used >> 10, file})
		}
	})
	return least
}

// namespaces counts the network namespaces that processes are in. Namespaces without a process,
// and those of processes that are hidden from this one, are not seen.
func (s files) namespaces() int64 {
	links, _ := fs.Glob(s.fsys, "proc/[0-9]*/ns/net") // the pattern is valid
	seen := map[string]bool{}
	for _, name := range links {
		if link, err := fs.ReadLink(s.fsys, name); err == nil { // otherwise the process has ended
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

// cpus reads siblings and governor of each CPU.
func (s files) cpus() map[int]CPU {
	dirs, err := fs.Glob(s.fsys, "sys/devices/system/cpu/cpu[0-9]*")
	if err != nil {
		return nil
	}
	list := map[int]CPU{}
	for _, dir := range dirs {
		if n, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "cpu")); err == nil {
			siblings, _ := parseCPUList(s.text(dir + "/topology/thread_siblings_list")) // none with an error
			list[n] = CPU{siblings, s.text(dir + "/cpufreq/scaling_governor")}
		}
	}
	return list
}

// tracing tells whether the kernel's tracing files are there for this process.
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

// config lists the options of Accounting that are set. It is nil when the kernel's configuration is not shown.
func (s files) config(release string) []string {
	set := s.options(release)
	if set == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(Accounting), func(option string) bool { return set[option] != "y" })
}

// options are those of the kernel's configuration that are set, with their values: "y", "m", a number, a text. They are
// read from the places where distributions keep them, and nil when none of these has them.
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

// openFiles are the limits of open files: the soft one of programs that this process
// starts, and its own hard one; 0 where there is none. Go raises its own soft limit to
// the hard one when it starts, and gives its children the one it had before.
func openFiles() (soft, hard int64) {
	out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn").Output()
	if err == nil {
		soft, _ = strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64) // 0: "unlimited"
	}
	return soft, HardFiles()
}

// HardFiles is this process's hard limit of open files; 0 without one.
func HardFiles() int64 {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil || own.Max >= 1<<62 {
		return 0
	}
	return int64(own.Max)
}

// parseLoadTasks reads the number of tasks from /proc/loadavg: its fourth field
// is "running/all"; 0 when it is not.
func parseLoadTasks(text string) int64 {
	var load float64
	var running, all int64
	if _, err := fmt.Sscanf(text, "%f %f %f %d/%d", &load, &load, &load, &running, &all); err != nil {
		return 0
	}
	return all
}

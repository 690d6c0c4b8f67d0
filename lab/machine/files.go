package machine

import (
	"bufio"
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

// text is a file's content without surrounding space; empty when it cannot be read.
func (s files) text(name string) string {
	b, err := fs.ReadFile(s.fsys, strings.TrimPrefix(name, "/"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// number is a file that holds one integer.
func (s files) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(s.text(name), 10, 64)
	return n, err == nil
}

// cgroup is one line of /proc/self/cgroup.
type cgroup struct {
	controllers []string // empty for version 2
	path        string
}

// parseCgroups reads /proc/self/cgroup (cgroups(7)): "4:cpu,cpuacct:/user".
func parseCgroups(r io.Reader) ([]cgroup, error) {
	var list []cgroup
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		_, rest, ok1 := strings.Cut(sc.Text(), ":")
		controllers, p, ok2 := strings.Cut(rest, ":")
		if !ok1 || !ok2 || !strings.HasPrefix(p, "/") {
			return nil, fmt.Errorf("cgroup: %q: want ID:CONTROLLERS:/PATH", sc.Text())
		}
		g := cgroup{path: p}
		if controllers != "" {
			g.controllers = strings.Split(controllers, ",")
		}
		list = append(list, g)
	}
	return list, sc.Err()
}

// ancestors are the files of one name in a control group and all above it, as
// far as this process sees them: the tightest limit counts.
func (s files) ancestors(controller, v1name, v2name string) []string {
	groups, err := parseCgroups(strings.NewReader(s.text("/proc/self/cgroup")))
	if err != nil {
		return nil
	}
	var found []string
	for _, g := range groups {
		root, name := "/sys/fs/cgroup", v2name
		switch {
		case slices.Contains(g.controllers, controller):
			root, name = "/sys/fs/cgroup/"+controller, v1name
		case len(g.controllers) > 0:
			continue
		}
		for dir := path.Clean(g.path); ; dir = path.Dir(dir) {
			if text := s.text(path.Join(root, dir, name)); text != "" {
				found = append(found, path.Join(root, dir, name))
			}
			if dir == "/" {
				break
			}
		}
	}
	return found
}

// quota is the CPU time this process's control groups allow, in CPUs; 0 means
// no limit.
func (s files) quota() float64 {
	var least float64
	for _, file := range s.ancestors("cpu", "cpu.cfs_quota_us", "cpu.max") {
		cpus := parseQuota(s.text(file), s.text(path.Join(path.Dir(file), "cpu.cfs_period_us")))
		if cpus > 0 && (least == 0 || cpus < least) {
			least = cpus
		}
	}
	return least
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

// maxTasks is the tightest pids.max of the control groups; 0 means no limit.
func (s files) maxTasks() int64 {
	var least int64
	for _, file := range s.ancestors("pids", "pids.max", "pids.max") {
		if n, ok := s.number(file); ok && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// parseCPUList reads the kernel's lists of CPUs: "0-2,4".
func parseCPUList(text string) ([]int, error) {
	var cpus []int
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
		n, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "cpu"))
		if err != nil {
			continue
		}
		siblings, err := parseCPUList(s.text(dir + "/topology/thread_siblings_list"))
		if err != nil {
			siblings = nil
		}
		list[n] = CPU{siblings, s.text(dir + "/cpufreq/scaling_governor")}
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
var Accounting = []string{"CONFIG_TICK_CPU_ACCOUNTING", "CONFIG_VIRT_CPU_ACCOUNTING_GEN", "CONFIG_VIRT_CPU_ACCOUNTING_NATIVE", "CONFIG_IRQ_TIME_ACCOUNTING"}

// config lists the options of Accounting that are set, from the places where
// distributions keep a kernel's configuration. It is nil when none of them has it.
func (s files) config(release string) []string {
	for _, name := range []string{"proc/config.gz", "boot/config-" + release, "lib/modules/" + release + "/config"} {
		raw, err := fs.ReadFile(s.fsys, name)
		if err != nil {
			continue
		}
		var r io.Reader = bytes.NewReader(raw)
		if strings.HasSuffix(name, ".gz") {
			if r, err = gzip.NewReader(r); err != nil {
				return nil
			}
		}
		values, err := parseConfig(r, Accounting...)
		if err != nil {
			return nil
		}
		set := []string{}
		for _, option := range Accounting {
			if values[option] == "y" {
				set = append(set, option)
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

// parseConfig reads a kernel's configuration and returns the values of the
// options asked for, without those that are not set.
func parseConfig(r io.Reader, options ...string) (map[string]string, error) {
	found := map[string]string{}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		key, value, ok := strings.Cut(sc.Text(), "=")
		if ok && slices.Contains(options, key) {
			found[key] = value
		}
	}
	return found, sc.Err()
}

// parseLoadTasks reads the number of tasks from /proc/loadavg: its fourth field
// is "running/all".
func parseLoadTasks(text string) (int64, error) {
	f := strings.Fields(text)
	if len(f) < 4 {
		return 0, fmt.Errorf("/proc/loadavg: want 5 fields, have %d", len(f))
	}
	_, all, _ := strings.Cut(f[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/loadavg: %w", err)
	}
	return n, nil
}

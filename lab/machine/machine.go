// Package machine describes the machine that this process runs on: its CPUs, memory,
// limits, kernel and programs. An agent calls it, the lab's process on each host, and sends the
// results to the lab and to the doctor (the check before a run). Those judge them.
package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/meter"
	"github.com/gateweigh/gateweigh/lab/realtime"
)

// Machine describes a machine at one moment. Numbers that the machine does not show
// are zero, and such texts empty.
type Machine struct {
	Release        string `json:"release"` // of the kernel
	Kernel         string `json:"kernel"`  // uname release and version
	Arch           string `json:"arch"`    // GOARCH
	CPUModel       string `json:"cpu_model"`
	Virtualisation string `json:"virtualisation"` // "hypervisor", "none seen", or empty: unknown
	Program        string `json:"program"`        // SHA-256 of the agent's program, hexadecimal
	Root           bool   `json:"root"`           // the agent runs as root
	Bars           []Bar  `json:"bars,omitempty"` // reasons why labs cannot run here although the agent is root

	Online int         `json:"online"` // CPUs of the machine
	Usable []int       `json:"usable"` // those of them that the agent may use
	CPUs   map[int]CPU `json:"cpus"`
	Boost  bool        `json:"boost"`     // the clock may rise above its base
	Quota  Quota       `json:"cpu_quota"` // of the agent's control groups
	Ticks  meter.Stat  `json:"ticks"`     // since the machine was started

	Clock   time.Time `json:"clock"`
	TempDir string    `json:"temp_dir"`
	FreeKiB int64     `json:"free_kib"` // of the disk that TempDir is on
	Memory  Memory    `json:"memory"`
	Limits  Limits    `json:"limits"`

	Precedes bool `json:"precedes"`  // the agent may give threads priority over ordinary programs
	RealTime bool `json:"real_time"` // it may also give them real-time priority

	Pressure     string `json:"pressure"`      // /proc/pressure/cpu
	PerfParanoid *int64 `json:"perf_paranoid"` // kernel.perf_event_paranoid; nil without perf events
	// Hidden tells why perf finds no names of the kernel's functions. It is empty if perf finds them.
	Hidden  string   `json:"hidden_symbols,omitempty"`
	Tracing Tracing  `json:"tracing"`
	Config  []string `json:"config"` // options of Accounting that the kernel was built with; nil: unknown
}

// CPU describes one CPU.
type CPU struct {
	Siblings []int  `json:"siblings"` // CPUs on the same core, itself included
	Governor string `json:"governor"` // that chooses its clock frequency
	Driver   string `json:"driver"`   // that sets the frequency: "intel_pstate"
}

// Tracing says whether this process can read the kernel's tracing files.
type Tracing string

// States of /sys/kernel/tracing.
const (
	TracingMounted Tracing = "mounted"
	TracingDenied  Tracing = "denied"
	TracingAbsent  Tracing = "absent"
)

// Limits are limits of a machine that labs may reach, and what is used of them. Zero: no limit, or an unknown one.
type Limits struct {
	Neighbours [3]int64 `json:"neighbours"`  // gc_thresh1 to 3, of all network namespaces together
	Namespaces int64    `json:"namespaces"`  // network namespaces
	InUse      int64    `json:"in_use"`      // network namespaces that have processes which the agent sees
	Tasks      int64    `json:"tasks"`       // processes and threads that exist now
	PIDMax     int64    `json:"pid_max"`     // limit of process ids
	ThreadsMax int64    `json:"threads_max"` // limit of threads
	GroupTasks Headroom `json:"group_tasks"` // processes and threads of the agent's control groups
	GroupKiB   Headroom `json:"group_kib"`   // memory of the agent's control groups, KiB
	Conntrack  int64    `json:"conntrack"`   // tracked connections
	FilesSoft  int64    `json:"files_soft"`  // open files of a program that an agent starts
	FilesHard  int64    `json:"files_hard"`  // open files of a process
	Ports      string   `json:"ports"`       // net.ipv4.ip_local_port_range of the agent's network namespace
	Backlog    string   `json:"backlog"`     // net.core.somaxconn of that namespace
}

// Read describes the machine that this process runs on.
func Read() (Machine, error) {
	m, err := ReadFiles(os.DirFS("/"))
	if err != nil {
		return m, err
	}
	m.Arch, m.Root = runtime.GOARCH, root()
	var un unix.Utsname
	if err := unix.Uname(&un); err == nil {
		m.Kernel = unix.ByteSliceToString(un.Release[:]) + " " + unix.ByteSliceToString(un.Version[:])
	}
	if m.Root {
		m.Bars = bars()
	}
	if m.Usable, err = usableCPUs(); err != nil {
		return m, err
	}
	m.Limits.FilesSoft, m.Limits.FilesHard = openFiles()
	m.Clock, m.TempDir = time.Now(), os.TempDir()
	var disk unix.Statfs_t
	if err := unix.Statfs(m.TempDir, &disk); err == nil {
		m.FreeKiB = int64(disk.Bavail) * int64(disk.Bsize) >> 10
	}
	m.Precedes, m.RealTime = realtime.MayPrecede(), realtime.Permitted()
	m.Program, err = programHash()
	return m, err
}

// root reports whether this process is the machine's root user. It may still lack capabilities.
func root() bool { return os.Geteuid() == 0 && !inUserNamespace() }

// inUserNamespace reports whether this process is in a user namespace, as after unshare -r. Root there is an ordinary
// user of the machine, who may make network namespaces, but may not open meters or load programs into the kernel.
func inUserNamespace() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(users)), " ") != "0 0 4294967295"
}

// ReadFiles describes a machine by its files below /proc, /sys, /boot and /lib/modules. Tests give it copies of them.
func ReadFiles(fsys fs.FS) (m Machine, err error) {
	s := files{fsys}
	m.Release = s.text("/proc/sys/kernel/osrelease")
	m.CPUModel, m.Virtualisation = parseCPUInfo(s.text("/proc/cpuinfo"))
	var cpus map[int]meter.Stat
	if text := s.text("/proc/stat"); text != "" {
		if m.Ticks, cpus, err = meter.ParseProcStat(text); err != nil {
			return m, fmt.Errorf("counting the CPUs: %w", err)
		}
	}
	m.Online, m.CPUs = len(cpus), s.cpus()
	m.Boost = s.text("/sys/devices/system/cpu/cpufreq/boost") == "1" ||
		s.text("/sys/devices/system/cpu/intel_pstate/no_turbo") == "0"
	m.Quota = s.quota()
	if text := s.text("/proc/meminfo"); text != "" {
		if m.Memory, err = parseMeminfo(text); err != nil {
			return m, err
		}
	}
	m.Limits = s.limits()
	m.Pressure = s.text("/proc/pressure/cpu")
	if paranoid := "/proc/sys/kernel/perf_event_paranoid"; s.text(paranoid) != "" {
		level := s.number(paranoid)
		m.PerfParanoid = &level
	}
	m.Hidden = s.hiddenSymbols()
	m.Tracing, m.Config = s.tracing(), s.config(m.Release)
	return m, nil
}

// limits reads the limits that files show.
func (s files) limits() (l Limits) {
	for i := range l.Neighbours { // files that only the machine's own network namespace has
		l.Neighbours[i] = s.number("/proc/sys/net/ipv4/neigh/default/gc_thresh" + strconv.Itoa(i+1))
	}
	l.Namespaces, l.InUse = s.number("/proc/sys/user/max_net_namespaces"), s.namespaces()
	l.Tasks = parseLoadTasks(s.text("/proc/loadavg"))
	l.PIDMax = s.number("/proc/sys/kernel/pid_max")
	l.ThreadsMax = s.number("/proc/sys/kernel/threads-max")
	l.GroupTasks, l.GroupKiB = s.tasks(), s.memory()
	l.Conntrack = s.number("/proc/sys/net/netfilter/nf_conntrack_max")
	l.Ports, l.Backlog = s.text("/proc/sys/"+PortRange), s.text("/proc/sys/"+Backlog)
	return l
}

// Settings of each network namespace, below /proc/sys.
const (
	PortRange = "net/ipv4/ip_local_port_range"
	Backlog   = "net/core/somaxconn"
)

// usableCPUs returns the CPUs that this process may use.
func usableCPUs() (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("asking for this process's CPUs: %w", err)
	}
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// programHash is the SHA-256 of this program's file, read once.
var programHash = sync.OnceValues(func() (string, error) {
	sum, err := sha256Of("/proc/self/exe")
	return hex.EncodeToString(sum), err
})

// sha256Of is the SHA-256 of a file.
func sha256Of(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("hashing a program: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, fmt.Errorf("hashing %s: %w", path, err)
	}
	return h.Sum(nil), nil
}

// parseCPUInfo reads the CPUs' model from /proc/cpuinfo, and whether the CPUs have the flag that
// virtual machines have.
func parseCPUInfo(text string) (model, virtualisation string) {
	if text == "" {
		return "", ""
	}
	virtualisation = "none seen"
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			model = strings.TrimSpace(value)
		case "flags":
			if slices.Contains(strings.Fields(value), Hypervisor) {
				virtualisation = Hypervisor
			}
		}
	}
	return model, virtualisation
}

// Hypervisor is the Virtualisation of a virtual machine.
const Hypervisor = "hypervisor"

// Package machine reads what a machine is and what it has to give: CPUs, memory,
// limits, kernel, programs. All of it is read on the machine itself, by the agent
// of one of its hosts; the lab and the doctor only judge the answers.
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

// Machine is what a machine is at one moment. Numbers that the machine does not show
// are zero, texts empty.
type Machine struct {
	Release        string `json:"release"` // of the kernel
	Kernel         string `json:"kernel"`  // uname release and version
	Arch           string `json:"arch"`    // GOARCH
	CPUModel       string `json:"cpu_model"`
	Virtualisation string `json:"virtualisation"` // "hypervisor", "none seen", or empty
	Program        string `json:"program"`        // SHA-256 of the agent's program, hexadecimal
	Root           bool   `json:"root"`           // the agent runs as root
	Bars           []Bar  `json:"bars,omitempty"` // what keeps root from running labs

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

	// Precedes and RealTime report whether the agent may have threads go before all ordinary programs, and have real-time
	// priority, which is more.
	Precedes bool `json:"precedes"`
	RealTime bool `json:"real_time"`

	Pressure     string `json:"pressure"`      // /proc/pressure/cpu
	PerfParanoid *int64 `json:"perf_paranoid"` // kernel.perf_event_paranoid; nil without perf events
	// why perf finds no names of the kernel's functions; empty: it does
	Hidden  string   `json:"hidden_symbols,omitempty"`
	Tracing Tracing  `json:"tracing"`
	Config  []string `json:"config"` // options of Accounting that the kernel was built with; nil: not shown
}

// CPU is what the kernel tells of one.
type CPU struct {
	Siblings []int  `json:"siblings"` // CPUs on the same core, itself among them
	Governor string `json:"governor"` // of its clock
	Driver   string `json:"driver"`   // of that: "intel_pstate"
}

// Tracing says whether the kernel's tracing files are there.
type Tracing string

// States of /sys/kernel/tracing.
const (
	TracingMounted Tracing = "mounted"
	TracingDenied  Tracing = "denied"
	TracingAbsent  Tracing = "absent"
)

// Limits bound what labs may take of a machine. Zero is no limit, or one that is not shown.
type Limits struct {
	Neighbours [3]int64 `json:"neighbours"` // gc_thresh1 to 3, of all network namespaces together
	Namespaces int64    `json:"namespaces"` // network namespaces
	InUse      int64    `json:"in_use"`     // network namespaces that the agent sees a process in
	Tasks      int64    `json:"tasks"`      // processes and threads there are now
	PIDMax     int64    `json:"pid_max"`
	ThreadsMax int64    `json:"threads_max"`
	GroupTasks Headroom `json:"group_tasks"` // processes and threads of the agent's control groups
	GroupKiB   Headroom `json:"group_kib"`   // memory of the agent's control groups, KiB
	Conntrack  int64    `json:"conntrack"`   // tracked connections
	FilesSoft  int64    `json:"files_soft"`  // open files of a program that an agent starts
	FilesHard  int64    `json:"files_hard"`  // open files of a process
	Ports      string   `json:"ports"`       // net.ipv4.ip_local_port_range of the agent's network namespace
	Backlog    string   `json:"backlog"`     // net.core.somaxconn of the same
}

// Read reads the machine this process runs on.
func Read() (Machine, error) {
	m, err := Of(os.DirFS("/"))
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
	m.Program, err = ownHash()
	return m, err
}

// root reports whether this process is the machine's root, with whatever rights.
func root() bool { return os.Geteuid() == 0 && !inUserNamespace() }

// inUserNamespace reports whether root here is another user of the machine, as after unshare -r: such a root may make
// network namespaces, and neither meters nor programs in the kernel.
func inUserNamespace() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(users)), " ") != "0 0 4294967295"
}

// Of reads a machine from its files below /proc, /sys, /boot and /lib/modules.
func Of(fsys fs.FS) (m Machine, err error) {
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

func (s files) limits() (l Limits) {
	for i := range l.Neighbours { // only the machine's own network namespace has them
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

// usableCPUs are the CPUs that this process may use.
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

// ownHash is the SHA-256 of this program. It is the same for the life of the process.
var ownHash = sync.OnceValues(func() (string, error) {
	sum, err := sha256Of("/proc/self/exe")
	return hex.EncodeToString(sum), err
})

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

// parseCPUInfo reads /proc/cpuinfo: the model, and whether the flag is there that
// hypervisors set.
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

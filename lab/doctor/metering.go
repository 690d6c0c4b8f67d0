package doctor

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/analysis"
	"github.com/gateweigh/gateweigh/lab/meter"
)

// accountingOptions are the kernel's ways to book CPU time (init/Kconfig).
var accountingOptions = []string{"CONFIG_TICK_CPU_ACCOUNTING", "CONFIG_VIRT_CPU_ACCOUNTING_GEN", "CONFIG_VIRT_CPU_ACCOUNTING_NATIVE", "CONFIG_IRQ_TIME_ACCOUNTING"}

// accounting tells how the kernel books CPU time in /proc/stat.
func (s system) accounting() Line {
	l := Line{Key: "metering.accounting", State: OK, What: "accounting", Means: "information: the lab's own figures are on-CPU nanoseconds from switch to switch either way"}
	config, err := s.kernelConfig()
	if err != nil {
		l.State, l.Means = Warn, ""
		l.Found, l.Do = "the kernel's configuration is not shown", "nothing: the comparison of ticks with exact time shows the effect"
		return l
	}
	var set []string
	for _, option := range accountingOptions {
		if config[option] == "y" {
			set = append(set, option)
		}
	}
	l.Found = strings.Join(set, ", ")
	if len(set) == 0 {
		l.Found = "none of " + strings.Join(accountingOptions, ", ")
	}
	return l
}

// kernelConfig reads the accounting options from the places distributions keep
// a kernel's configuration in.
func (s system) kernelConfig() (map[string]string, error) {
	release := s.text("/proc/sys/kernel/osrelease")
	for _, name := range []string{"proc/config.gz", "boot/config-" + release, "lib/modules/" + release + "/config"} {
		raw, err := fs.ReadFile(s.fsys, name)
		if err != nil {
			continue
		}
		var r io.Reader = bytes.NewReader(raw)
		if strings.HasSuffix(name, ".gz") {
			if r, err = gzip.NewReader(r); err != nil {
				return nil, fmt.Errorf("reading /%s: %w", name, err)
			}
		}
		return parseConfig(r, accountingOptions...)
	}
	return nil, errors.New("no kernel configuration found")
}

// routerThread recognises the polling threads of the lab's routers by name.
var routerThread = regexp.MustCompile(`^napi/g[a-z0-9]{5}-r[01]`)

// books are the accounts of some threads at one moment.
type books struct {
	at      time.Time
	threads map[int]account
	busy    int64 // ticks that found the routers' CPUs at work, by /proc/stat
	idle    int64 // of the same CPUs, with steal; not sampled but counted by the kernel's idle loop
}

// account is one thread's CPU time by both methods.
type account struct{ ns, ticks int64 }

// gap compares tick accounting with exact time, summed over stretches in which
// the routers worked. All values are seconds.
type gap struct {
	seconds     float64 // length of those stretches
	exact       float64 // CPU time of the routers' polling threads together, by schedstat
	threadTicks float64 // the same by the threads' own utime and stime
	cpuTicks    float64 // what /proc/stat says the routers' CPUs worked, whoever for
	awake       float64 // what is left of the time when the CPUs' idle time is taken off
}

const (
	userHz   = 100                    // ticks a second in /proc, on every Linux ABI in use
	lookTime = 250 * time.Millisecond // between two looks at the accounts
	working  = 0.02                   // of a core: less is no traffic but setting up
)

// add enters what lies between two looks, if the routers worked in it.
func (g *gap) add(a, b books, cpus int) {
	var ns, ticks int64
	for tid, now := range b.threads {
		if was, known := a.threads[tid]; known {
			ns, ticks = ns+now.ns-was.ns, ticks+now.ticks-was.ticks
		}
	}
	seconds := b.at.Sub(a.at).Seconds()
	if float64(ns)/1e9 < working*seconds || len(a.threads) != len(b.threads) {
		return
	}
	g.seconds += seconds
	g.exact += float64(ns) / 1e9
	g.threadTicks += float64(ticks) / userHz
	g.cpuTicks += float64(b.busy-a.busy) / userHz
	g.awake += seconds*float64(cpus) - float64(b.idle-a.idle)/userHz
}

// tooLow is the share of a CPU's work below which tick accounting misleads.
const tooLow = 0.9

// line says what tick accounting saw of the routers' CPUs.
func (g gap) line(cpus []int) Line {
	l := Line{Key: "metering.gap", State: OK, What: "ticks and exact"}
	if !(g.exact > 0) || !(g.awake > 0) {
		l.State, l.Found, l.Do = Warn, "no router's work was seen", "see Noise: the comparison is made while that measures"
		return l
	}
	pct := func(seconds float64) float64 { return 100 * seconds / (g.seconds * float64(len(cpus))) }
	seen := g.cpuTicks / g.awake
	l.Found = fmt.Sprintf("CPU %v was awake for %.1f %% of the time, and ticks (/proc/stat) saw %.0f %% of that; routers' threads: %.1f %% exact, %.1f %% by utime and stime",
		cpus, pct(g.awake), 100*seen, pct(g.exact), pct(g.threadTicks))
	l.Means = "the lab counts each thread from switch to switch: no tick, and nobody else's work"
	if seen < tooLow {
		l.Means = "mpstat and top read too low here; the lab counts each thread from switch to switch"
	}
	l.Figures = map[string]analysis.Number{
		"router_exact_pct": analysis.Number(pct(g.exact)), "router_thread_ticks_pct": analysis.Number(pct(g.threadTicks)),
		"cpu_awake_pct": analysis.Number(pct(g.awake)), "cpu_ticks_pct": analysis.Number(pct(g.cpuTicks)), "ticks_saw_pct": analysis.Number(100 * seen),
	}
	return l
}

// watchBooks compares both methods until ctx ends, on one of the endpoints' CPUs.
func watchBooks(ctx context.Context, router, endpoints []int) func() gap {
	var wg sync.WaitGroup
	var total gap
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread, bound to its CPUs, ends with the goroutine
		bind(endpoints)
		last := look(router)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lookTime):
			}
			now := look(router)
			total.add(last, now, len(router))
			last = now
		}
	})
	return func() gap { wg.Wait(); return total }
}

// bind binds the calling thread to CPUs. On failure it stays where it was.
func bind(cpus []int) {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	_ = unix.SchedSetaffinity(0, &set)
}

// look reads the accounts now. A thread that ends meanwhile is left out.
func look(router []int) books {
	b := books{at: time.Now(), threads: map[int]account{}}
	for _, tid := range routerThreads() {
		sched, err1 := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", tid))
		stat, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tid))
		exact, err3 := meter.ParseSchedstat(sched)
		ticks, err4 := parseTicks(stat)
		if errors.Join(err1, err2, err3, err4) == nil {
			b.threads[tid] = account{exact.RunNs, ticks}
		}
	}
	if raw, err := os.ReadFile("/proc/stat"); err == nil {
		if _, cpus, err := meter.ParseProcStat(bytes.NewReader(raw)); err == nil {
			for cpu, s := range cpus {
				if slices.Contains(router, cpu) {
					idle := s.Idle + s.IOWait + s.Steal
					b.busy, b.idle = b.busy+s.Total()-idle, b.idle+idle
				}
			}
		}
	}
	return b
}

func routerThreads() (tids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if comm, err := os.ReadFile("/proc/" + e.Name() + "/comm"); err == nil && routerThread.Match(comm) {
			tids = append(tids, tid)
		}
	}
	return tids
}

// parseTicks reads utime + stime, fields 14 and 15, from /proc/PID/stat (proc_pid_stat(5)).
func parseTicks(b []byte) (int64, error) {
	end := bytes.LastIndexByte(b, ')')
	f := bytes.Fields(b[end+1:]) // f[0] is field 3
	if end < 0 || len(f) < 13 {
		return 0, errors.New("stat: want at least 15 fields")
	}
	u, err1 := strconv.ParseInt(string(f[11]), 10, 64)
	s, err2 := strconv.ParseInt(string(f[12]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, fmt.Errorf("stat: %w", err)
	}
	return u + s, nil
}

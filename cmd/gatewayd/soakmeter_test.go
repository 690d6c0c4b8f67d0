// The meter of the soak test (soak_test.go): it samples figures of the daemon and the kernel, such as memory and table
// sizes.

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/procfs"
	"gonum.org/v1/gonum/stat"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// How often a meter samples the figures, and how often it prints their medians.
const (
	sampleEach = 5 * time.Second
	lineEach   = time.Minute
)

// figures are measured values of the daemon and the kernel, such as memory and table sizes, by name.
type figures map[string]float64

// meter samples the daemon's figures until finish, and prints the medians of each minute.
type meter struct {
	s       *soak
	stop    chan struct{}
	working sync.WaitGroup
	minutes []figures // medians
}

// meter starts a meter.
func (s *soak) meter() *meter {
	m := &meter{s: s, stop: make(chan struct{})}
	s.measured = m
	m.working.Go(m.run)
	return m
}

// finish stops the meter.
func (m *meter) finish() { close(m.stop); m.working.Wait() }

func (m *meter) run() {
	samples := []figures{}
	for next := m.s.began.Add(lineEach); ; {
		select {
		case <-m.stop:
			return
		case <-time.After(sampleEach):
		}
		f, err := m.s.readFigures()
		if err != nil {
			m.s.fault("reading the daemon's figures: %v", err)
			return
		}
		samples = append(samples, f)
		if time.Now().Before(next) {
			continue
		}
		next = next.Add(lineEach)
		median := medians(samples)
		m.s.tables(median)
		m.minutes = append(m.minutes, median)
		m.print(median)
		samples = nil
	}
}

// medians returns the median of each figure.
func medians(samples []figures) figures {
	out := figures{}
	for name := range samples[0] {
		var all []float64
		for _, f := range samples {
			all = append(all, f[name])
		}
		slices.Sort(all)
		out[name] = all[len(all)/2]
	}
	return out
}

// readFigures reads the daemon's memory, files and CPU time, the number of its sessions and clients, and the kernel's
// number of connections.
func (s *soak) readFigures() (figures, error) {
	f := figures{}
	dir := fmt.Sprintf("/proc/%d/", s.daemon.cmd.Process.Pid)
	const kiB = 1.024e-3 // MB
	err := errors.Join(f.fields(dir+"smaps_rollup", map[string]string{"Pss:": "PSS MB", "Rss:": "RSS MB",
		"Private_Dirty:": "dirty MB"}, kiB),
		f.fields(dir+"status", map[string]string{"Threads:": "threads"}, 1))
	fds, bad := os.ReadDir(dir + "fd")
	f["fds"] = float64(len(fds))
	st, worse := s.status()
	if err = errors.Join(err, bad, worse); err != nil {
		return nil, err
	}
	f["logged in"] = float64(st.Sessions[session.Authenticated])
	f["clients"] = f["logged in"] + float64(st.Sessions[session.PreAuth]+st.Sessions[session.Leased])
	f["leases"], f["outbox"] = float64(st.Leases), float64(st.Outbox)
	if err := s.metrics(f); err != nil {
		return nil, err
	}
	f["outside heap MB"] = f["PSS MB"] - f["heap in use MB"] - f["heap idle MB"] + f["heap given back MB"]
	servers := []int{s.auth.process.cmd.Process.Pid, s.acct.process.cmd.Process.Pid}
	processes := map[string][]int{
		"CPU s": {s.daemon.cmd.Process.Pid}, "CPU s of RADIUS": servers, "CPU s of clients": {os.Getpid()}}
	for name, pids := range processes {
		for _, pid := range pids {
			used, err := cpuSeconds(pid)
			if err != nil {
				return nil, err
			}
			f[name] += used
		}
	}
	return f, s.inHostErr("router", func() error {
		count, err := os.ReadFile("/proc/thread-self/net/stat/nf_conntrack")
		if err != nil {
			return err
		}
		lines := strings.Split(string(count), "\n")
		n, err := strconv.ParseUint(strings.Fields(lines[1])[0], 16, 64)
		f["conntrack"] = float64(n)
		return err
	})
}

// cpuSeconds returns the CPU time that a process has used.
func cpuSeconds(pid int) (float64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	used, err := p.Stat()
	return used.CPUTime(), err
}

// fields reads lines of a word and a number from one of the kernel's files. names has the figure for each word; numbers
// are multiplied by unit.
func (f figures) fields(path string, names map[string]string, unit float64) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) > 1 && names[words[0]] != "" {
			n, err := strconv.ParseFloat(words[1], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			f[names[words[0]]] = n * unit
		}
	}
	return nil
}

// runtimeFigures are metrics of Go's runtime, and their figures' names.
var runtimeFigures = map[string]string{
	"go_memstats_heap_alloc_bytes": "heap MB", "go_memstats_next_gc_bytes": "heap goal MB",
	"go_memstats_heap_inuse_bytes": "heap in use MB",
	"go_memstats_heap_idle_bytes":  "heap idle MB", "go_memstats_heap_released_bytes": "heap given back MB",
	"go_memstats_stack_inuse_bytes": "stacks MB", "go_goroutines": "goroutines", "go_memstats_heap_objects": "objects",
}

// metrics reads the daemon's metrics of Go's runtime, as Prometheus does.
func (s *soak) metrics(f figures) error {
	var conn net.Conn
	if err := s.inHostErr("router", func() (err error) {
		conn, err = net.DialTimeout("tcp4", "127.0.0.1:9464", soakWait)
		return err
	}); err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(soakWait))
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		as, unit := runtimeFigures[name], 1.0
		if as == "" {
			continue
		}
		if strings.HasSuffix(as, "MB") {
			unit = 1e-6
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("metric %s: %w", name, err)
		}
		f[as] = n * unit
	}
	return nil
}

// tables counts the entries of the data path's eBPF maps, except arrays, and the bytes of the state's files.
func (s *soak) tables(f figures) {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", s.daemon.cmd.Process.Pid))
	if err != nil || len(infos) == 0 {
		s.fault("the daemon's files: %v", err)
		return
	}
	for _, info := range infos {
		current := figures{}
		if current.fields(info, map[string]string{"map_id:": "id"}, 1) != nil || current["id"] == 0 {
			continue // not a map, or closed meanwhile
		}
		if m, err := ebpf.NewMapFromID(ebpf.MapID(current["id"])); err == nil {
			if mapInfo, err := m.Info(); err == nil && keyed[m.Type()] != "" {
				f[keyed[m.Type()]+" "+mapInfo.Name] = float64(entries(m))
			}
			m.Close()
		}
	}
	_ = filepath.Walk(filepath.Join(s.Dir, "state"), func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			f["file "+filepath.Base(path)+" kB"] = float64(info.Size()) / 1000
		}
		return nil
	})
}

// keyed has the kinds of maps whose entries come and go, with their names in figures. A cache fills up, with memory
// that it has from the start: the kernel then replaces the entry that was used longest ago.
var keyed = map[ebpf.MapType]string{
	ebpf.Hash: "table", ebpf.PerCPUHash: "table", ebpf.LPMTrie: "table", ebpf.HashOfMaps: "table",
	ebpf.LRUHash: "cache", ebpf.LRUCPUHash: "cache",
}

// entries counts a map's keys, approximately: others may be added or removed meanwhile.
func entries(m *ebpf.Map) (n int) {
	var key any // nil: the first one
	for n < int(m.MaxEntries()) {
		next, err := m.NextKeyBytes(key)
		if err != nil || next == nil {
			return n
		}
		key = next
		n++
	}
	return n
}

// print prints a minute's line.
func (m *meter) print(f figures) {
	line := fmt.Sprintf("minute %2d:", len(m.minutes))
	first := []string{"PSS MB", "RSS MB", "outside heap MB", "heap goal MB", "heap MB", "fds", "threads", "goroutines",
		"logged in", "clients", "leases",
		"conntrack", "CPU s", "CPU s of RADIUS", "CPU s of clients"}
	for _, name := range first {
		line += fmt.Sprintf(" %s %.4g,", name, f[name])
	}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !slices.Contains(first, name) {
			line += fmt.Sprintf(" %s %.4g,", name, f[name])
		}
	}
	m.s.mu.Lock()
	fmt.Printf("%s sessions %d, faults %d\n", line, len(m.s.sessions), len(m.s.faults))
	m.s.mu.Unlock()
}

// warmUpMinutes is the minute from which on the daemon's memory and tables are expected not to grow.
const warmUpMinutes = 10

// growth returns how much a figure grew from warmUpMinutes to the end, by linear regression, and its mean.
func (m *meter) growth(name string) (grown, mean float64) {
	var at, current []float64
	for i, f := range m.minutes[warmUpMinutes:] {
		at, current = append(at, float64(i)), append(current, f[name])
	}
	_, slope := stat.LinearRegression(at, current, nil, false)
	return slope * float64(len(current)-1), stat.Mean(current, nil)
}

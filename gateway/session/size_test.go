// Tests of the memory that many clients need. keyOf(i) is the key of client i, openTable opens a table in a file
// (memory_test.go); child runs a test in a process of its own (file_test.go).

package session_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// countingPath is a data path that stores nothing, and whose clients are always sending.
type countingPath struct{ packets atomic.Uint64 }

var _ datapath.Datapath = (*countingPath)(nil)

func (*countingPath) Set(datapath.Client) error          { return nil }
func (*countingPath) Remove(datapath.ID) error           { return nil }
func (*countingPath) Open(netip.Prefix, time.Time) error { return nil }
func (*countingPath) Close() error                       { return nil }
func (d *countingPath) Counters(datapath.ID) (datapath.Counters, error) {
	n := d.packets.Add(1)
	return datapath.Counters{UpBytes: 1000 * n, UpPackets: n, Seen: time.Now()}, nil
}

const crowd = 100_000 / raceFactor

// TestMemoryOfManyClients: 100,000 authenticated clients whose start events are not accounted take less than 150 MB
// with the file's mapped pages: after their logins, after all counts were saved, and after the file was opened again.
// Each case runs in a process of its own.
func TestMemoryOfManyClients(t *testing.T) {
	const variable, allowed = "GATEWEIGH_TEST_CROWD", 150 * raceFactor // the race detector's shadow memory is not ours
	if path := os.Getenv(variable); path != "" {
		measureCrowd(t, path, allowed)
		return
	}
	path := filepath.Join(t.TempDir(), "s.db")
	for _, phase := range []string{"logged in and saved", "read again and saved"} {
		out, err := child(t, t.Name(), variable+"="+path).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%s: %v", phase, err)
		}
		t.Logf("%s: %s", phase, out)
	}
}

func measureCrowd(t *testing.T, path string, allowedMB float64) {
	before := residentMB(t)
	table := openTable(t, path, &countingPath{})
	if table.Pending() == 0 {
		fillTable(t, table, crowd)
	}
	filled := residentMB(t) - before
	if n := table.Pending(); n != crowd {
		t.Errorf("%d events are pending, want %d", n, crowd)
	}
	var heap runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&heap)
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	saved := residentMB(t) - before
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("resident: %.0f MB more, %.0f MB after the counts were saved; heap %.0f MB, file %.0f MB",
		filled, saved, float64(heap.HeapAlloc)/1e6, float64(info.Size())/1e6)
	if max(filled, saved) >= allowedMB {
		t.Errorf("%d sessions take more than %.0f MB", crowd, allowedMB)
	}
}

// residentMB is the process's VmRSS, in 10⁶ bytes.
func residentMB(t *testing.T) float64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	var kiB float64
	if _, err := fmt.Sscanf(string(rest), "%g kB", &kiB); err != nil {
		t.Fatal(err)
	}
	return kiB * 1024 / 1e6
}

func someLogin(i int) session.Login {
	return session.Login{
		User: fmt.Sprintf("user%06d@example.net", i), Class: [][]byte{bytes.Repeat([]byte{byte(i)}, 32)},
		Limits: session.Limits{SessionTimeout: 8 * time.Hour, IdleTimeout: time.Hour, Interim: 10 * time.Minute,
			DownBytes: 1 << 40, UpBps: 1e7, DownBps: 1e8},
	}
}

// fillTable leases to and admits n clients, from as many goroutines as a busy portal has.
func fillTable(t testing.TB, table *session.Table, n int) {
	t.Helper()
	var next atomic.Int64
	inParallel(t, 512, func() error {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			if err := table.Lease(keyOf(i), fmt.Sprintf("phone-%06d", i), time.Now().Add(12*time.Hour)); err != nil {
				return err
			}
			if _, err := table.Admit(keyOf(i).Addr, someLogin(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// inParallel runs work n times at once, and fails the test on the first error.
func inParallel(t testing.TB, n int, work func() error) {
	t.Helper()
	errs := make([]error, n)
	var workers sync.WaitGroup
	for i := range n {
		workers.Go(func() { errs[i] = work() })
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkDurable counts the changes of 100 goroutines that each wait for the disk.
func BenchmarkDurable(b *testing.B) {
	for name, op := range map[string]func(table *session.Table, i int) error{
		"Lease": func(table *session.Table, i int) error {
			return table.Lease(keyOf(i%crowd), "phone", time.Now().Add(time.Duration(i+1)*time.Second))
		},
		"Admit": func(table *session.Table, i int) error {
			_, err := table.Admit(keyOf(i%10_000).Addr, someLogin(i))
			return err
		},
		"AdmitAndEnd": func(table *session.Table, i int) error {
			addr := keyOf(i % 10_000).Addr
			_, err := table.Admit(addr, someLogin(i))
			if err == nil {
				_, err = table.End(addr, session.UserRequest)
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			table := openTable(b, filepath.Join(b.TempDir(), "s.db"), &countingPath{})
			if name != "Lease" {
				fillTable(b, table, 10_000)
			}
			var next atomic.Int64
			b.ResetTimer()
			inParallel(b, 100, func() error {
				for i := int(next.Add(1)) - 1; i < b.N; i = int(next.Add(1)) - 1 {
					if err := op(table, i); err != nil && !errors.Is(err, session.ErrNoSession) {
						return err
					}
				}
				return nil
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}

// BenchmarkSingleCaller measures one caller's wait, with many clients in the table.
func BenchmarkSingleCaller(b *testing.B) {
	table := openTable(b, filepath.Join(b.TempDir(), "s.db"), &countingPath{})
	fillTable(b, table, crowd)
	addr := keyOf(crowd / 2).Addr
	b.Run("Get", func(b *testing.B) {
		for b.Loop() {
			table.Get(addr)
		}
	})
	b.Run("Lease", func(b *testing.B) {
		for n := 1; b.Loop(); n++ {
			if err := table.Lease(keyOf(crowd/2), "phone", time.Now().Add(time.Duration(n)*time.Hour)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("AdmitAndEnd", func(b *testing.B) {
		for b.Loop() {
			if _, err := table.Admit(addr, someLogin(1)); err != nil {
				b.Fatal(err)
			}
			if _, err := table.End(addr, session.UserRequest); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Each", func(b *testing.B) {
		for b.Loop() {
			for range table.Each {
			}
		}
	})
}

// Tests and benchmarks of Save, which writes the counts of all sessions to disk every minute. countingPath, crowd and
// fillTable (size_test.go) are a data path that stores nothing, a number of clients, and the function that logs them
// in.

package session_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// senders is a data path whose clients send packets when the test says so.
type senders struct {
	countingPath
	sent   [crowd]atomic.Uint64
	marks  [crowd]uint64
	reads  atomic.Int64
	broken atomic.Bool
}

func (d *senders) Counters(id datapath.ID) (datapath.Counters, error) {
	d.reads.Add(1)
	if d.broken.Load() {
		return datapath.Counters{}, errors.New("broken")
	}
	n := d.sent[id-datapath.IDOf(keyOf(0).Addr)].Load()
	return datapath.Counters{UpBytes: 1000 * n, UpPackets: n}, nil
}

// Moved calls f with the clients that have sent.
func (d *senders) Moved(f func(datapath.ID)) error {
	for i := range d.sent {
		if n := d.sent[i].Load(); n != d.marks[i] {
			d.marks[i] = n
			f(datapath.IDOf(keyOf(i).Addr))
		}
	}
	return nil
}

// TestMinutelySave: Save reads only sessions that have traffic, and saves again what failed. Long: the steps of one
// run, each of which needs the state that the one before left.
func TestMinutelySave(t *testing.T) {
	const clients = 200
	dp := &senders{}
	table := openTable(t, filepath.Join(t.TempDir(), "s.db"), dp)
	table.CountedSince(dp.Moved)
	fillTable(t, table, clients)
	save := func(reads int64) {
		t.Helper()
		before := dp.reads.Load()
		if err := table.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := dp.reads.Load() - before; n != reads {
			t.Errorf("%d readings of counters, want %d", n, reads)
		}
	}
	onDisk := func(i int, want uint64) {
		t.Helper()
		for range 3000 {
			all, err := table.OnDisk()
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				if s.Key == keyOf(i) && s.UpPackets == want && s.UpBytes == 1000*want {
					return
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("client %d is not on the disk with %d packets", i, want)
	}
	save(0)
	dp.sent[7].Add(5)
	dp.sent[clients-1].Add(3)
	dp.sent[clients].Add(1) // nobody's
	save(4)                 // of two sessions: whether to write, and what
	onDisk(7, 5)
	onDisk(clients-1, 3)
	save(0)
	dp.sent[7].Add(1)
	dp.broken.Store(true)
	save(1)
	dp.broken.Store(false)
	save(2)
	onDisk(7, 6)
	save(0)
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if err := table.Save(t.Context()); !errors.Is(err, session.ErrClosed) {
		t.Errorf("saving a closed table: %v", err)
	}
}

// BenchmarkMinute measures the CPU time of Save with 100,000 sessions, some of which have sent packets, until the
// counts are on the disk. It measures data paths that tell which clients have sent, and those that do not.
func BenchmarkMinute(b *testing.B) {
	for _, way := range []string{"each", "moved"} {
		all := &senders{}
		table := openTable(b, filepath.Join(b.TempDir(), "s.db"), all)
		if way == "moved" {
			table.CountedSince(all.Moved)
		}
		fillTable(b, table, crowd)
		for _, active := range []int{0, crowd / 100, crowd} {
			b.Run(fmt.Sprint(way, " ", active, " active"), func(b *testing.B) {
				began := cpuTime(b)
				for b.Loop() {
					for i := range active {
						all.sent[i*(crowd/max(active, 1))].Add(1)
					}
					if err := table.Save(b.Context()); err != nil {
						b.Fatal(err)
					}
					for table.Saving() {
						time.Sleep(time.Millisecond)
					}
				}
				b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/1000/float64(b.N), "cpu-ms/minute")
			})
		}
	}
}

// cpuTime returns the CPU time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

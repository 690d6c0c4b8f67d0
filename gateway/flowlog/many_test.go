// Tests of a log with 1,000,000 flows. writer makes a log without the kernel's reports; start runs one with them, and
// holders tells which user has a client's address (log_test.go).

package flowlog

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSearchMillionFlows writes 1,000,000 flows, of which 16 share each port. It searches for flows alternately by the
// client's address and by the outer one: for each 499th flow, or for every flow with FLOWLOG_EVERY=1. Long: the steps
// of one run, each of which needs the state that the one before left.
func TestSearchMillionFlows(t *testing.T) {
	const flows = 1_000_000
	step := 499
	if os.Getenv("FLOWLOG_EVERY") != "" {
		step = 1
	}
	folder := t.TempDir()
	log := writer(t, folder)
	for i := range flows {
		flow := numbered(i)
		flow.Event, flow.End = Begins, time.Time{}
		log.add(flow, true, false)
		flow = numbered(i)
		log.add(flow, false, true)
		if i%10_000 == 9_999 {
			log.flush(time.Now())
		}
	}
	if stats := log.Stats(); stats.Started != flows || stats.Ended != flows || stats.Lost != 0 {
		t.Fatalf("%+v", stats)
	}
	must(t, log.out.Close())
	must(t, tidy(context.Background(), log.cfg, "", time.Now()))
	files, err := segments(folder)
	must(t, err)
	var size int64
	for _, file := range files {
		if size += file.bytes; !file.packed {
			t.Errorf("%s is not packed", file.base)
		}
	}
	t.Logf("%d files, %.1f bytes a flow", len(files), float64(size)/flows)
	began := time.Now()
	var next, found atomic.Int64
	var asking sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		asking.Go(func() {
			for i := int(next.Add(int64(step))) - step; i < flows && !t.Failed(); i = int(next.Add(int64(step))) - step {
				want := numbered(i)
				key := want.keys()[i%2]
				current, err := FindFlows(folder, key, want.Start.Add(time.Second))
				if err != nil || len(current.Flows) != 1 || current.Flows[0] != want || current.Damaged+current.Slow > 0 {
					t.Errorf("flow %d by %s: %+v, %v, not %+v", i, key, current, err, want)
					return
				}
				if n := found.Add(1); n%50_000 == 0 {
					t.Logf("found %d of %d, %.0f a second", n, flows/step, float64(n)/time.Since(began).Seconds())
				}
			}
		})
	}
	asking.Wait()
	if n, asked := found.Load(), int64((flows-1)/step+1); n != asked {
		t.Errorf("found %d of %d", n, asked)
	} else {
		t.Logf("found %d of %d in %v, %.0f a second", n, asked, time.Since(began).Round(time.Second),
			float64(n)/time.Since(began).Seconds())
	}
}

// TestSearchReadsLittle: a search in an index of many entries finds its entries and reads only a few runs, also when
// hashes are spread unevenly.
func TestSearchReadsLittle(t *testing.T) {
	const entries, flows = 300_000, 1000
	for name, spread := range map[string]func(i int) uint32{
		"evenly":     func(i int) uint32 { return uint32(i) * 2_654_435_761 },
		"at one end": func(i int) uint32 { return uint32(i) * 7 },
	} {
		var index indexer
		var file bytes.Buffer
		index.offsets = make([]uint64, flows+1)
		for i := range index.offsets {
			index.offsets[i] = uint64(i)
		}
		for i := range entries {
			index.entries = append(index.entries, entry{spread(i), uint32(i % flows)})
		}
		for i := range flows {
			index.entries = append(index.entries, entry{hash(numbered(i).Client), uint32(i)})
		}
		must(t, index.write(&file))
		for i := range flows {
			reads := &readings{Reader: bytes.NewReader(file.Bytes())}
			opened, err := openIndex(reads, int64(file.Len()), flows)
			must(t, err)
			present := false
			must(t, opened.search(numbered(i).Client, func(from, _ int64) error {
				present = present || from == int64(i)
				return nil
			}))
			if limit := map[string]int{"evenly": 10, "at one end": 40}[name]; !present || reads.n > limit {
				t.Fatalf("%s: flow %d: found %v, by %d reads of %d bytes", name, i, present, reads.n, reads.bytes)
			}
		}
	}
}

// readings counts the reads of a file, and their bytes.
type readings struct {
	*bytes.Reader
	n, bytes int
}

func (r *readings) ReadAt(b []byte, at int64) (int, error) {
	r.n, r.bytes = r.n+1, r.bytes+len(b)
	return r.Reader.ReadAt(b, at)
}

// numbered returns the i-th of 1,000,000 different flows.
func numbered(i int) Flow {
	start := time.Date(2026, 3, 1, 0, 0, 0, i, time.UTC).Add(time.Duration(i) * 100 * time.Microsecond)
	port := uint16(1024 + i%62_500)
	return Flow{
		Event: Ends, Start: start, End: start.Add(2 * time.Second), Protocol: 17,
		Client:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / 62_500), byte(2 + i%200)}), port),
		Outside: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i / 62_500)}), port),
		Peer:    netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(i)}), 443),
		MAC:     "02:00:00:00:00:09", User: "user" + string(rune('a'+i%26)), Session: "5f3c2a7e00000001", UpBytes: uint64(i),
		UpPkts: 3, DownBytes: 1 << 20, DownPkts: 700,
	}
}

// writer makes a log that writes files, without the kernel's reports.
func writer(t testing.TB, folder string) *Log {
	t.Helper()
	cfg := config(folder, &holders{})
	log := &Log{cfg: cfg, open: map[connID]openFlow{}, wake: make(chan struct{}, 1)}
	var err error
	log.out, err = create(folder, time.Now())
	must(t, err)
	t.Cleanup(func() { log.out.Close() })
	return log
}

// TestRetention: tidy removes the oldest files by age and by size. The current file stays.
func TestRetention(t *testing.T) {
	folder := t.TempDir()
	log := writer(t, folder)
	for i := range 4 {
		log.add(numbered(i), false, true)
		log.flush(time.Now())
		must(t, log.rotate(time.Now()))
	}
	names := func() []segment {
		all, err := segments(folder)
		must(t, err)
		return all
	}
	must(t, tidy(context.Background(), log.cfg, log.out.base, time.Now()))
	all := names()
	if len(all) != 5 || !all[0].packed || all[4].packed {
		t.Fatalf("%+v", all)
	}
	old := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(all[0].path(), old, old))
	must(t, tidy(context.Background(), log.cfg, log.out.base, time.Now()))
	if now := names(); len(now) != 4 || now[0].base != all[1].base {
		t.Errorf("after a day: %+v", now)
	}
	log.cfg.MaxBytes = uint64(all[1].bytes * 2)
	must(t, tidy(context.Background(), log.cfg, log.out.base, time.Now()))
	if now := names(); len(now) != 3 || now[0].base != all[2].base {
		t.Errorf("beyond the size: %+v", now)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(left) != 5 {
		t.Errorf("left: %v, %v", left, err)
	}
}

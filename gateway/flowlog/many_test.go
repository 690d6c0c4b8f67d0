// Tests of a log with many flows. writer makes a log without the kernel's reports; start runs one with them, and
// holders tells which user has a client's address (log_test.go).

package flowlog

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// sharers is how many flows share each port in a log that manyFlows writes.
const sharers = 16

// TestSearchManyFlows searches 48,000 flows in several files, of which 16 share each port, alternately by the client's
// address and by the outer one.
func TestSearchManyFlows(t *testing.T) {
	defer func(before int64) { rotateSize = before }(rotateSize)
	rotateSize = 4 << 20
	const ports, step = 3000, 31
	folder, files := manyFlows(t, ports)
	if files < 4 {
		t.Errorf("%d files, want several", files)
	}
	var searching sync.WaitGroup
	for first := range 2 { // searches share buffers
		searching.Go(func() {
			for i := first * step; i < sharers*ports && !t.Failed(); i += 2 * step {
				searchFlow(t, folder, i, ports)
			}
		})
	}
	searching.Wait()
}

// BenchmarkSearchMillionFlows is TestSearchManyFlows with 1,000,000 flows, and files as large as a gateway's. An
// operation is a search.
func BenchmarkSearchMillionFlows(b *testing.B) {
	folder, _ := manyFlows(b, mostPorts)
	b.Run("search", func(b *testing.B) { // in a benchmark of its own: the log is written once
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				searchFlow(b, folder, int(next.Add(499))%(sharers*mostPorts), mostPorts)
			}
		})
	})
}

// manyFlows writes sharers flows for each of a number of ports to a log, whose files it then packs.
func manyFlows(t testing.TB, ports int) (folder string, files int) {
	t.Helper()
	folder = t.TempDir()
	log, flows := writer(t, folder), sharers*ports
	for i := range flows {
		flow := sharing(i, ports)
		flow.Event, flow.End = Begins, time.Time{}
		log.add(flow, true, false)
		log.add(sharing(i, ports), false, true)
		if i%2000 == 1999 {
			log.flush(time.Now())
		}
	}
	log.flush(time.Now())
	if stats := log.Stats(); stats.Started != uint64(flows) || stats.Ended != uint64(flows) || stats.Lost != 0 {
		t.Fatalf("%+v", stats)
	}
	must(t, log.out.Close())
	must(t, tidy(context.Background(), log.cfg, "", time.Now()))
	all, err := segments(folder)
	must(t, err)
	var size int64
	for _, file := range all {
		if size += file.bytes; !file.packed {
			t.Errorf("%s is not packed", file.base)
		}
	}
	t.Logf("%d files, %.1f bytes a flow", len(all), float64(size)/float64(flows))
	return folder, len(all)
}

// searchFlow searches for the i-th flow of manyFlows. It has to find that alone, by the index of each file.
func searchFlow(t testing.TB, folder string, i, ports int) {
	t.Helper()
	want := sharing(i, ports)
	key := want.keys()[i%2]
	got, err := FindFlows(folder, key, want.Start.Add(time.Second))
	if err != nil || len(got.Flows) != 1 || got.Flows[0] != want || got.Damaged+got.Slow > 0 {
		t.Errorf("flow %d by %s: %+v, %v, not %+v", i, key, got, err, want)
	}
}

// sharing returns the i-th of flows from a number of ports, each of which comes again after all others.
func sharing(i, ports int) Flow { return numbered(i/ports*mostPorts + i%ports) }

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

// mostPorts is the number of ports of numbered's flows.
const mostPorts = 62_500

// numbered returns the i-th of 1,000,000 different flows.
func numbered(i int) Flow {
	start := time.Date(2026, 3, 1, 0, 0, 0, i, time.UTC).Add(time.Duration(i) * 100 * time.Microsecond)
	port := uint16(1024 + i%mostPorts)
	return Flow{
		Event: Ends, Start: start, End: start.Add(2 * time.Second), Protocol: 17,
		Client:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i / mostPorts), byte(2 + i%200)}), port),
		Outside: netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i / mostPorts)}), port),
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

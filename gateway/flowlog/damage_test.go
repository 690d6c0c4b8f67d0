// Tests of damaged files, a full disk, lost reports and a crash. newWorld makes a client and a server with this
// namespace as a masquerading router between them; start runs a log in a folder, and whois searches it until it finds a
// flow (log_test.go). writer makes a log without the kernel's reports, and numbered(i) is the i-th of many different
// flows (many_test.go).

package flowlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// writeFlows writes the ends of numbered flows into a file, closes it, and packs it if packed is set. It returns the
// file's path without the ending.
func writeFlows(t testing.TB, folder string, flows int, packed bool) string {
	t.Helper()
	log := writer(t, folder)
	for i := range flows {
		log.add(numbered(i), true, true)
	}
	log.flush(time.Now())
	must(t, log.out.Close())
	if packed {
		must(t, pack(log.out.base))
	}
	return log.out.base
}

// countFlows returns the number of the numbered flows that a log has, and the last result. It checks that flows are
// whole.
func countFlows(t testing.TB, folder string, flows int) (present int, last Found) {
	t.Helper()
	for i := range flows {
		want := numbered(i)
		f, err := FindFlows(folder, want.keys()[i%2], want.Start.Add(time.Second))
		if err != nil && !errors.Is(err, ErrTooOld) {
			t.Fatal(err)
		}
		if len(f.Flows) > 0 {
			if len(f.Flows) != 1 || f.Flows[0] != want {
				t.Fatalf("flow %d is %+v", i, f.Flows)
			}
			present++
		}
		last = f
	}
	return present, last
}

// TestTornFile: in a file that ends in the middle of a line, as after a power failure, FindFlows finds all whole lines
// and counts the torn one as damaged. The file can be packed.
func TestTornFile(t *testing.T) {
	const flows = 3
	folder := t.TempDir()
	base := writeFlows(t, folder, flows, false)
	whole, err := os.ReadFile(base + plainEnd)
	must(t, err)
	ends := []int{0}
	for i, c := range whole {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	for cut := range whole {
		complete := 0
		for _, e := range ends {
			if e > 0 && e <= cut {
				complete++
			}
		}
		torn := ends[complete] != cut
		must(t, os.WriteFile(base+plainEnd, whole[:cut], 0o600))
		if present, last := countFlows(t, folder, flows); present != complete || last.Damaged > 0 != torn {
			t.Fatalf("cut at %d of %d: %d flows of %d are there, %d damaged", cut, len(whole), present, complete, last.Damaged)
		}
		if cut%97 != 0 {
			continue
		}
		must(t, pack(base))
		if present, _ := countFlows(t, folder, flows); present != complete {
			t.Fatalf("cut at %d and packed: %d flows of %d are there", cut, present, complete)
		}
		must(t, errors.Join(os.Remove(base+packedEnd), os.Remove(base+indexEnd)))
	}
}

// TestDamagedPack: in a packed file that is cut or overwritten, FindFlows finds the blocks before the damage. A damaged
// index only makes it slower.
func TestDamagedPack(t *testing.T) {
	const flows = 3 * blockLines
	folder := t.TempDir()
	base := writeFlows(t, folder, flows, true)
	whole, err := os.ReadFile(base + packedEnd)
	must(t, err)
	index, err := os.ReadFile(base + indexEnd)
	must(t, err)
	const asked = flows / 32
	all, _ := countFlows(t, folder, asked)
	for _, cut := range []int{0, 5, len(whole) / 2, len(whole) - 1} {
		must(t, os.WriteFile(base+packedEnd, whole[:cut], 0o600))
		present, last := countFlows(t, folder, asked)
		if last.Damaged == 0 || last.Slow != 1 || cut >= len(whole)/2 && present != all {
			t.Errorf("cut at %d of %d: %d of %d flows, %+v", cut, len(whole), present, all, last)
		}
	}
	other := bytes.Clone(whole)
	copy(other[2*len(other)/3:], make([]byte, 100))
	must(t, os.WriteFile(base+packedEnd, other, 0o600))
	if present, _ := countFlows(t, folder, asked); present != all {
		t.Errorf("overwritten further on: %d of %d flows", present, all)
	}
	must(t, os.WriteFile(base+packedEnd, whole, 0o600))
	for _, cut := range []int{0, 7, headBytes, len(index) / 2, len(index) - 1} {
		must(t, os.WriteFile(base+indexEnd, index[:cut], 0o600))
		if present, last := countFlows(t, folder, 20); present != 20 || last.Slow != 1 || last.Damaged > 0 {
			t.Errorf("with %d bytes of the index: %d of 20 flows, %+v", cut, present, last)
		}
	}
}

// TestFullDisk: lines wait while the disk is full, and are written once there is room. When too many wait, each lost
// line is counted.
func TestFullDisk(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "full")
	must(t, os.Mkdir(folder, 0o700))
	must(t, unix.Mount("none", folder, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { unix.Unmount(folder, unix.MNT_DETACH) })
	log := writer(t, folder)
	added := 0
	batch := func(n int) {
		for range n {
			log.add(numbered(added), true, true)
			added++
		}
		log.flush(time.Now())
	}
	for log.waiting == 0 {
		batch(100)
	}
	batch(500)
	if stats := log.Stats(); stats.Lost != 0 || log.waiting < 500 {
		t.Fatalf("%d lines wait, %+v", log.waiting, stats)
	}
	room := func(size string) { must(t, unix.Mount("none", folder, "tmpfs", unix.MS_REMOUNT, "size="+size)) }
	room("1m")
	log.flush(time.Now())
	if present, last := countFlows(t, folder, added); present != added || last.Damaged > 0 || log.waiting != 0 {
		t.Fatalf("with room again: %d of %d flows, %d wait, %+v", present, added, log.waiting, last)
	}
	for log.Stats().Lost == 0 {
		batch(20_000)
	}
	lost := log.Stats().Lost
	room("1g")
	log.flush(time.Now())
	if lines := countLines(t, folder); uint64(lines)+lost != uint64(added) || log.Stats().Lost != lost {
		t.Errorf("of %d lines %d are there and %d are counted as lost", added, lines, lost)
	}
}

func countLines(t testing.TB, folder string) int {
	t.Helper()
	n, err := strconv.Atoi(run(t, "cat "+folder+"/*.ndjson | wc -l"))
	must(t, err)
	return n
}

// TestOverflow: when the buffer for the kernel's reports overflows, the log records all connections and their ends, and
// counts the overflow.
func TestOverflow(t *testing.T) {
	defer func(before int) { bufferBytes = before }(bufferBytes)
	bufferBytes = 16 << 10
	w, p, folder := newWorld(t), &holders{}, t.TempDir()
	p.set("ann")
	run(t, "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600")
	log, err := Open(config(folder, p)) // nobody reads yet
	must(t, err)
	const flows = 1000
	socket := w.udp(t)
	for i := range flows {
		send(t, socket, 1000+i)
	}
	tracked := func() int {
		n, err := strconv.Atoi(run(t, "cat /proc/sys/net/netfilter/nf_conntrack_count"))
		must(t, err)
		return n
	}
	netnstest.Await(t, "all connections", func() error {
		if n := tracked(); n < flows {
			return fmt.Errorf("%d of %d", n, flows)
		}
		return nil
	})
	before := uint64(tracked())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- log.Run(ctx) }()
	stats := func(label string, ok func(Stats) bool) {
		netnstest.Await(t, label, func() error {
			if s := log.Stats(); !ok(s) {
				return fmt.Errorf("%+v of %d", s, before)
			}
			return nil
		})
	}
	stats("all beginnings", func(s Stats) bool { return s.Missed > 0 && s.Started >= before })
	flushConnections(t) // more ends at once than fit into the buffer
	stats("all ends", func(s Stats) bool { return s.Ended >= before })
	cancel()
	must(t, <-ended)
	must(t, log.Close())
	if s := log.Stats(); s.Started != before || s.Ended != before || s.Lost != 0 {
		t.Errorf("the kernel had %d connections; %+v", before, s)
	}
}

// TestCrash: flushed lines are there after a crash, and the next log records the start of connections that exist.
func TestCrash(t *testing.T) {
	w, p, folder := newWorld(t), &holders{}, t.TempDir()
	p.set("ann")
	run(t, "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600")
	first, _ := start(t, config(folder, p))
	socket := w.udp(t)
	address := fmt.Sprintf("10.1.0.9:%d", socket.LocalAddr().(*net.UDPAddr).Port)
	send(t, socket, 1000)
	whois(t, folder, address, time.Now(), func(flow Flow) bool { return flow.Peer.Port() == 1000 })
	send(t, socket, 1001)
	netnstest.Await(t, "the other beginning", func() error {
		if stats := first.Stats(); stats.Started < 2 {
			return fmt.Errorf("%+v", stats)
		}
		return nil
	})
	image := t.TempDir() // the disk after a crash at this moment: the second line may not be on it
	run(t, "cp "+folder+"/*.ndjson "+image)
	whois(t, image, address, time.Now(), func(flow Flow) bool { return flow.Peer.Port() == 1000 && flow.User == "ann" })
	next, err := Open(config(image, p))
	must(t, err)
	next.flush(time.Now())
	must(t, next.out.Close())
	for _, port := range []uint16{1000, 1001} {
		flow := whois(t, image, address, time.Now(), func(flow Flow) bool { return flow.Peer.Port() == port })
		if flow.Event != Begins || port == 1000 && flow.User != "ann" {
			t.Errorf("%d: %+v", port, flow)
		}
	}
	must(t, next.events.Close())
}

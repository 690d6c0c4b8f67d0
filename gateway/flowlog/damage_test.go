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

// written writes the ends of flows, and closes and packs their file where packed is set. It returns the
// file's path without an ending.
func written(t testing.TB, folder string, flows int, packed bool) string {
	t.Helper()
	l := writer(t, folder)
	for i := range flows {
		l.add(numbered(i), true, true)
	}
	l.flush(time.Now())
	must(t, l.out.Close())
	if packed {
		must(t, pack(l.out.base))
	}
	return l.out.base
}

// countFlows reports how many of some flows a log has, and checks that they are whole.
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

// TestTornFile: a file that ends anywhere in a line, as after a power failure, has all lines before it, and the
// torn one is said. It is packed like others.
func TestTornFile(t *testing.T) {
	const flows = 3
	folder := t.TempDir()
	base := written(t, folder, flows, false)
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

// TestDamagedPack: a packed file that is cut or overwritten has the blocks before the damage, and a damaged index costs
// time alone.
func TestDamagedPack(t *testing.T) {
	const flows = 3 * blockLines
	folder := t.TempDir()
	base := written(t, folder, flows, true)
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

// TestFullDisk: lines wait while the disk is full, and are written once there is room; beyond the bound of what waits
// each line that is lost is counted.
func TestFullDisk(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "full")
	must(t, os.Mkdir(folder, 0o700))
	must(t, unix.Mount("none", folder, "tmpfs", 0, "size=256k"))
	t.Cleanup(func() { unix.Unmount(folder, unix.MNT_DETACH) })
	l := writer(t, folder)
	added := 0
	batch := func(n int) {
		for range n {
			l.add(numbered(added), true, true)
			added++
		}
		l.flush(time.Now())
	}
	for l.waiting == 0 {
		batch(100)
	}
	batch(500)
	if s := l.Stats(); s.Lost != 0 || l.waiting < 500 {
		t.Fatalf("%d lines wait, %+v", l.waiting, s)
	}
	room := func(size string) { must(t, unix.Mount("none", folder, "tmpfs", unix.MS_REMOUNT, "size="+size)) }
	room("1m")
	l.flush(time.Now())
	if present, last := countFlows(t, folder, added); present != added || last.Damaged > 0 || l.waiting != 0 {
		t.Fatalf("with room again: %d of %d flows, %d wait, %+v", present, added, l.waiting, last)
	}
	for l.Stats().Lost == 0 {
		batch(20_000)
	}
	lost := l.Stats().Lost
	room("1g")
	l.flush(time.Now())
	if lines := countLines(t, folder); uint64(lines)+lost != uint64(added) || l.Stats().Lost != lost {
		t.Errorf("of %d lines %d are there and %d are counted as lost", added, lines, lost)
	}
}

func countLines(t testing.TB, folder string) int {
	t.Helper()
	n, err := strconv.Atoi(run(t, "cat "+folder+"/*.ndjson | wc -l"))
	must(t, err)
	return n
}

// TestOverflow: where the kernel's reports overflow, all connections are recorded with their ends all the same,
// and the overflow is counted.
func TestOverflow(t *testing.T) {
	defer func(before int) { bufferBytes = before }(bufferBytes)
	bufferBytes = 16 << 10
	w, p, folder := newWorld(t), &holders{}, t.TempDir()
	p.set("ann")
	run(t, "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600")
	l, err := Open(config(folder, p)) // nobody reads yet
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
	go func() { ended <- l.Run(ctx) }()
	stats := func(label string, ok func(Stats) bool) {
		netnstest.Await(t, label, func() error {
			if s := l.Stats(); !ok(s) {
				return fmt.Errorf("%+v of %d", s, before)
			}
			return nil
		})
	}
	stats("all beginnings", func(s Stats) bool { return s.Missed > 0 && s.Started >= before })
	flushConnections(t) // more ends at once than fit
	stats("all ends", func(s Stats) bool { return s.Ended >= before })
	cancel()
	must(t, <-ended)
	must(t, l.Close())
	if s := l.Stats(); s.Started != before || s.Ended != before || s.Lost != 0 {
		t.Errorf("the kernel had %d connections; %+v", before, s)
	}
}

// TestCrash: whatever was flushed is there after a crash, and what has not ended by then is recorded by the next
// log, with its beginning.
func TestCrash(t *testing.T) {
	w, p, folder := newWorld(t), &holders{}, t.TempDir()
	p.set("ann")
	run(t, "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600")
	first, _ := start(t, config(folder, p))
	socket := w.udp(t)
	address := fmt.Sprintf("10.1.0.9:%d", socket.LocalAddr().(*net.UDPAddr).Port)
	send(t, socket, 1000)
	whois(t, folder, address, time.Now(), func(f Flow) bool { return f.Peer.Port() == 1000 })
	send(t, socket, 1001)
	netnstest.Await(t, "the other beginning", func() error {
		if s := first.Stats(); s.Started < 2 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	image := t.TempDir() // what a crash at this moment leaves: the second line may not be on the disk
	run(t, "cp "+folder+"/*.ndjson "+image)
	whois(t, image, address, time.Now(), func(f Flow) bool { return f.Peer.Port() == 1000 && f.User == "ann" })
	next, err := Open(config(image, p))
	must(t, err)
	next.flush(time.Now())
	must(t, next.out.Close())
	for _, port := range []uint16{1000, 1001} {
		f := whois(t, image, address, time.Now(), func(f Flow) bool { return f.Peer.Port() == port })
		if f.Event != Begins || port == 1000 && f.User != "ann" {
			t.Errorf("%d: %+v", port, f)
		}
	}
	must(t, next.events.Close())
}

// Tests of dumps of the connection table that several callers share. connect makes connections of 40 clients
// (client(i)), and connections counts those of each (end_test.go).

package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func host(i byte) netip.Prefix { return netip.PrefixFrom(client(i), 32) }

// TestDumpsServeAll: addresses that come during a dump are gathered for one more dump, whether somebody waits
// or not.
func TestDumpsServeAll(t *testing.T) {
	connect(t)
	dumped, goOn := make(chan int), make(chan struct{})
	e := Ender{Gateway: gateway, Failed: func(err error) { t.Error(err) }, Forget: func(all []Connection) error {
		dumped <- len(all)
		<-goOn
		return nil
	}}
	e.Schedule(host(1))
	first := e.Flush(host(1))
	if n := <-dumped; n != 1 {
		t.Errorf("the first dump found %d connections", n)
	}
	var waiting sync.WaitGroup
	for i := byte(1); i <= 39; i++ {
		e.Schedule(host(i))
		if i%2 == 0 {
			waiting.Go(func() {
				if err := e.End(host(i)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	ending := e.Flush(netip.PrefixFrom(client(39), 32))
	if e.Flush(host(40)) != nil {
		t.Error("connections of another are ending")
	}
	goOn <- struct{}{}
	<-first
	n := <-dumped
	goOn <- struct{}{}
	<-ending
	waiting.Wait() // who came after the second dump had begun finds nothing
	if n != 39 {
		t.Errorf("the second dump found %d connections, want 39", n)
	}
	if got := connections(t); got[39] != 0 || got[40] != 1 {
		t.Errorf("left: %v", got)
	}
}

// TestDumpsAreSpaced: dumps that nobody waits for begin at most once a second, however many ask. Dumps that somebody
// waits for begin at once. The clock is the bubble's.
func TestDumpsAreSpaced(t *testing.T) {
	connect(t)
	synctest.Test(t, func(t *testing.T) {
		began, dumps := time.Now(), []time.Duration{}
		var mu sync.Mutex // guards readings
		e := Ender{Gateway: gateway, Failed: func(err error) { t.Error(err) }, Forget: func([]Connection) error {
			mu.Lock()
			defer mu.Unlock()
			dumps = append(dumps, time.Since(began))
			return nil
		}}
		for i := byte(1); i <= 30; i++ {
			e.Schedule(host(i))
			time.Sleep(pause / 10)
		}
		time.Sleep(pause * 2)
		synctest.Wait()
		mu.Lock()
		for i, offset := range dumps {
			if i > 0 && offset-dumps[i-1] < pause || offset < pause {
				t.Errorf("dumps at %v", dumps)
			}
		}
		mu.Unlock()
		e.Schedule(host(31))
		now := time.Since(began)
		if <-e.Flush(host(31)); !slices.Contains(dumps, now) {
			t.Errorf("at %s somebody waited; dumps at %v", now, dumps)
		}
	})
	if got := connections(t); got[30] != 0 || got[31] != 0 || got[32] != 1 {
		t.Errorf("left: %v", got)
	}
}

// TestDatapathAskedDuringDump: the data path is asked for connections that end while the table is read. The race
// detector then finds unguarded fields.
func TestDatapathAskedDuringDump(t *testing.T) {
	connect(t)
	e := Ender{Gateway: gateway, Failed: func(err error) { t.Error(err) }}
	var all sync.WaitGroup
	for i := byte(1); i <= 40; i++ {
		all.Go(func() {
			e.Schedule(host(41-i), host(i), host(i))
			for range 20 {
				if ending := e.Flush(host(i)); ending != nil {
					<-ending
				}
			}
			if n := connections(t)[i]; n > 0 {
				t.Errorf("client %d has %d connections", i, n)
			}
		})
	}
	all.Wait()
}

// TestFailures: callers get the kernel's error, and do not wait for ever, when the kernel refuses a dump.
func TestFailures(t *testing.T) {
	connect(t)
	refused := errors.New("refused")
	var records []error
	e := Ender{Gateway: gateway, Failed: func(err error) { records = append(records, err) },
		Forget: func([]Connection) error { return refused }}
	e.Schedule(host(1))
	<-e.Flush(host(1))
	if len(records) != 1 || !errors.Is(records[0], refused) {
		t.Errorf("told %v", records)
	}
}

// TestFilteredQueries: the kernel is asked about a few addresses one by one, where it has many entries; otherwise it
// lists all.
func TestFilteredQueries(t *testing.T) {
	for _, c := range []struct {
		addresses, entries int
		want               bool
	}{
		{1, 100, false}, {1, 25_000, true}, {1, 250_000, true}, {6, 149_999, false}, {6, 150_000, true}, {6, 250_000, true},
		{7, 250_000, false}, {20, 250_000, false}, {60, 10_000_000, false},
	} {
		var of addresses
		for i := range c.addresses {
			of.add(host(byte(i)))
			of.add(host(byte(i)))
		}
		if got := of.oneByOne(c.entries); got != c.want {
			t.Errorf("%d addresses, %d entries: one by one %v, want %v", c.addresses, c.entries, got, c.want)
		}
		of.add(netip.MustParsePrefix("127.2.0.0/31"))
		if of.oneByOne(c.entries) {
			t.Errorf("%d addresses and a network: one by one", c.addresses)
		}
	}
}

// BenchmarkEnd measures what it takes to find the connections of addresses that have none, beside others' connections,
// in each of the two ways. Where there are few entries it is the kernel's walk over its buckets.
func BenchmarkEnd(b *testing.B) {
	for _, n := range []int{1_000, 20_000, 50_000, 100_000, 250_000} {
		fill(b, n)
		for _, of := range []int{0, 1, 6} { // 0: all entries are read
			b.Run(fmt.Sprintf("entries=%d/asked=%d", entries(), of), func(b *testing.B) {
				e := Ender{Gateway: gateway}
				none := func(netip.Addr) bool { return false }
				before := cpu(b)
				for b.Loop() {
					questions := [][]byte{header(unix.AF_UNSPEC)}
					if of > 0 {
						questions = nil
					}
					for i := range of {
						a := netip.AddrFrom4([4]byte{127, 77, 0, byte(i)})
						questions = append(questions, queryFrom(a, tupleOrig), queryFrom(a, tupleReply))
					}
					if err := e.endWhere(none, questions...); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((cpu(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// cpu is the CPU time that the process has taken, in the kernel too.
func cpu(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// fill makes the kernel track n connections.
func fill(b *testing.B, n int) {
	b.Helper()
	if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", []byte("600"), 0); err != nil {
		b.Fatal(err)
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(s)
	for i := 0; entries() < n; i++ {
		for j := range 1000 {
			k := i*1000 + j
			unix.Sendto(s, []byte{0}, 0,
				&unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 3 + byte(k>>16), byte(k >> 8), byte(k)}})
		}
	}
}

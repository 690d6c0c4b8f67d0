// Benchmarks of the portal over loopback. start (world_test.go) serves a portal; w.table is its table of clients, and
// w.table.lease gives a client's address a lease.

package portal

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkRedirect measures a client's first contact over loopback, with a connection for each: connect, request,
// redirect, close. It also reports the 99th percentile, and the CPU time of both sides, which other load on the machine
// does not change.
func BenchmarkRedirect(b *testing.B) {
	w := start(b, Config{MaxConnsPerClient: 1000})
	b.SetParallelism(16)
	var next atomic.Uint32
	var mu sync.Mutex
	var all []time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	b.RunParallel(func(pb *testing.PB) {
		n := next.Add(1)
		client := netip.AddrFrom4([4]byte{10, 1, 8, byte(n)})
		w.table.lease(client)
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}}
		var took []time.Duration
		answer := make([]byte, 1024)
		for pb.Next() {
			begun := time.Now()
			conn, err := d.Dial("tcp", "203.0.113.9:80")
			if err != nil {
				b.Error(err)
				return
			}
			fmt.Fprintf(conn,
				"GET /hotspot-detect.html HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: "+
					"CaptiveNetworkSupport-1\r\nConnection: close\r\n\r\n")
			size, _ := io.ReadFull(conn, answer) // until the portal closes
			if head := string(answer[:size]); !strings.HasPrefix(head, "HTTP/1.1 302 ") {
				b.Errorf("answer %q", head)
			}
			conn.(*net.TCPConn).SetLinger(0) // the machine has fewer ports than the benchmark has requests
			conn.Close()
			took = append(took, time.Since(begun))
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, took...)
	})
	b.ReportMetric(float64((cpuTime(b)-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "redirects/s")
}

// cpuTime is this process's CPU time, in user space and kernel.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLogin measures a client's complete login: login page, form, status page.
func BenchmarkLogin(b *testing.B) {
	w := start(b, Config{})
	for b.Loop() {
		w.table.lease(clientA)
		logIn(b, clientA)
		if r := request(b, clientA, base+"/status", nil); r.StatusCode != 200 {
			b.Fatal(r.Status)
		}
	}
}

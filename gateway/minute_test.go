package gateway

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/ebpf"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// BenchmarkMinute measures the CPU time of a minute's save of 100,000 silent sessions with the eBPF data path: with a
// reading of each session's counters, and with one pass over all.
func BenchmarkMinute(b *testing.B) {
	const sessions = 100_000
	network(b)
	sh(b, "ip addr flush dev lan0; ip addr add 10.2.0.1/15 dev lan0")
	lan := datapath.Network{Interface: "lan0", Address: netip.MustParsePrefix("10.2.0.1/15")}
	cfg := ebpf.Config{Networks: []datapath.Network{lan}, WAN: "wan0", PinDir: "/sys/fs/bpf/minute", DHCP: true,
		Log: slog.New(slog.DiscardHandler)}
	dp, err := ebpf.Open(cfg)
	must(b, err)
	defer func() { must(b, dp.Close()); must(b, ebpf.Remove(cfg)) }()
	path := filepath.Join(b.TempDir(), "s.db")
	for _, way := range []struct {
		name string
		dp   datapath.Datapath
	}{{"each", struct{ datapath.Datapath }{dp}}, {"moved", dp}} {
		table, err := session.Open(path, way.dp, slog.New(slog.DiscardHandler))
		must(b, err)
		if table.States()[session.Authenticated] == 0 {
			logInMany(b, table, sessions)
		}
		b.Run(fmt.Sprint(way.name, " ", table.States()[session.Authenticated], " sessions"), func(b *testing.B) {
			began := cpuTime(b)
			for b.Loop() {
				must(b, table.Save(b.Context()))
			}
			b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/1000/float64(b.N), "cpu-ms/minute")
		})
		must(b, table.Close())
	}
}

// logInMany logs clients in.
func logInMany(b *testing.B, table *session.Table, many int) {
	b.Helper()
	var all sync.WaitGroup
	next := make(chan session.Key)
	for range 256 {
		all.Go(func() {
			for k := range next {
				err := table.Lease(k, "", time.Time{})
				if err == nil {
					_, err = table.Admit(k.Addr, session.Login{User: k.Addr.String()})
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	addr := netip.MustParseAddr("10.2.0.2")
	for i := range many {
		next <- session.Key{MAC: datapath.MAC{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)}, Addr: addr}
		addr = addr.Next()
	}
	close(next)
	all.Wait()
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

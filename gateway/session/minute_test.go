package session_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// senders is a data path whose clients send when they are told to.
type senders struct {
	nowhere
	sent [crowd]atomic.Uint64
}

func (d *senders) Counters(addr netip.Addr) (datapath.Counters, error) {
	a, first := addr.As4(), nth(0).Addr.As4()
	n := d.sent[binary.BigEndian.Uint32(a[:])-binary.BigEndian.Uint32(first[:])].Load()
	return datapath.Counters{UpBytes: 1000 * n, UpPackets: n}, nil
}

// BenchmarkMinute measures the CPU time of a minute with 100,000 sessions, of which some have sent.
// An iteration takes a minute: run it with -benchtime 1x.
func BenchmarkMinute(b *testing.B) {
	dp := &senders{}
	table := openTable(b, filepath.Join(b.TempDir(), "s.db"), dp)
	fillTable(b, table, crowd)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- table.Run(ctx) }()
	defer func() { stop(); <-ended }()
	for _, active := range []int{0, crowd / 100, crowd} {
		b.Run(fmt.Sprint(active, " active"), func(b *testing.B) {
			began := cpuTime(b)
			for b.Loop() {
				for i := range active {
					dp.sent[i*(crowd/max(active, 1))].Add(1)
				}
				time.Sleep(time.Minute)
			}
			b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/1000/float64(b.N), "cpu-ms/minute")
		})
	}
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

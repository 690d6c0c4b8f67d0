// Speeds of what gateways tell each other. They say nothing while other programs run.

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/redistest"
)

// BenchmarkFeed writes 5,000 changes a second, and says how long they take to reach a follower.
func BenchmarkFeed(b *testing.B) {
	server := redistest.Start(b, redistest.Place{})
	one, two := Open(options(server, "gw1")), Open(options(server, "gw2"))
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait(); one.Close(); two.Close() }()
	follower := &lags{}
	two.Follow("sessions", follower)
	running.Go(func() { two.Run(ctx) })
	content := strings.Repeat("x", 250)
	const rate, batch = 5000, 25
	b.ResetTimer()
	for range b.N {
		follower.reset()
		begin := time.Now()
		for i := range 5 * rate / batch {
			var changes []Change
			for k := range batch {
				now := strconv.FormatInt(time.Now().UnixNano(), 10)
				changes = append(changes, Change{Key: fmt.Sprint("k", i*batch+k, "-", now), Content: []byte(now + content)})
			}
			if _, err := one.Swap(ctx, "sessions", "gw1", changes); err != nil {
				b.Fatal(err)
			}
			time.Sleep(time.Until(begin.Add(time.Duration(i+1) * time.Second * batch / rate)))
		}
		took := time.Since(begin)
		for follower.count() < 5*rate {
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric(5*rate/took.Seconds(), "changes/s")
		p50, p99 := follower.percentiles()
		b.ReportMetric(float64(p50.Microseconds())/1000, "ms-p50")
		b.ReportMetric(float64(p99.Microseconds())/1000, "ms-p99")
	}
}

// lags is a follower that keeps how long ago records were written.
type lags struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *lags) Put(_, _ string, r Record) {
	sent, err := strconv.ParseInt(string(r.Content[:19]), 10, 64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.all = append(l.all, time.Since(time.Unix(0, sent)))
	}
}

func (l *lags) Gone(string, string) {}
func (l *lags) Synced(bool)         {}
func (l *lags) reset()              { l.mu.Lock(); l.all = nil; l.mu.Unlock() }
func (l *lags) count() int          { l.mu.Lock(); defer l.mu.Unlock(); return len(l.all) }

func (l *lags) percentiles() (p50, p99 time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.all)
	return l.all[len(l.all)/2], l.all[len(l.all)*99/100]
}

// BenchmarkFollowAll tells a gateway that starts of 100,000 records.
func BenchmarkFollowAll(b *testing.B) {
	server := redistest.Start(b, redistest.Place{})
	one := Open(options(server, "gw1"))
	defer one.Close()
	content := []byte(strings.Repeat("x", 250))
	for i := range 400 {
		var changes []Change
		for k := range 250 {
			changes = append(changes, Change{Key: fmt.Sprint("k", i*250+k), Content: content})
		}
		if _, err := one.Swap(b.Context(), "sessions", "gw1", changes); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for range b.N {
		two := Open(options(server, "gw2"))
		told := &seen{records: map[string]string{}}
		two.Follow("sessions", told)
		ctx, stop := context.WithCancel(b.Context())
		var running sync.WaitGroup
		running.Go(func() { two.Run(ctx) })
		for done := false; !done; time.Sleep(time.Millisecond) {
			told.mu.Lock()
			done = told.synced
			told.mu.Unlock()
		}
		if n := len(told.records); n != 100_000 {
			b.Fatalf("%d records", n)
		}
		stop()
		running.Wait()
		two.Close()
	}
}

// BenchmarkAsk asks another gateway, 32 at the same time.
func BenchmarkAsk(b *testing.B) {
	server := redistest.Start(b, redistest.Place{})
	one, two := Open(options(server, "gw1")), Open(options(server, "gw2"))
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait(); one.Close(); two.Close() }()
	two.Answer("echo", func(_ context.Context, _ string, body []byte) ([]byte, error) { return body, nil })
	running.Go(func() { one.Run(ctx) })
	running.Go(func() { two.Run(ctx) })
	for !one.State().Up || !two.State().Up {
		time.Sleep(time.Millisecond)
	}
	body := make([]byte, 400)
	if _, err := one.Ask(ctx, "gw2", "echo", body); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := one.Ask(ctx, "gw2", "echo", body); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "asks/s")
}

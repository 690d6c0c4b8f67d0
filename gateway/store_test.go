// Tests of the store that several gateways share, and a benchmark of logins with and without it.

package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/cluster"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/internal/redistest"
)

// TestStoreWarning: check-config warns of a store whose connections are not encrypted, unless it is on this machine.
func TestStoreWarning(t *testing.T) {
	for addr, want := range map[string]bool{"192.0.2.20:6379": true, "db.example.org:6379": true, "127.0.0.1:6379": false,
		"[::1]:6379": false} {
		s := &survey{Config: &config.Config{Store: config.Store{Kind: config.StoreRedis, Addresses: []string{addr}}}}
		if s.store(); (len(s.findings) == 1) != want {
			t.Errorf("%s: %v", addr, s.findings)
		}
		s.Store.CAFile, s.findings = "ca.pem", nil
		if s.store(); len(s.findings) > 0 {
			t.Errorf("%s with TLS: %v", addr, s.findings)
		}
	}
}

// TestUnreadableSession: a record that is of a newer version, damaged or empty is shown with its address alone.
func TestUnreadableSession(t *testing.T) {
	for _, content := range []string{"", "\x01", "\x02damaged", "\xff"} {
		if s := sessionOf("10.1.0.5", []byte(content)); s.State != "" || s.Addr != netip.MustParseAddr("10.1.0.5") {
			t.Errorf("%q: %+v", content, s)
		}
	}
	if s := sessionOf("#7", nil); s.State != "" || s.Addr.IsValid() {
		t.Errorf("of a client without IPv4: %+v", s)
	}
	for network, kind := range map[string]string{"": "sessions", "guests": "sessions.guests"} {
		if got, is := networkOfKind(sessionKind(network)); got != network || !is || sessionKind(network) != kind {
			t.Errorf("%q: %q %v", network, got, is)
		}
	}
	if _, is := networkOfKind("leases"); is {
		t.Error("another kind is of sessions")
	}
}

// noPackets is a data path without packets.
type noPackets struct{}

var _ datapath.Datapath = noPackets{}

func (noPackets) Set(datapath.Client) error { return nil }
func (noPackets) Remove(datapath.ID) error  { return nil }
func (noPackets) Counters(datapath.ID) (datapath.Counters, error) {
	return datapath.Counters{Epoch: 1}, nil
}
func (noPackets) Open(netip.Prefix, time.Time) error { return nil }
func (noPackets) Close() error                       { return nil }

// BenchmarkStoredLogins logs 10,000 clients in, 100 at a time: with the gateway's file alone, and with copies in a
// server of Redis. Sync is how long the copies take after the last login.
func BenchmarkStoredLogins(b *testing.B) {
	const clients, atOnce = 10_000, 100
	server := redistest.Start(b, redistest.Place{})
	for _, kind := range []string{"File", "Redis"} {
		b.Run(kind, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				server.CLI("FLUSHALL")
				var shared sharedStore
				ctx, stop := context.WithCancel(b.Context())
				if kind == "Redis" {
					shared.Store = cluster.Open(cluster.Options{Addresses: []string{server.Addr}, Prefix: "bench:", Gateway: "gw1",
						Instance: "one", Log: slog.New(slog.DiscardHandler), Sessions: func() int { return 0 }})
					go shared.Run(ctx)
				}
				how := session.Options{Owner: "gw1"}
				copies := shared.mirror("")
				mirrorTo(copies, &how)
				table, err := session.OpenWith(filepath.Join(b.TempDir(), "s.db"), noPackets{}, slog.New(slog.DiscardHandler), how)
				netnstest.Must(b, err)
				if copies != nil {
					copies.Read(recordsOf(table))
				}
				key := func(i int) session.Key {
					return session.Key{MAC: datapath.MAC{2, 0, 0, 0, byte(i >> 8), byte(i)},
						Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}
				}
				each(b, clients, atOnce, func(i int) error { return table.Lease(key(i), "phone", time.Now().Add(time.Hour)) })
				b.StartTimer()
				each(b, clients, atOnce, func(i int) error {
					_, err := table.Admit(key(i).Addr, session.Login{User: fmt.Sprint("user", i)})
					return err
				})
				b.StopTimer()
				began := time.Now()
				if copies != nil {
					netnstest.Until(b, "all are in the store", func() bool { return shared.State().Waiting == 0 })
					b.ReportMetric(time.Since(began).Seconds(), "sync-s")
				}
				stop()
				netnstest.Must(b, table.Close())
				if copies != nil {
					shared.Close()
				}
			}
			b.ReportMetric(float64(b.N*clients)/b.Elapsed().Seconds(), "logins/s")
		})
	}
}

// each calls f with 0 to n-1, so many at a time.
func each(b *testing.B, n, atOnce int, f func(i int) error) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}

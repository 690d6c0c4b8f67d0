package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// storm is many addresses that come at the same time.
type storm struct{ saved []bindings.Saved }

func (s storm) Load() ([]bindings.Saved, error) { return s.saved, nil }
func (storm) Put(bindings.Saved) error          { return nil }
func (storm) Delete(netip.Addr) error           { return nil }

// macOf is the MAC address of a client of a storm.
func macOf(client int) datapath.MAC { return datapath.MAC{2, 0, 0, 0, byte(client >> 8), byte(client)} }

// openStorm returns a gateway with so many clients, and the addresses that come to them, three each.
func openStorm(t testing.TB, path string, clients int) (*gateway, storm) {
	t.Helper()
	table, err := session.Open(path, anyClient{}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { table.Close() })
	g := &gateway{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler), table: table}
	var s storm
	var leases sync.WaitGroup
	for i := range clients {
		mac := macOf(i)
		key := session.Key{MAC: mac, Addr: netip.AddrFrom4([4]byte{10, 1, mac[4], mac[5]})}
		leases.Go(func() {
			if err := table.Lease(key, "", time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
		})
	}
	leases.Wait()
	for i := range 3 * clients {
		mac := macOf(i % clients)
		addr := netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 12: mac[4], 13: mac[5], 15: byte(1 + i/clients)})
		s.saved = append(s.saved, bindings.Saved{Addr: addr, Anchor: bindings.Anchor{MAC: mac}})
	}
	return g, s
}

// weather has the addresses of a storm come, and returns when all clients have them.
func (g *gateway) weather(t testing.TB, s storm) {
	t.Helper()
	server, err := bindings.Open(bindings.Config{Interface: "storm0", Store: s, Log: g.log,
		Bound: g.bound6, Gone: g.gone6})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Run ends when all is told
	must(t, server.Run(ctx))
	must(t, server.Close())
}

// TestStormOfAddresses: addresses that come together are on the disk once clients have them, where a daemon that is
// killed leaves them, and an address that has changed hands meanwhile is its last owner's.
func TestStormOfAddresses(t *testing.T) {
	netnstest.Run(t, "ip link add storm0 type veth peer name storm1; ip link set storm0 up; ip link set storm1 up")
	defer netnstest.Run(t, "ip link del storm0")
	path := filepath.Join(t.TempDir(), "s.db")
	g, s := openStorm(t, path, 200)
	g.weather(t, s)
	for i := range 50 { // to another client
		g.gone6(s.saved[i].Anchor, s.saved[i].Addr)
		s.saved[i].Anchor.MAC = macOf(i + 1)
		g.bound6(s.saved[i].Anchor, s.saved[i].Addr)
	}
	left := filepath.Join(t.TempDir(), "s.db")
	b, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(left, b, 0o600))
	table, err := session.Open(left, anyClient{}, slog.New(slog.DiscardHandler))
	must(t, err)
	defer table.Close()
	for _, one := range s.saved {
		if c, known := table.Get(one.Addr); !known || c.MAC != one.Anchor.MAC {
			t.Errorf("%s: %t, %v, want %v", one.Addr, known, c.Key, one.Anchor)
		}
	}
}

// BenchmarkStormOfAddresses is 9,999 addresses of 3,333 clients, which come together.
func BenchmarkStormOfAddresses(b *testing.B) {
	netnstest.Run(b, "ip link add storm0 type veth peer name storm1; ip link set storm0 up; ip link set storm1 up")
	defer netnstest.Run(b, "ip link del storm0")
	for n := range b.N {
		g, s := openStorm(b, filepath.Join(b.TempDir(), strconv.Itoa(n)), 3333)
		b.ResetTimer()
		g.weather(b, s)
		b.ReportMetric(float64(len(s.saved))/b.Elapsed().Seconds(), "addresses/s")
	}
}

package gateway

import (
	"context"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"testing"

	ciliumebpf "github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/ebpf"
	"github.com/gateweigh/gateweigh/gateway/session"
)

// residents is how many clients BenchmarkMemoryOfFamilies logs in: almost as many as the LAN has addresses.
const residents = 16_000

// BenchmarkMemoryOfFamilies measures what a logged-in client occupies, in bytes: with IPv4 alone, and with an IPv4
// address, a link-local IPv6 address and three global ones. It counts the live heap of session table and bindings, and
// the data path's pinned tables, all of them, also those that do not grow with clients. Not counted: DHCP leases, which
// both have.
func BenchmarkMemoryOfFamilies(b *testing.B) {
	network(b)
	sh(b, "ip addr flush dev lan0; ip addr add 10.2.0.1/18 dev lan0; ip addr add 2001:db8:1::1/64 dev lan0 nodad")
	for range b.N {
		four := memoryOfResidents(b, false)
		both := memoryOfResidents(b, true)
		b.ReportMetric(four, "B/client-ipv4")
		b.ReportMetric(both, "B/client-both")
		b.ReportMetric(both/four, "both/ipv4")
		b.ReportMetric(0, "ns/op")
	}
}

func memoryOfResidents(b *testing.B, both bool) (each float64) {
	b.Helper()
	lan := datapath.Network{Interface: "lan0", Address: netip.MustParsePrefix("10.2.0.1/18")}
	if both {
		lan.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	}
	cfg := ebpf.Config{Networks: []datapath.Network{lan}, WAN: "wan0", PinDir: "/sys/fs/bpf/crowd", DHCP: true,
		Log: slog.New(slog.DiscardHandler)}
	before := liveHeap()
	dp, err := ebpf.Open(cfg)
	must(b, err)
	defer func() { must(b, dp.Close()); must(b, ebpf.Remove(cfg)) }()
	table, err := session.Open(filepath.Join(b.TempDir(), "s.db"), dp, slog.New(slog.DiscardHandler))
	must(b, err)
	defer func() { must(b, table.Close()) }()
	logInMany(b, table, residents)
	g := &gateway{cfg: &config.Config{}, log: slog.New(slog.DiscardHandler), table: table}
	if both {
		server, err := bindings.Open(bindings.Config{Interface: "lan0", Store: addressesOf(table), Log: g.log,
			Bound: g.bound6, Gone: g.gone6})
		must(b, err)
		defer func() { must(b, server.Close()) }()
		ctx, cancel := context.WithCancel(b.Context())
		cancel() // Run ends when the clients have all addresses
		must(b, server.Run(ctx))
	}
	for c := range table.Each {
		if got, want := len(c.FurtherAddrs), map[bool]int{true: 4}[both]; got != want {
			b.Fatalf("%s has %d further addresses, want %d", c.Key, got, want)
		}
	}
	used := float64(liveHeap()-before) + float64(pinnedBytes(b, cfg.PinDir))
	runtime.KeepAlive(g)
	return used / residents
}

// addressesOf returns the IPv6 addresses that each client of a table is to have.
func addressesOf(table *session.Table) (s storm) {
	for c := range table.Each {
		for i := range byte(4) {
			m := c.MAC
			addr := [16]byte{0x20, 1, 0xd, 0xb8, 7: 1, 9: i, 10: m[0], m[1], m[2], m[3], m[4], m[5]}
			if i == 0 {
				addr = [16]byte{0xfe, 0x80, 10: m[0], m[1], m[2], m[3], m[4], m[5]}
			}
			s.saved = append(s.saved,
				bindings.Saved{Addr: netip.AddrFrom16(addr), Anchor: bindings.Anchor{MAC: m}})
		}
	}
	return s
}

// liveHeap is what the process's heap has after a collection, in bytes.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what finalizers and pools let go
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// pinnedBytes is what the kernel counts for the tables that are pinned in a folder.
func pinnedBytes(b *testing.B, folder string) (sum uint64) {
	b.Helper()
	must(b, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		m, err := ciliumebpf.LoadPinnedMap(path, nil)
		if err != nil {
			return nil // a program or a link
		}
		defer m.Close()
		info, err := m.Info()
		if err != nil {
			return err
		}
		bytes, _ := info.Memlock() // none of an empty trie
		sum += bytes
		b.Logf("%s: %d", path, bytes)
		return nil
	}))
	return sum
}

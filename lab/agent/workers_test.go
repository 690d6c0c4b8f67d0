// Tests of how streams of a load are shared out among workers, processes that help an agent.

package agent

import (
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/lab/traffic"
)

func TestWorkersFollowTheLimitOfFiles(t *testing.T) {
	for _, tt := range []struct {
		streams int
		files   int64
		want    int
	}{
		{1, 20_000, 1},
		{250, 1024, 1},
		{257, 1024, 2},
		{16_000, 20_000, 1},
		{16_001, 20_000, 2},
		{65_000, 20_000, 5},
		{65_000, 1 << 20, 5},
		{6_000, 4096, 2},
	} {
		if got := ProcessesFor(tt.streams, tt.files); got != tt.want {
			t.Errorf("%d streams under a limit of %d files: %d workers, want %d", tt.streams, tt.files, got, tt.want)
		}
	}
}

func TestBundlesShareALoadOut(t *testing.T) {
	from := make([]netip.Addr, 10)
	for i := range from {
		from[i] = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
	}
	to := netip.MustParseAddrPort("192.0.2.1:5201")
	seen, rate := map[netip.Addr]bool{}, 0.0
	for i, b := range (bundle{Config: traffic.Config{Streams: 10, RateBps: 100}, Local: from,
		Server: Server{Addr4: to.Addr()}, Port: to.Port()}).split(3) {
		if b.Config.Streams != len(b.Local) || b.Config.RateBps != 10*float64(len(b.Local)) {
			t.Errorf("bundle %d has %d streams from %d addresses at %g bit/s of 10 a stream", i, b.Config.Streams, len(b.Local),
				b.Config.RateBps)
		}
		if want := to.Port() + uint16(i); b.Port != want || b.Server.Addr4 != to.Addr() {
			t.Errorf("bundle %d goes to port %d of %v, want port %d", i, b.Port, b.Server, want)
		}
		rate += b.Config.RateBps
		for _, a := range b.Local {
			if seen[a] {
				t.Errorf("%s is in two bundles", a)
			}
			seen[a] = true
		}
	}
	if len(seen) != len(from) || rate != 100 {
		t.Errorf("%d of %d addresses, %g of 100 bit/s", len(seen), len(from), rate)
	}
}

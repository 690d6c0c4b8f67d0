// A test that the packets of a real connection are forwarded by the cache of flows. cachePath is the data path with the
// cache, for the worlds of package datapathtest.

package ebpf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// cachePath returns the path that caches flows.
func cachePath(t testing.TB) datapathtest.Path {
	t.Helper()
	for _, p := range paths() {
		if p.Name == "auto" {
			return p
		}
	}
	t.Fatal("there is no such path")
	return datapathtest.Path{}
}

// TestFlowsAreCached: most packets of a translated connection are forwarded by the cache, also where packets are
// aggregated and their checksums are left to the interface.
func TestFlowsAreCached(t *testing.T) {
	netnstest.NeedTCX(t)
	t.Run("address", func(t *testing.T) { areCached(t, "masquerade", "192.0.2.1:") })
	t.Run("address and port",
		func(t *testing.T) { areCached(t, "meta l4proto tcp snat to 192.0.2.1:7000", "192.0.2.1:7000") })
}

func areCached(t *testing.T, rule, seen string) {
	t.Helper()
	p := cachePath(t)
	w := datapathtest.NewWorld(t, p, datapathtest.Shape{})
	w.Router.Run(t, fmt.Sprintf(
		`nft 'table ip isp { chain out { type nat hook postrouting priority srcnat; oifname "wan0" %s; }; }'`, rule))
	becomes(t, w, "flow cache", "netfilter has rules")
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Admitted: true}))
	x := w.NewStream(t, w.Alice, datapathtest.Server)
	netnstest.Await(t, "the cache to forward nearly all", func() error {
		before := w.Packets(t)
		x.Carry(t, x.Client, 3_000_000)
		x.Carry(t, x.Server, 3_000_000)
		n := w.Packets(t)
		if n["forwarded"]-before["forwarded"] < 10*(n["stack"]-before["stack"]) {
			return fmt.Errorf("%v became %v", before, n)
		}
		return nil
	})
	if address := x.Server.RemoteAddr().String(); !strings.HasPrefix(address, seen) {
		t.Errorf("the server sees %s", address)
	}
	must(t, w.Close())
	must(t, w.Detach())
	if liberal := w.Router.Run(t, "sysctl -n net.netfilter.nf_conntrack_tcp_be_liberal"); liberal != "0" {
		t.Errorf("detached, and connection tracking is still liberal: %s", liberal)
	}
}

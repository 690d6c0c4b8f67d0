// The tests that every data path must pass (package datapathtest), run with each way to attach these programs and to
// forward (paths).

package ebpf

import (
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// paths returns the ways to attach these programs and to forward, each as a data path for the tests of package
// datapathtest.
func paths() (all []datapathtest.Path) {
	for _, c := range []struct {
		name    string
		forward Forward
		clsact  bool
		dhcp    bool
		cache   FlowCache
	}{
		{"auto", ForwardAuto, false, true, FlowCacheAuto}, {"redirect", ForwardRedirect, false, false, FlowCacheNever},
		{"stack", ForwardStack, false, false, FlowCacheNever},
		{"clsact", ForwardAuto, true, true, FlowCacheNever},
	} {
		setup := func(in datapath.Setup) Config {
			in.Forward, in.FlowCache, in.DHCP = string(c.forward), string(c.cache), c.dhcp
			cfg := config(in)
			cfg.clsact = c.clsact
			return cfg
		}
		all = append(all, datapathtest.Path{
			Name: c.name,
			Open: func(in datapath.Setup) (datapath.Running, error) {
				d, err := Open(setup(in))
				return d.running(), err
			},
			Remove: func(in datapath.Setup) error { return Remove(setup(in)) },
			Promises: datapathtest.Promises{
				Several: true, Unattended: true, Restores: true, Netfilter: c.forward != ForwardRedirect, JudgesMasqueraded: true,
				DHCPSocket: !c.dhcp,
				Requests:   c.dhcp, Neighbours: true, Newcomers: true, Moves: true, PPPoE: true, Outside: true,
				Visits: true, Burst: burst,
			},
		})
	}
	return all
}

// TestSuite runs the tests that every data path must pass.
func TestSuite(t *testing.T) {
	for _, p := range paths() {
		t.Run(p.Name, func(t *testing.T) {
			switch tcx := netnstest.HasTCX(); {
			case p.Name == "auto" && !tcx:
				t.Skip("the kernel lacks tcx (Linux 6.6): clsact is the same there")
			case p.Name == "clsact" && tcx: // whole on older kernels: make test-kernel
				datapathtest.RunAttached(t, p)
			default:
				datapathtest.Run(t, p)
			}
		})
	}
}

// TestPacketsAreRedirected: the programs redirect nearly all packets, past the stack, also after another daemon has
// taken over.
func TestPacketsAreRedirected(t *testing.T) {
	for _, p := range paths() {
		if p.Name == "stack" {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			w := datapathtest.NewWorld(t, p, datapathtest.Shape{})
			must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Admitted: true}))
			up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
			up.Begin()
			down.Begin()
			for range 10 {
				must(t, w.Close())
				up.Passes(t, "while nobody is there")
				must(t, w.Open())
			}
			up.Halt()
			down.Halt()
			n, all := w.Packets(t), up.Sent()+down.Sent()
			if n["forwarded"]+n["stack"] != all || n["forwarded"] < all/2 {
				t.Errorf("of %d packets these were redirected: %v", all, n)
			}
			if up.Came()+down.Came() != all {
				t.Errorf("%d of %d packets came", up.Came()+down.Came(), all)
			}
		})
	}
}

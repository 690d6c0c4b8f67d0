package ebpf

import (
	"io"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// paths are the ways to attach these programs and to forward.
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
		var requests func(datapathtest.Datapath) (io.ReadCloser, error)
		if c.dhcp {
			requests = func(d datapathtest.Datapath) (io.ReadCloser, error) { return d.(*Datapath).Requests() }
		}
		config := func(in datapathtest.Config) Config {
			return Config{
				Networks: []datapath.Network{in.Network}, WAN: in.WAN, PortalPorts: in.PortalPorts, Forward: c.forward,
				PinDir: in.PinDir, Newcomer: in.Newcomer, DHCP: c.dhcp, Log: in.Log, Lines: in.Lines, clsact: c.clsact,
				FlowCache: c.cache,
			}
		}
		all = append(all, datapathtest.Path{
			Name:   c.name,
			Open:   func(in datapathtest.Config) (datapathtest.Datapath, error) { return Open(config(in)) },
			Remove: func(in datapathtest.Config) error { return Remove(config(in)) },
			Promises: datapathtest.Promises{
				Unattended: true, Restores: true, Netfilter: c.forward != ForwardRedirect, TellsOwn: true, DHCPSocket: !c.dhcp,
				Requests: requests, Neighbours: true, Newcomers: true, Moves: true, Lines: true, Burst: burst,
			},
		})
	}
	return all
}

// TestSuite is what every data path must show.
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

// TestPacketsAreRedirected: nearly all packets bypass the stack, also after the daemon was
// replaced.
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

package datapathtest

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The LAN of another gateway on the same machine.
const besideLink = "lan1"

var besideGateway = netip.MustParseAddr("10.2.0.1")

// beside: a gateway of a second LAN, with the client Carol, shares the WAN with the first gateway. Where a data path
// does not share the WAN, the second gateway is refused, and the first goes on. A third gateway, of the second LAN, is
// always refused.
func beside(t *testing.T, w *World) {
	carol := Station{netnstest.NewSpace(t), netip.MustParseAddr("10.2.0.10"), datapath.MAC{2, 0, 0, 0, 2, 10}, 0}
	carol.Quiet(t)
	w.Router.Veth(t, netnstest.End{Name: besideLink}, carol.Space, netnstest.End{Name: clientLink, MAC: hw(carol.MAC)})
	var addrs []netip.Prefix
	if !w.path.OwnAddress {
		addrs = append(addrs, netip.PrefixFrom(besideGateway, 24))
	}
	w.Router.Enable(t, besideLink, addrs...)
	carol.Enable(t, clientLink, netip.PrefixFrom(carol.Addr, 24))
	carol.Default(t, besideGateway)
	carol.AwaitUp(t, clientLink)
	orders := Orders{Prefix: netip.PrefixFrom(besideGateway, 24), PinDir: pinDir(w.Router) + "-beside", LAN: besideLink}
	second, third := &Process{router: w.Router, path: w.path, orders: orders}, &Process{router: w.Router, path: w.path,
		orders: orders}
	for _, p := range []*Process{second, third} {
		p.Start(t)
		t.Cleanup(func() { p.Kill(t) })
	}
	w.admit(t, w.Alice)
	alice := w.Up(t, w.Alice)
	alice.Begin()
	if !w.path.SharesWAN {
		if err := second.Open(); !errors.Is(err, datapath.ErrBusy) {
			t.Errorf("a gateway of another LAN at a WAN that is not shared: %v", err)
		}
		alice.Passes(t, "beside one that was refused")
		return
	}
	must(t, second.Open())
	if err := third.Open(); !errors.Is(err, datapath.ErrBusy) {
		t.Errorf("two gateways of one LAN: %v", err)
	}
	other := w.Up(t, carol)
	other.Begin()
	other.Stops(t, "of the second LAN, before login")
	must(t, second.Set(carol.client(admitted)))
	other.Passes(t, "of the second LAN")
	alice.Passes(t, "of the first LAN")
	must(t, w.Set(w.Alice.client()))
	alice.Stops(t, "after logout at the first gateway")
	other.Passes(t, "beside a logout at the first gateway")
	w.admit(t, w.Alice)
	alice.Passes(t, "admitted again")
	must(t, second.Close())
	must(t, second.Detach())
	alice.Passes(t, "after the second gateway was detached")
}

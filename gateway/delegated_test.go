package gateway

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/delegation"
	"github.com/gateweigh/gateweigh/internal/logtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestNoPrefixFromProvider: where the provider delegates no prefix, the log and the status say so, and clients go on by
// IPv4.
func TestNoPrefixFromProvider(t *testing.T) {
	network6(t)
	var logs logtest.Log
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6, cfg.WAN.Delegation = netip.MustParsePrefix("2001:db8:1::1/64"), true
	d := serveLogging(t, cfg, logs.Logger())
	t.Cleanup(func() { must(t, d.stop()); must(t, Detach(cfg, false)) })
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: netip.MustParseAddr(lease(t)), User: "ann"})
	must(t, err)
	if !clientReachesServer() {
		t.Error("without a prefix the client has no way out by IPv4")
	}
	netnstest.Await(t, "the log to say it", func() error {
		if n := logs.Count("no DHCPv6 server answers: clients have no IPv6 prefix of the provider"); n != 1 {
			return errors.New(logs.String())
		}
		return nil
	})
	st, err := c.Status(t.Context())
	must(t, err)
	if st.IPv6 == nil || len(st.IPv6.Delegated) > 0 ||
		!strings.Contains(st.IPv6.Delegation, "no DHCPv6 server has answered") {
		t.Errorf("the status has %+v", st.IPv6)
	}
}

// TestRoutesEndWithPrefix: the route to a delegated prefix is told until the provider's lease of it ends.
func TestRoutesEndWithPrefix(t *testing.T) {
	cfg := &config.Config{}
	cfg.LAN.Address6, cfg.WAN.Delegation = netip.MustParsePrefix("2001:db8:1::1/64"), true
	g := &gateway{cfg: cfg}
	whole, now := netip.MustParsePrefix("2001:db8:2::/56"), time.Now()
	lease := delegation.Prefix{Prefix: whole, PreferredUntil: now.Add(time.Hour), ValidUntil: now.Add(2 * time.Hour)}
	g.prefixes.all = []usedPrefix{{lease, whole}}
	routes := g.advertisedRoutes()
	if len(routes) != 1 || routes[0].Prefix != whole || !routes[0].Until.Equal(lease.ValidUntil) {
		t.Errorf("clients are told %+v", routes)
	}
}

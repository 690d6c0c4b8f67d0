package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestLANDownAndUp: the kernel drops addresses, routes and neighbours of an interface that goes down. When it is up
// again, with the gateway's addresses, and when it was made anew and the daemon started again, clients pass by all
// their addresses and networks. Long: the steps of one run, each of which needs the state that the one before left.
func TestLANDownAndUp(t *testing.T) {
	network6(t)
	startKea6(t, 300)
	dir := t.TempDir()
	cfg := configured(t, dir, onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.WAN.Delegation = true
	cfg.DHCP6.PDPool = config.ClientPrefixes{Delegated: true}
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(cfg, false)) })
	own := addrOf(t, "client", "c0", delegatedBy(0))
	r := startRouter6(t, cfg)
	_, behind := r.network(t, delegatedBy(0))
	began, err := r.c.Session(t.Context(), r.own)
	must(t, err)
	configuredAddr := addrOf(t, "client", "c0", cfg.LAN.Address6)
	passes := func() {
		t.Helper()
		for _, addr := range []netip.Addr{own, behind, configuredAddr} {
			netnstest.Await(t, "the way out from "+addr.String(), func() error {
				_, err := try("ip netns exec client ping -6 -c 1 -W 1 -I " + addr.String() + " 2001:db8:9::2")
				return err
			})
		}
		netnstest.Await(t, "the way out by IPv4", func() error { // the gateway may have another MAC address
			_, err := try("ip netns exec client ping -c 1 -W 1 192.0.2.2")
			return err
		})
		c, err := control.Dial(cfg.ControlSocket())
		must(t, err)
		if s, err := c.Session(t.Context(), r.own); err != nil || s.ID != began.ID {
			t.Errorf("the client is %+v, %v", s, err)
		}
	}
	passes()
	before := routesOf6(t)
	const addresses = "; ip addr replace 10.1.0.1/24 dev lan0; ip addr replace 2001:db8:1::1/64 dev lan0 nodad"
	sh(t, "ip link set lan0 down; ip link set lan0 up"+addresses)
	passes()
	hasRoutes6(t, before)

	sh(t, "ip link del lan0")
	if err := <-d.result; err == nil || !strings.Contains(err.Error(), "lan0 is gone") {
		t.Errorf("the daemon ended with %v", err)
	}
	d.result <- nil
	sh(t, "ip link add lan0 type veth peer name lan netns hub; ip link set lan0 up"+addresses+
		"; ip netns exec hub sh -ec '"+netnstest.Hub+"plug lan'; "+netnstest.Up+"up lan0")
	awaitLinkLocal6(t, "lan0")
	d = serve(t, cfg)
	passes()
	hasRoutes6(t, before)
}

// routesOf6 are gatewayd's routes and neighbours of the LAN, one a line.
func routesOf6(t *testing.T) string {
	t.Helper()
	return sh(t, "ip -6 route show proto 103 dev lan0; ip -6 neigh show dev lan0 nud permanent")
}

// hasRoutes6 awaits that all of former routes and neighbours are there.
func hasRoutes6(t *testing.T, former string) {
	t.Helper()
	netnstest.Await(t, "routes and neighbours", func() error {
		now := strings.Split(routesOf6(t), "\n")
		for line := range strings.SplitSeq(former, "\n") {
			if !slices.ContainsFunc(now, func(l string) bool { return strings.TrimSpace(l) == strings.TrimSpace(line) }) {
				return fmt.Errorf("of %q there is no %q", now, line)
			}
		}
		return nil
	})
}

// awaitLinkLocal6 waits until an interface of this namespace has a link-local address that no other host has.
func awaitLinkLocal6(t *testing.T, link string) {
	t.Helper()
	netnstest.Await(t, "a link-local address", func() error {
		_, err := try("ip -6 addr show dev " + link + " scope link -tentative | grep -q fe80")
		return err
	})
}

package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// far6 is an address of the Internet behind the provider's router, which is the server.
const far6 = "2001:db8:77::1"

// reachesFar6 reports whether the client reaches the Internet, and what it is told otherwise.
func reachesFar6() (string, error) {
	return try("ip netns exec client ping -6 -c 1 -W 4 " + far6)
}

// answered6 awaits that the client's packets to the Internet are answered with an error.
func answered6(t *testing.T, with string) {
	t.Helper()
	netnstest.Await(t, "the answer "+with, func() error {
		out, err := reachesFar6()
		if err == nil || !strings.Contains(out, with) {
			return errors.New(out)
		}
		return nil
	})
}

// hasDefault6 awaits that the client has a default route by router advertisements, or none.
func hasDefault6(t *testing.T, want bool) {
	t.Helper()
	netnstest.Await(t, "the client's default route", func() error {
		out, err := try("ip -n client -6 route show default proto ra")
		if err == nil && strings.Contains(out, "via") != want {
			err = fmt.Errorf("it has %q", out)
		}
		return err
	})
}

// TestProvidersRouterAway: while the provider's router is gone, clients are told at once that there is no way, the
// gateway is not their default router, and the portal works by IPv6. All returns with the router. Long: the steps of
// one run, each of which needs the state that the one before left.
func TestProvidersRouterAway(t *testing.T) {
	network6(t)
	sh(t, "ip -n server addr add "+far6+"/128 dev lo; sysctl -qw net.ipv6.conf.wan0.accept_ra=2")
	awaitLinkLocal(t, "server", "s0")
	router := exec.Command("ip", "netns", "exec", "server", "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null",
		"--pid-file=", "--port=0", "--interface=s0", "--enable-ra", "--dhcp-range=2001:db8:9::,ra-only", "--ra-param=s0,4,8")
	netnstest.Background(t, router)
	d := serve6(t, t.TempDir())
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })
	lease(t)
	awaitAddrs6(t, 1)
	login6(t)
	netnstest.Await(t, "the way out", func() error { _, err := reachesFar6(); return err })
	hasDefault6(t, true)

	must(t, router.Process.Signal(syscall.SIGSTOP)) // its last advertisement is good for 8 s
	hasDefault6(t, false)
	gw, err := linkLocal("lan0")
	must(t, err)
	sh(t, "ip -n client -6 route add default via "+gw.String()+" dev c0 metric 9999") // as a host that does not listen
	answered6(t, "No route")
	logout6(t)
	login6(t)
	if !clientReachesServer() {
		t.Error("IPv4 does not pass without the provider's router of IPv6")
	}

	must(t, router.Process.Signal(syscall.SIGCONT))
	netnstest.Await(t, "the way out", func() error { _, err := reachesFar6(); return err })
	hasDefault6(t, true)

	must(t, router.Process.Kill()) // and another router, which is not there yet
	sh(t, "ip -6 route add default via 2001:db8:9::99 metric 1")
	answered6(t, "Address unreachable")
	logout6(t)
	login6(t)
	sh(t, "ip -n server addr add 2001:db8:9::99/64 dev s0 nodad")
	netnstest.Await(t, "the way out", func() error { _, err := reachesFar6(); return err })
}

// TestProvidersRouterAwayForEach: where each client has a /64 of its own, the gateway stays the router to DNS and
// portal.
func TestProvidersRouterAwayForEach(t *testing.T) {
	network6(t)
	sh(t, "ip -n server addr add "+far6+"/128 dev lo; ip -6 route add default via 2001:db8:9::2; "+
		"ip -n server route add 2001:db8:100::/48 via 2001:db8:9::1")
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.LAN.ClientPrefixes = config.ClientPrefixes{Pool: netip.MustParsePrefix("2001:db8:100::/48")}
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })
	lease(t)
	awaitAddrs6(t, 1)
	login6(t)
	netnstest.Await(t, "the way out", func() error { _, err := reachesFar6(); return err })
	sh(t, "ip -6 route del default")
	answered6(t, "No route")
	logout6(t)
	login6(t)
	sh(t, "ip -6 route add default via 2001:db8:9::2")
	netnstest.Await(t, "the way out", func() error { _, err := reachesFar6(); return err })
}

package gateway

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestClientPrefixes: each client has a /64 of its own, the same one after a restart, and no other client can use an
// address of it, logged in or not. DNS answers it before it has logged in. Long: the steps of one run, each of which
// needs the state that the one before left.
func TestClientPrefixes(t *testing.T) {
	network6(t)
	pool := netip.MustParsePrefix("2001:db8:100::/48")
	sh(t, `ip netns add other; ip -n client link add c1 link c0 netns other type macvlan mode bridge
ip -n server route add 2001:db8:100::/48 via 2001:db8:9::1`)
	t.Cleanup(func() { sh(t, "ip netns del other") })
	dir := t.TempDir()
	start := func() daemon {
		cfg := configured(t, dir, onEBPF)
		cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
		cfg.LAN.ClientPrefixes, cfg.Portal.Name = config.ClientPrefixes{Pool: pool}, inn
		return serve(t, cfg)
	}
	d := start()
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	addr4 := netip.MustParseAddr(lease(t))
	first := awaitAddrs6(t, 1)[0]
	sh(t, "ip -n other link set c1 up")
	var second netip.Addr
	netnstest.Await(t, "an address of the other client", func() (err error) {
		second, err = globalAddr("other", "c1")
		return err
	})
	own, others := netip.PrefixFrom(first, 64).Masked(), netip.PrefixFrom(second, 64).Masked()
	if !pool.Contains(first) || !pool.Contains(second) || own == others {
		t.Fatalf("the clients have %s and %s", first, second)
	}
	if answer, err := asks6("2001:db8:1::1", inn); err != nil || !strings.Contains(answer, "2001:db8:1::1") {
		t.Errorf("asked for the portal, DNS says %q, %v", answer, err)
	}
	stolen := others.Addr().Next().Next()
	sh(t, "ip -n client addr add "+stolen.String()+"/128 dev c0 nodad")
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: addr4, User: "ann"})
	must(t, err)
	netnstest.Await(t, "the way out", func() error { return reaches6(first) })
	if reaches6(stolen) == nil {
		t.Errorf("%s, of another client's /64, passes", stolen)
	}
	if got := furtherOf(t, d, addr4); !slices.Contains(got, first) || slices.Contains(got, stolen) {
		t.Errorf("the client is shown with %v", got)
	}
	must(t, d.stop())
	must(t, reaches6(first))
	d = start()
	must(t, reaches6(first))
	if got := furtherOf(t, d, addr4); !slices.Contains(got, first) {
		t.Errorf("after a restart the client is shown with %v", got)
	}
	must(t, d.stop())
	must(t, Detach(d.cfg, false))
	if out := sh(t, "ip -6 route show dev lan0"); strings.Contains(out, "2001:db8:100:") {
		t.Errorf("a route is left: %s", out)
	}
}

// furtherOf returns the addresses that a client has beside the one by which it was first known.
func furtherOf(t *testing.T, d daemon, client netip.Addr) (further []netip.Addr) {
	t.Helper()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	must(t, c.Sessions(t.Context(), control.Filter{}, func(s control.Session) error {
		if s.Addr == client {
			further = s.Further
		}
		return nil
	}))
	return further
}

// globalAddr returns a global address that an interface has and that no other host has.
func globalAddr(namespace, link string) (netip.Addr, error) {
	out, err := try("ip -n " + namespace + " -6 -o addr show dev " + link + " scope global -tentative")
	if err != nil {
		return netip.Addr{}, err
	}
	for word := range strings.FieldsSeq(out) {
		if p, err := netip.ParsePrefix(word); err == nil {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("none yet")
}

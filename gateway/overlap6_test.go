package gateway

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/bindings"
	"github.com/gateweigh/gateweigh/gateway/dhcp6"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestRouteOfNextSession: a session of a client that ends while another one with the same network behind it begins
// leaves the network to it.
func TestRouteOfNextSession(t *testing.T) {
	g, client := &gateway{}, bindings.Anchor{MAC: [6]byte{2, 0, 0, 0, 0, 1}}
	given := &session.Grant6{Routes: []netip.Prefix{netip.MustParsePrefix("2001:db8:6000::/48")}}
	must(t, g.giveRoutes(client, "former", given))
	begun := make(chan error)
	g.delegated6.mu.Lock() // the next session is between its steps
	go func() { begun <- g.giveRoutes(client, "next", given) }()
	netnstest.Await(t, "the next session's grant", func() error {
		g.grants.mu.Lock()
		defer g.grants.mu.Unlock()
		if g.grants.all[client]["next"] == nil {
			return errors.New("it is not noted")
		}
		return nil
	})
	ended := make(chan struct{})
	go func() {
		g.revoke(client, "former")
		close(ended)
	}()
	g.delegated6.mu.Unlock()
	must(t, <-begun)
	<-ended
	if got := g.delegated6.networks(client); !slices.Equal(got, given.Routes) {
		t.Errorf("the client has %v, want %v", got, given.Routes)
	}
	g.revoke(client, "next")
	if got := g.delegated6.networks(client); len(got) > 0 {
		t.Errorf("after both sessions the client has %v", got)
	}
}

// TestWishOfSessions: a session without a pool leaves to its client what another one of it has.
func TestWishOfSessions(t *testing.T) {
	var grants grants6
	client, pool := bindings.Anchor{MAC: [6]byte{2, 0, 0, 0, 0, 1}}, netip.MustParsePrefix("2001:db8:7::/48")
	grants.add(client, "with", &session.Grant6{DelegatedOf: pool, AddressOf: pool})
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		grants.add(client, id, &session.Grant6{})
	}
	for _, kind := range []dhcp6.Kind{dhcp6.Address, dhcp6.Delegated} {
		for range 20 { // the order of sessions is by chance
			if w := grants.wish(client, kind); w.Within != pool {
				t.Fatalf("of kind %v the client is to have something of %s, want %s", kind, w.Within, pool)
			}
		}
	}
}

// TestOtherHolders: who has a part of a network beside the client itself is found, and the client does not get it.
func TestOtherHolders(t *testing.T) {
	var d delegations6
	client, other := bindings.Anchor{MAC: [6]byte{2, 0, 0, 0, 0, 1}}, bindings.Anchor{MAC: [6]byte{2, 0, 0, 0, 0, 2}}
	network := netip.MustParsePrefix("2001:db8:6000::/48")
	add := func(to bindings.Anchor, networks ...string) {
		for _, n := range networks {
			d.add(to, netip.MustParsePrefix(n))
		}
	}
	add(client, "2001:db8:6000:1::/64", "2001:db8:6000:2::/64", "2001:db8:6000::/48")
	if holders := d.otherHolders(client, network); len(holders) > 0 {
		t.Errorf("%s of the client is of %v", network, holders)
	}
	add(other, "2001:db8:6000:3::/64", "2001:db8:6000:4::/64")
	if holders := d.otherHolders(client, network); !slices.Equal(holders, []bindings.Anchor{other}) {
		t.Errorf("%s is of %v, want %v", network, holders, other)
	}
	if _, holder, free := d.claim(client, []netip.Prefix{network}); free || holder != other {
		t.Errorf("the client gets %s, of which %v has a part: %v", network, other, holder)
	}
}

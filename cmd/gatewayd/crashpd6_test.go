package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// askNetwork has the client ask for a delegated prefix by ISC dhclient, or renew it, and returns the one that the
// daemon then shows.
func (c *client) askNetwork() (network netip.Prefix) {
	t := c.w.t
	t.Helper()
	files := filepath.Join(c.w.Dir, c.host)
	must(t, os.WriteFile(files+".script", []byte("#!/bin/sh\n"), 0o755)) // dhclient configures no address
	c.sh(fmt.Sprintf("dhclient -6 -P -1 -q -sf %[1]s.script -lf %[1]s.leases -pf %[1]s.pid c0", files))
	c.w.sh("kill $(cat " + files + ".pid)")
	eventually(t, "a network of "+c.host, func() error {
		daemon, err := c.w.control()
		if err != nil {
			return err
		}
		s, err := daemon.Session(context.Background(), c.addr)
		if err == nil && len(s.Delegated) != 1 {
			err = fmt.Errorf("it has %v", s.Delegated)
		}
		if err == nil {
			network = s.Delegated[0]
		}
		return err
	})
	return network
}

// sendFrom has the client's datagrams to the server come from an address.
func (c *client) sendFrom(addr netip.Addr) {
	c.sh(fmt.Sprintf("sh -ec 'ip addr replace %[1]s/128 dev c0 nodad; "+
		"ip route replace %[2]s via 2001:db8:1::1 dev c0 src %[1]s'", addr, server6Addr))
}

// TestKilledWithDelegatedNetwork: while the daemon is killed, is away and comes back, every datagram arrives that comes
// from the network of a client that is logged in, and none that another client sends from it. The client has the same
// network afterwards. Long: the steps of one run, each of which needs the state that the one before left.
func TestKilledWithDelegatedNetwork(t *testing.T) {
	t.Parallel()
	w := newNetwork6(t)
	path := filepath.Join(w.Dir, "gatewayd.toml")
	text, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(path, append(text, "\n[dhcp6]\npd_pool = \"2001:db8:200::/48\"\n"...), 0o600))
	w.sh(`nsenter --net=/run/netns/$ID-server ip route add 2001:db8:200::/48 via 2001:db8:9::1`)
	w.start()
	ann, bob := w.client6(), w.client6()
	for _, c := range []*client{ann, bob} {
		eventually(t, c.host+" is logged in", func() error {
			c.try("ping -6 -c 1 -W 1 2001:db8:1::1") // by which it is a client
			daemon, err := w.control()
			if err == nil {
				_, err = daemon.Login(context.Background(), control.LoginRequest{Addr: c.addr, User: "ann"})
			}
			return err
		})
	}
	network := ann.askNetwork()
	ann.sendFrom(network.Addr().Next())
	bob.sendFrom(network.Addr().Next().Next())
	eventually(t, "ann's way out", func() error {
		_, err := ann.try("ping -6 -c 1 -W 4 " + server6Addr.String())
		return err
	})
	id := ann.session().ID
	admitted, thief := w.flowTo(ann.host, "server", server6Addr, 500), w.flowTo(bob.host, "server", server6Addr, 100)
	admitted.start()
	thief.start()
	for range *rounds {
		w.kill()
		admitted.goesOn(t, "without a daemon")
		w.start()
		admitted.goesOn(t, "under the next daemon")
		w.replace()
		admitted.goesOn(t, "under one that took over")
	}
	if again := ann.askNetwork(); again != network {
		t.Errorf("the network is %s, and before it was %s", again, network)
	}
	thief.halt()
	if n := thief.received.Load(); n > 0 || thief.sent.Load() == 0 {
		t.Errorf("%d of %d datagrams arrived from another client's network", n, thief.sent.Load())
	}
	admitted.halt()
	admitted.expectAll(t, "datagrams from the network of who is logged in")
	if s := ann.session(); s.ID != id || !slices.Equal(s.Delegated, []netip.Prefix{network}) {
		t.Errorf("the session is %+v, want %s with %s", s, id, network)
	}
}

package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// router6 is the client as a router: ISC dhclient asks for a network, and down0 leads to the hosts of it.
type router6 struct {
	c       *control.Client
	own     netip.Addr // the client's IPv4 address
	command string     // dhclient, without what it is to do
}

// startRouter6 has the client lease an address, log in and ask for a network.
func startRouter6(t *testing.T, cfg *config.Config) router6 {
	t.Helper()
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	r := router6{c: c, own: netip.MustParseAddr(lease(t))}
	_, err = c.Login(t.Context(), control.LoginRequest{Addr: r.own, User: "ann"})
	must(t, err)
	awaitLinkLocal(t, "client", "c0")
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "script"), []byte("#!/bin/sh\n"), 0o755)) // which addresses nothing
	pid := filepath.Join(dir, "pid")
	r.command = fmt.Sprintf("ip netns exec client dhclient -6 -P -q -sf %[1]s/script -lf %[1]s/lease -pf %[2]s ", dir, pid)
	sh(t, "ip netns exec client sh -ec '"+down+"'; "+r.command+"-1 c0")
	t.Cleanup(func() { try("kill $(cat " + pid + ")") })
	return r
}

// network awaits the only network that the client has of a prefix, and gives down0 an address of it.
func (r router6) network(t *testing.T, of netip.Prefix) (network netip.Prefix, addr netip.Addr) {
	t.Helper()
	netnstest.Await(t, "a network of "+of.String(), func() error {
		s, err := r.c.Session(t.Context(), r.own)
		if err == nil && (len(s.Delegated) != 1 || !of.Overlaps(s.Delegated[0])) {
			err = fmt.Errorf("the client is %+v", s)
		}
		if err == nil {
			network = s.Delegated[0]
		}
		return err
	})
	addr = network.Addr().Next()
	sh(t, "ip -n client addr replace "+addr.String()+"/128 dev down0 nodad")
	return network, addr
}

// ended awaits that the client has no network of a prefix. Packets from it are neither forwarded nor counted as the
// client's.
func (r router6) ended(t *testing.T, former netip.Prefix, addr netip.Addr) {
	t.Helper()
	var before control.Session
	netnstest.Await(t, "the end of "+former.String(), func() (err error) {
		before, err = r.c.Session(t.Context(), r.own)
		for _, p := range before.Delegated {
			if p.Overlaps(former) {
				err = fmt.Errorf("the client has %v", before.Delegated)
			}
		}
		return err
	})
	dropped := func() uint64 {
		st, err := r.c.Status(t.Context())
		must(t, err)
		return st.Packets["foreign-source"] + st.Packets["not-leased"]
	}
	count := dropped()
	if _, err := try("ip netns exec client ping -6 -c 3 -i 0.1 -W 1 -I " + addr.String() + " 2001:db8:9::2"); err == nil {
		t.Errorf("%s still passes", addr)
	}
	netnstest.Await(t, "packets from "+addr.String()+" to be dropped", func() error {
		if n := dropped() - count; n < 3 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	after, err := r.c.Session(t.Context(), r.own)
	must(t, err)
	if after.ID != before.ID || after.UpPackets != before.UpPackets {
		t.Errorf("the client is %+v, and before it was %+v", after, before)
	}
	if out := sh(t, "ip -6 route show "+former.String()); out != "" {
		t.Errorf("a route is left: %s", out)
	}
}

// TestReleasedNetwork: a network that its client gives back is no longer its client's. When the client asks again, the
// same one is delegated to it.
func TestReleasedNetwork(t *testing.T) {
	network6(t)
	sh(t, "ip -n server route add "+pd6.String()+" via 2001:db8:9::1")
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.DHCP6.PDPool, cfg.DHCP6.PDLength = config.ClientPrefixes{Pool: pd6}, 60
	d := serve(t, cfg)
	t.Cleanup(func() { must(t, d.stop()); must(t, Detach(cfg, false)) })
	r := startRouter6(t, cfg)
	network, addr := r.network(t, pd6)
	if network.Bits() != 60 {
		t.Errorf("%s is delegated, want a /60", network)
	}
	netnstest.Await(t, "the way out", func() error { return reaches6(addr) })
	sh(t, r.command+"-r c0")
	r.ended(t, network, addr)
	sh(t, r.command+"-1 c0")
	again, _ := r.network(t, pd6)
	if again != network {
		t.Errorf("%s is delegated, and before it was %s", again, network)
	}
	netnstest.Await(t, "the way out", func() error { return reaches6(addr) })
}

// TestNetworksOfProvider: clients are delegated networks of the prefix that the provider delegates, /64s and /60s. When
// the provider replaces it, they get others. When the provider is gone, they end with it.
func TestNetworksOfProvider(t *testing.T) {
	for _, length := range []int{64, 60} {
		t.Run(fmt.Sprintf("of the length %d", length), func(t *testing.T) { networksOfProvider(t, length) })
	}
}

// networksOfProvider is TestNetworksOfProvider with networks of one length.
func networksOfProvider(t *testing.T, length int) {
	t.Helper()
	network6(t)
	kea := startKea6(t, 20)
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.WAN.Delegation = true
	cfg.DHCP6.PDPool, cfg.DHCP6.PDLength = config.ClientPrefixes{Delegated: true}, length
	d := serve(t, cfg)
	t.Cleanup(func() { must(t, d.stop()); must(t, Detach(cfg, false)) })
	addrOf(t, "client", "c0", delegatedBy(0))
	r := startRouter6(t, cfg)
	network, addr := r.network(t, delegatedBy(0))
	if network.Bits() != length || network.Contains(delegatedBy(0).Addr()) {
		t.Errorf("%s is delegated, want one of the length %d beside that of the LAN", network, length)
	}
	netnstest.Await(t, "the way out", func() error { return reaches6(addr) })

	kea.change(t, delegatedBy(1), 20)
	next, nextAddr := r.network(t, delegatedBy(1))
	if next.Bits() != length {
		t.Errorf("%s is delegated", next)
	}
	netnstest.Await(t, "the way out", func() error { return reaches6(nextAddr) })
	r.ended(t, network, addr)

	must(t, kea.cmd.Process.Kill())
	r.ended(t, next, nextAddr)
	if !clientReachesServer() {
		t.Error("without a prefix of the provider IPv4 does not pass")
	}
}

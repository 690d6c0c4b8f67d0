package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// down makes an interface to hosts behind a client.
const down = "ip link add down0 type veth peer name down1; ip link set down0 up; ip link set down1 up; "

// delegated6 are programs that ask for a prefix, and give the interface down0 an address of it if they can. The first
// one's host has no other global address (RFC 9663).
var delegated6 = []program6{
	{name: "dhcp6c", set: down + noSLAAC, start: `
echo 'interface c0 { send ia-pd 1; };
id-assoc pd 1 { prefix-interface down0 { sla-id 0; sla-len 0; }; };' >/run/conf
set -- dhcp6c -f -c /run/conf c0`},
	{name: "dhcpcd", set: down + noRA, start: `
printf 'allowinterfaces c0 down0\ninterface c0\nipv6rs\nia_pd 1 down0/0\n' >/etc/dhcpcd.conf
set -- dhcpcd -B -6 c0`},
	{name: "networkd", set: down + noRA, start: `
mkdir -p /run/systemd/network /run/systemd/netif
printf '[Match]\nName=c0\n[Network]\nIPv6AcceptRA=yes\n[IPv6AcceptRA]\nDHCPv6Client=always\n' \
	>/run/systemd/network/c0.network
printf '[Match]\nName=down0\n[Network]\nDHCPPrefixDelegation=yes\n' >/run/systemd/network/down0.network
chown -R systemd-network: /run/systemd; mount -o remount,ro,bind /sys # else it waits for udev
set -- /lib/systemd/systemd-networkd`},
	{name: "dhclient", set: down + ":", start: "set -- dhclient -6 -P -d c0"},
}

var pd6 = netip.MustParsePrefix("2001:db8:200::/48")

// awaitNetwork awaits that the client has a network, and returns it with an address on down0, which it gives the client
// where its program does not.
func (p program6) awaitNetwork(t *testing.T, c *control.Client, number int) (network netip.Prefix, addr netip.Addr) {
	t.Helper()
	mac := fmt.Sprintf("02:00:00:00:01:%02d", number)
	netnstest.Await(t, "a network of "+p.name, func() error {
		out, err := p.in("ip -6 -o addr show dev down0 scope global -tentative")
		if m := regexp.MustCompile(`inet6 (\S+)/`).FindStringSubmatch(out); m != nil {
			addr = netip.MustParseAddr(m[1])
			network = netip.PrefixFrom(addr, 64).Masked()
			return nil
		}
		if err != nil {
			return err
		}
		err = errors.New("none yet")
		must(t, c.Sessions(t.Context(), control.Filter{}, func(s control.Session) error {
			if s.MAC == mac && len(s.Delegated) == 1 && p.name == "dhclient" {
				network, addr, err = s.Delegated[0], s.Delegated[0].Addr().Next(), nil
				_, err = p.in("ip addr add " + addr.String() + "/64 dev down0 nodad")
			}
			return nil
		}))
		return err
	})
	return network, addr
}

// reachesFrom reports whether the client reaches the server from an address.
func (p program6) reachesFrom(addr netip.Addr) error {
	_, err := p.in("ping -6 -c 1 -W 1 -I " + addr.String() + " 2001:db8:9::2")
	return err
}

// TestPrefixesForClients: clients ask for prefixes (IA_PD), by programs as their packages have them. The hosts behind a
// client pass once it is logged in, by its session, also after a restart, and nobody else can use their addresses.
// Long: the steps of one run, each of which needs the state that the one before left.
func TestPrefixesForClients(t *testing.T) {
	network6(t)
	sh(t, "ip -n server route add "+pd6.String()+" via 2001:db8:9::1")
	for i, p := range delegated6 {
		p.plug6(t, i+1)
	}
	dir := t.TempDir()
	start := func() (daemon, *control.Client) {
		cfg := configured(t, dir, onEBPF)
		cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
		cfg.DHCP6.PDPool = config.ClientPrefixes{Pool: pd6}
		d := serve(t, cfg)
		c, err := control.Dial(d.cfg.ControlSocket())
		must(t, err)
		return d, c
	}
	d, c := start()
	t.Cleanup(func() { must(t, Detach(d.cfg, false)) })
	of := map[string]netip.Addr{}
	for _, p := range delegated6 {
		p.run(t)
	}
	for i, p := range delegated6 {
		network, addr := p.awaitNetwork(t, c, i+1)
		of[p.name] = addr
		if !pd6.Contains(addr) {
			t.Fatalf("%s has %s", p.name, addr)
		}
		p.portal(t)                              // which the first one's host asks for from its link-local address
		if i < 2 && p.reachesFrom(addr) == nil { // the others are judged as the second one is
			t.Errorf("%s reaches the server from %s before login", p.name, addr)
		}
		p.login(t)
		netnstest.Await(t, "the way out of "+p.name, func() error { return p.reachesFrom(addr) })
		s, err := c.Session(t.Context(), addr)
		must(t, err)
		if !slices.Equal(s.Delegated, []netip.Prefix{network}) || s.State != session.Authenticated {
			t.Errorf("%s is %+v", p.name, s)
		}
	}
	must(t, d.stop())
	d, _ = start()
	for _, p := range delegated6 {
		netnstest.Await(t, "the way out of "+p.name, func() error { return p.reachesFrom(of[p.name]) })
	}
	thief, stolen := delegated6[1], of["dhcp6c"].Next()
	_, err := thief.in("ip addr add " + stolen.String() + "/128 dev down0 nodad")
	must(t, err)
	if thief.reachesFrom(stolen) == nil {
		t.Errorf("%s passes from another client", stolen)
	}
	must(t, d.stop())
	must(t, Detach(d.cfg, false))
	if out := sh(t, "ip -6 route show proto 103; ip -6 neigh show dev lan0 nud permanent"); strings.TrimSpace(out) != "" {
		t.Errorf("routes or neighbours are left: %s", out)
	}
}

package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestIsolatedPorts: clients at isolated ports of a bridge reach each other through the gateway alone, where the
// network lets them and both are logged in. Of an address that another client has they are told. No frame of a client
// arrives at another.
func TestIsolatedPorts(t *testing.T) {
	pool := config.ClientPrefixes{Pool: netip.MustParsePrefix("2001:db8:100::/48")}
	for name, mode := range map[string]isolation{
		"off": {proxy: config.Off}, "dad": {proxy: config.NDProxyDAD, defends: true},
		"all":  {proxy: config.NDProxyAll, defends: true, reaches: true},
		"each": {proxy: config.NDProxyDAD, each: pool, reaches: true}, // nobody is on the link of another
	} {
		t.Run(name, mode.test)
	}
}

// isolation is how a network treats clients at isolated ports, and what they notice.
type isolation struct {
	proxy            string
	each             config.ClientPrefixes
	defends, reaches bool
}

// test is TestIsolatedPorts with one kind of network. Long: the steps of one run, each of which needs the state that
// the one before left.
func (i isolation) test(t *testing.T) {
	network6(t)
	addIntruder(t)
	sh(t, `ip netns exec hub sh -ec 'bridge link set dev c1 isolated on; bridge link set dev i1 isolated on'`)
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.LAN.NDProxy, cfg.LAN.ClientPrefixes = i.proxy, i.each
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(cfg, false)) })
	c, err := control.Dial(cfg.ControlSocket())
	must(t, err)
	received := watch6(t, "intruder", "i0")
	client, other := host6{"client", "c0"}, host6{"intruder", "i0"}
	addrs := []netip.Addr{client.known(t, c), other.known(t, c)}
	ping := func(from host6, to netip.Addr) error {
		_, err := try(fmt.Sprintf("ip netns exec %s ping -6 -c 1 -W 1 %s", from.namespace, to))
		return err
	}
	login := func(addr netip.Addr) {
		t.Helper()
		_, err := c.Login(t.Context(), control.LoginRequest{Addr: addr, User: "ann"})
		must(t, err)
	}
	login(addrs[0])
	if ping(client, addrs[1]) == nil {
		t.Error("the client reaches one that is not logged in")
	}
	login(addrs[1])
	if i.reaches {
		for range 4 { // also after what the first packets cause
			netnstest.Await(t, "the other client", func() error { return ping(client, addrs[1]) })
			netnstest.Await(t, "the client", func() error { return ping(other, addrs[0]) })
		}
		if st, err := c.Session(t.Context(), addrs[0]); err != nil || st.UpPackets < 8 {
			t.Errorf("not counted: %+v, %v", st, err)
		}
	} else if ping(client, addrs[1]) == nil || ping(other, addrs[0]) == nil {
		t.Error("clients reach each other")
	}
	local := sh(t, "ip -n intruder -6 -o addr show scope link | grep -o 'fe80[^/]*'")
	if ping(client, netip.MustParseAddr(local).WithZone("c0")) == nil {
		t.Error("the client reaches the other's link-local address")
	}
	if i.defends {
		sh(t, "ip -n intruder addr add "+addrs[0].String()+"/64 dev i0")
		netnstest.Await(t, "the end of duplicate address detection", func() error {
			if out := sh(t, "ip -n intruder -6 addr show dev i0"); !strings.Contains(out, "dadfailed") {
				return errors.New(out)
			}
			return nil
		})
	}
	frames := sh(t, "tcpdump -n -e -r "+received+" ether src "+linkMACIn(t, "client", "c0")+" 2>/dev/null")
	if frames != "" {
		t.Errorf("the other client has received:\n%s", frames)
	}
}

// host6 is a link in a namespace.
type host6 struct{ namespace, link string }

// known awaits that the gateway knows a host's global address, and returns it.
func (h host6) known(t *testing.T, c *control.Client) (addr netip.Addr) {
	t.Helper()
	netnstest.Await(t, "the gateway to know "+h.namespace, func() (err error) {
		if addr, err = globalAddr(h.namespace, h.link); err == nil {
			try("ip netns exec " + h.namespace + " ping -6 -c 1 -W 1 2001:db8:1::1")
			_, err = c.Session(t.Context(), addr)
		}
		return err
	})
	return addr
}

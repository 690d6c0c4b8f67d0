package gateway

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/gateway/session"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// useAddress has a host use an address until done is true.
func useAddress(t *testing.T, namespace, addr, what string, done func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		try("ip netns exec " + namespace + " ping -q -c 1 -W 0.3 -I " + addr + " 10.1.0.1")
		return done()
	})
}

// claiming returns the configuration of a gateway with a pool, whose devices may have addresses of their own.
func claiming(t *testing.T, keys string, claimable ...config.Range) *config.Config {
	t.Helper()
	cfg := configured(t, t.TempDir(), keys)
	at := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, 0, last}) }
	cfg.DHCP.Claims, cfg.DHCP.Claimable = true, append(claimable, config.Range{First: at(2), Last: at(101)})
	cfg.DHCP.Pools = []config.Range{{First: at(100), Last: at(200)}}
	return cfg
}

// dhcpCount reads a counter of the DHCP server.
func (d daemon) dhcpCount(t *testing.T, event string) uint64 {
	t.Helper()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	status, err := c.Status(t.Context())
	must(t, err)
	return status.DHCP[event]
}

// TestClaimBegins: an address is asked about until its claim was decided, and after a refusal not for a while.
func TestClaimBegins(t *testing.T) {
	var o ownAddresses
	addr, now := netip.MustParseAddr("10.1.0.20"), time.Now()
	if o.asks(addr) || !o.begin(addr, now) || !o.asks(addr) || o.begin(addr, now) {
		t.Errorf("a claim that begins: %v", o.asked)
	}
	o.end(addr, true)
	if o.asks(addr) || o.begin(addr, now) || !o.begin(addr, now.Add(time.Hour)) || !o.asks(addr) {
		t.Errorf("a claim that was refused: %v", o.asked)
	}
	o.end(addr, false)
	if o.asks(addr) {
		t.Errorf("a claim that was decided: %v", o.asked)
	}
}

// TestOwnAddresses: beside gatewayd's DHCP server a device has an address of its own. It logs in at the portal, passes,
// and still does after a restart. It gets no address that another device has, whether that is a client or only answers
// ARP, none that may not be claimed, and not the gateway's; DHCP leases nobody what it has. With each data path.
func TestOwnAddresses(t *testing.T) {
	for name, keys := range map[string]string{"ebpf": onEBPF, "nfqueue": "kind = \"nfqueue\"",
		"tun": "kind = \"tun\"", "tun, fast": "kind = \"tun\"\nfast = true"} {
		t.Run(name, func(t *testing.T) { ownAddressesOn(t, keys) })
	}
}

// ownAddressesOn is TestOwnAddresses with a data path. Long: the steps of one run, each of which needs the state that
// the one before left.
func ownAddressesOn(t *testing.T, keys string) {
	network(t)
	addClient(t, "other", "o", net.HardwareAddr{2, 0, 0, 0, 0, 0x67})
	if strings.Contains(keys, `"tun"`) {
		sh(t, "ip addr flush dev lan0")
	}
	d := serve(t, claiming(t, keys))
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })
	own, others := linkMACIn(t, "client", "c0"), linkMACIn(t, "other", "o0")

	sh(t, "ip -n client addr add 10.1.0.20/24 dev c0; ip -n client route add default via 10.1.0.1")
	useAddress(t, "client", "10.1.0.20", "the claim", func() bool { return d.hasEntry(t, "10.1.0.20", own) })
	logsIn(t)
	must(t, d.stop())
	d = serve(t, d.cfg)
	if s := d.client(t); s.State != session.Authenticated || !clientReachesServer() {
		t.Errorf("after a restart the client is %q", s.State)
	}

	// The other device has addresses that the first one tries: one of which it is no client, and one that it leased.
	sh(t, "ip -n other addr add 10.1.0.30/24 dev o0; ip -n client addr add 10.1.0.30/24 dev c0")
	useAddress(t, "client", "10.1.0.30", "a conflict", func() bool { return d.dhcpCount(t, "claim-conflict") > 0 })
	sh(t, "ip -n other addr flush dev o0")
	// Nobody leases what the first one claims next, in the pool.
	sh(t, "ip -n client addr add 10.1.0.100/24 dev c0")
	useAddress(t, "client", "10.1.0.100", "a claim in the pool", func() bool { return d.hasEntry(t, "10.1.0.100", own) })
	leased := leaseIn(t, "other", "o0")
	if leased == "10.1.0.100" || !d.hasEntry(t, leased, others) {
		t.Errorf("the other device leases %s", leased)
	}
	// The other device tries what the first one has, the gateway's address, and one that may not be claimed.
	before := d.dhcpCount(t, "claim")
	for _, addr := range []string{"10.1.0.20", "10.1.0.1", "10.1.0.150"} {
		sh(t, "ip -n other addr add "+addr+"/24 dev o0")
		try("ip netns exec other ping -q -c 2 -W 0.3 -I " + addr + " 10.1.0.2")
		sh(t, "ip -n other addr del "+addr+"/24 dev o0")
	}
	sh(t, "ip -n other addr add 10.1.0.40/24 dev o0") // a later claim shows that they were decided
	useAddress(t, "other", "10.1.0.40", "a later claim", func() bool { return d.dhcpCount(t, "claim") > before })
	if all := d.sessions(t); len(all) != 4 || !d.hasEntry(t, "10.1.0.40", others) {
		t.Errorf("the clients are %+v", all)
	}
	if !d.hasEntry(t, "10.1.0.20", own) || !clientReachesServer() {
		t.Error("the first device has lost its address")
	}
}

// TestOwnAddressesAge: a claim lasts as long as its device answers ARP, and a device gets few of them.
func TestOwnAddressesAge(t *testing.T) {
	network(t)
	cfg := claiming(t, onEBPF)
	cfg.DHCP.Lease = 6 * time.Second
	cfg.DHCP.ShortLease = cfg.DHCP.Lease
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })
	sh(t, `for i in $(seq 20 29); do ip -n client addr add 10.1.0.$i/24 dev c0; done`)
	eventually(t, "claims", func() bool {
		try(`for i in $(seq 20 29); do ip netns exec client ping -q -c 1 -W 0.05 -I 10.1.0.$i 10.1.0.1 || :; done`)
		return d.dhcpCount(t, "claim-refused") > 0
	})
	first := d.awaitClients(t, maxClaims)
	// Silent as it is, the device has them after the time for which they were given.
	netnstest.Await(t, "the claims are kept", func() error {
		for _, s := range d.sessions(t) {
			if !s.LeaseEnd.After(first[0].LeaseEnd.Add(6 * time.Second)) {
				return fmt.Errorf("%+v", s)
			}
		}
		return nil
	})
	d.awaitClients(t, maxClaims)
	sh(t, "ip -n client addr flush dev c0")
	d.awaitClients(t, 0)
}

// Helpers of this package's tests: newNetwork makes the interfaces of a gateway with clients and a server, open starts
// a data path on them, and detach removes it.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { datapathtest.Main(m, paths()...) }

// Addresses of the tests' networks.
var (
	lanPrefix = netip.MustParsePrefix("10.1.0.0/24")
	gateway   = datapathtest.Gateway
	alice     = netip.MustParseAddr("10.1.0.10")
	bob       = netip.MustParseAddr("10.1.0.11")
	nobody    = netip.MustParseAddr("10.1.0.77")
	server    = datapathtest.Server
	routerWAN = datapathtest.RouterWAN

	aliceMAC  = datapath.MAC{2, 0, 0, 0, 0, 10}
	bobMAC    = datapath.MAC{2, 0, 0, 0, 0, 11}
	lanMAC    = datapathtest.LANMAC
	wanMAC    = datapathtest.WANMAC
	serverMAC = datapathtest.ServerMAC
)

// network is a router between a client's and a server's namespace, for one test.
type network struct {
	lan, wan            string // of the router, which is this namespace
	client, hub, server string // names of namespaces
}

// newNetwork creates the interfaces lan (10.1.0.1) and wan (192.0.2.1) in this namespace, with alice and bob behind a
// hub at lan, and the server behind wan. The hub's netfilter does not look at frames, so that broken ones arrive.
func newNetwork(t testing.TB) network {
	t.Helper()
	id := fmt.Sprintf("%x", os.Getpid()%0xfff) + randomName()
	n := network{lan: "l" + id, wan: "w" + id, client: "c" + id, hub: "h" + id, server: "s" + id}
	run(t, netnstest.Up+`ip netns add $client; ip netns add $hub; ip netns add $server
for n in $client $hub; do ip netns exec $n sh -c '`+netnstest.NoIPv6+`'; done
ip link add $lan address 02:00:00:00:01:01 type veth peer name lan netns $hub
ip -n $client link add c0 type veth peer name c1 netns $hub
ip link add $wan address 02:00:00:00:01:02 type veth peer name s0 netns $server
ip addr add 10.1.0.1/24 dev $lan; ip addr add 192.0.2.1/24 dev $wan; ip link set $lan up; ip link set $wan up
ip -n $client link set c0 address 02:00:00:00:00:0a up; ip -n $client link set lo up
ip -n $client addr add 10.1.0.10/24 dev c0; ip -n $client addr add 10.1.0.77/24 dev c0; ip -n $client route add default via 10.1.0.1
ip -n $server link set s0 address 02:00:00:00:02:02 up; ip -n $server link set lo up
ip -n $server addr add 192.0.2.2/24 dev s0; ip -n $server addr add 192.0.2.3/24 dev s0; ip -n $server route add default via 192.0.2.1
ip netns exec $hub sh -ec '`+netnstest.Plain+netnstest.Hub+`hub; plug lan c1'
up $lan $wan; ip netns exec $client sh -ec '`+netnstest.Up+`up c0'
`, n.env()...)
	t.Cleanup(func() {
		run(t, "ip netns del $client; ip netns del $hub; ip netns del $server; ip link del $lan 2>/dev/null || :; ip link "+
			"del $wan 2>/dev/null || :", n.env()...)
	})
	return n
}

// env returns the names of a network's interfaces and namespaces as variables for a shell script.
func (n network) env() []string {
	return []string{"lan=" + n.lan, "wan=" + n.wan, "client=" + n.client, "hub=" + n.hub, "server=" + n.server}
}

var (
	run = netnstest.Run
	try = netnstest.Try
)

var names int

func randomName() string { names++; return fmt.Sprintf("n%d", names) }

// open opens a data path on the network, which is closed and detached when the test ends.
func (n network) open(t testing.TB, change ...func(*Config)) *Datapath {
	t.Helper()
	cfg := n.config(t)
	for _, c := range change {
		c(&cfg)
	}
	d, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.Close()
		if err := detach(cfg); err != nil {
			t.Error(err)
		}
	})
	return d
}

// config is the configuration with which open opens a data path on the network.
func (n network) config(t testing.TB) Config {
	return Config{
		Networks: networksOf(n.lan), WAN: n.wan, PortalPorts: []uint16{8080},
		PinDir: "/sys/fs/bpf/" + n.lan,
	}
}

// networksOf returns the tests' LAN, at an interface.
func networksOf(lan string) []datapath.Network {
	return []datapath.Network{{Interface: lan, Address: netip.PrefixFrom(gateway, lanPrefix.Bits())}}
}

// index is the index of an interface of the router.
func index(t testing.TB, name string) uint32 {
	t.Helper()
	dev, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(dev.Index)
}

// neighbour enters the server's MAC address into the neighbour table.
func (n network) neighbour(t *testing.T) {
	t.Helper()
	err := netlink.NeighSet(&netlink.Neigh{
		LinkIndex: int(index(t, n.wan)), IP: server.AsSlice(), HardwareAddr: serverMAC[:], State: netlink.NUD_REACHABLE,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// detach does what gatewayd's detach does.
func detach(cfg Config) error {
	locks, err := datapath.Lock(datapath.ExclusiveClaims(cfg.lan(), cfg.WAN)...)
	if err != nil {
		return err
	}
	return errors.Join(Remove(cfg), locks.Close())
}

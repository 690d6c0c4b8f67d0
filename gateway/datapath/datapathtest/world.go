package datapathtest

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Addresses of a World. The server has all of the WAN's except RouterWAN.
var (
	Gateway   = netip.MustParseAddr("10.1.0.1")
	RouterWAN = netip.MustParseAddr("192.0.2.1")
	Server    = netip.MustParseAddr("192.0.2.2")
	Second    = netip.MustParseAddr("192.0.2.3")    // of the server, on the same link
	Garden    = netip.MustParseAddr("198.51.100.9") // of the server, behind its link
	Beside    = netip.MustParseAddr("198.51.100.200")
	LANMAC    = datapath.MAC{2, 0, 0, 0, 1, 1}
	WANMAC    = datapath.MAC{2, 0, 0, 0, 1, 2}
	ServerMAC = datapath.MAC{2, 0, 0, 0, 2, 2}
)

// defaultLAN is the LAN's network, unless a shape has another.
var defaultLAN = netip.MustParsePrefix("10.1.0.0/24")

// Interfaces of the gateway and of its neighbours.
const (
	lanLink, wanLink = "lan0", "wan0"
	clientLink       = "c0"
	serverLink       = "s0"
)

// Station is a client's machine.
type Station struct {
	*netnstest.Space
	Addr netip.Addr
	MAC  datapath.MAC
	// Session is the PPPoE session in which Addr is used; 0: none.
	Session uint16
}

// World is a gateway with clients on one side and a server on the other. The clients are on a hub, where each receives
// every frame, unless they are directly at the link. Alice and Bob are clients; the intruder has an address that was
// not leased.
type World struct {
	path                 Path
	place                netnstest.Place
	prefix               netip.Prefix
	bare                 bool // see Shape
	Router               *netnstest.Space
	Alice, Bob, Intruder Station
	Server               *netnstest.Space
	hub                  *netnstest.Space
	line                 *pppoeClient // Alice's; nil: she is on none
	*Process                          // the gateway's
}

// NewWorld creates a network and opens the data path in it; both end with the test.
func NewWorld(t testing.TB, p Path, s Shape) *World {
	t.Helper()
	w := &World{path: p, place: s.Place.Where(t), prefix: s.Prefix, bare: s.Bare, Router: netnstest.NewSpace(t),
		Server: netnstest.NewSpace(t)}
	if !w.prefix.IsValid() {
		w.prefix = defaultLAN
	}
	hub := netnstest.NewSpace(t)
	w.hub = hub
	hub.Run(t, quiet)
	if w.place != netnstest.Direct {
		hub.Run(t, netnstest.Hub+"hub")
	}
	if s.Switch {
		hub.Run(t, netnstest.Plain)
	}
	w.Router.Run(t, quiet+`echo 1 >/proc/sys/net/ipv4/ip_forward`)
	w.Server.Run(t, quiet+`ip addr add 198.51.100.9/24 dev lo; ip addr add 198.51.100.200/24 dev lo`)
	w.linkLAN(t)
	w.linkWAN(t)
	w.Alice, w.Bob, w.Intruder = w.station(t, 10), w.station(t, 11), w.station(t, 66)
	if s.Bare {
		for _, space := range []*netnstest.Space{w.Router, w.Server, w.Alice.Space, w.Bob.Space, w.Intruder.Space, hub} {
			space.Run(t, `for l in $(ip -br link | grep -v -w -e lo -e br0 -e sink. | sed 's/[@ ].*//'); do ethtool -K $l tx off tso off gso off gro off; done`)
		}
	}
	w.Process = &Process{router: w.Router, path: p, orders: Orders{netip.PrefixFrom(Gateway, w.prefix.Bits()),
		pinDir(w.Router), lanLink, s.Learn, s.Welcome, s.PPPoE}}
	if s.PPPoE {
		w.Alice.Session = aliceSession
		w.line = newPPPoEClient(t, w.Alice)
	}
	w.Start(t)
	t.Cleanup(func() { w.end(t) })
	if !s.Without {
		must(t, w.Open())
	}
	return w
}

// linkLAN links the gateway to the hub, and linkWAN to the server, always with the same names and addresses.
func (w *World) linkLAN(t testing.TB) {
	t.Helper()
	link := `ip link add lan0 address 02:00:00:00:01:01 type veth peer name lan netns $hub
`
	if w.place == netnstest.OnGateway {
		link = netnstest.Bridge + `seen lan0 address 02:00:00:00:01:01
ip link add port0 type veth peer name lan netns $hub; ip link add port1 type veth peer name aside netns $hub
for p in port0 port1; do ip link set $p master lan0 up; done
`
	}
	w.Router.Run(t, link+`if [ $own = false ]; then ip addr add 10.1.0.1/$bits dev lan0; fi
ip link set lan0 up`, "hub="+tid(w.hub), own(w.path), w.bits())
	switch w.place {
	case netnstest.Direct:
		w.hub.Run(t, "ip link set lan up")
	case netnstest.OnGateway: // whose second port leads to nobody
		w.hub.Run(t, "ip link set aside up")
		fallthrough
	default:
		w.hub.Run(t, netnstest.Hub+"plug lan")
	}
	w.Router.Run(t, netnstest.Up+"up lan0")
}

// seesBridged reports whether frames between clients are judged here, and those that come as one counted by the MTU.
func (w *World) seesBridged() bool { return w.path.SeesBridged && w.place == netnstest.OnGateway }

// lanLinks are the gateway's interfaces on the LAN's side, ports first.
func (w *World) lanLinks() string {
	if w.place == netnstest.OnGateway {
		return "port0 port1 lan0"
	}
	return lanLink
}

func (w *World) linkWAN(t testing.TB) {
	t.Helper()
	w.Router.Run(t, `ip link add wan0 address 02:00:00:00:01:02 type veth peer name s0 netns $server
ip addr add 192.0.2.1/24 dev wan0; ip link set wan0 up`, "server="+tid(w.Server))
	w.Server.Run(t, `ip link set s0 address 02:00:00:00:02:02 up
ip addr add 192.0.2.2/24 dev s0; ip addr add 192.0.2.3/24 dev s0; ip route add default via 192.0.2.1`)
	w.Router.Run(t, netnstest.Up+`ip route add default via 192.0.2.2; up wan0`)
}

// quiet keeps a namespace's kernel from sending packets on its own.
const quiet = netnstest.NoIPv6 + `echo 0 >/proc/sys/net/ipv4/ip_forward
`

// own says to a script whether the data path creates the gateway's address.
func own(p Path) string { return fmt.Sprintf("own=%v", p.OwnAddress) }

// tid identifies a namespace for ip(8).
func tid(s *netnstest.Space) string { return fmt.Sprint(s.TID()) }

// pinDir is a folder for this network alone.
func pinDir(router *netnstest.Space) string { return "/sys/fs/bpf/" + tid(router) }

// LinkDrops counts the frames that the network's links dropped, because a CPU's queue was full.
func (w *World) LinkDrops(t testing.TB) (n uint64) {
	t.Helper()
	for _, s := range []*netnstest.Space{w.hub, w.Router, w.Server, w.Alice.Space, w.Bob.Space, w.Intruder.Space} {
		var links []netlink.Link
		var err error
		s.Do(func() { links, err = netlink.LinkList() })
		must(t, err)
		for _, l := range links {
			n += l.Attrs().Statistics.TxDropped
		}
	}
	return n
}

// bits is the LAN's prefix length for a script's environment.
func (w *World) bits() string { return fmt.Sprintf("bits=%d", w.prefix.Bits()) }

// station plugs a client into the hub: 10.1.0.N with the MAC address 02:…:N.
func (w *World) station(t testing.TB, n byte) Station {
	t.Helper()
	s := Station{netnstest.NewSpace(t), netip.AddrFrom4([4]byte{10, 1, 0, n}), datapath.MAC{2, 0, 0, 0, 0, n}, 0}
	s.Run(t, quiet)
	link := `ip link add c$n type veth peer name c0 address $mac netns $station
`
	if w.place == netnstest.Direct { // one of several at the one link
		link = `ip link add c0 link lan address $mac netns $station type macvlan mode bridge
`
	}
	w.hub.Run(t, link, "mac="+hw(s.MAC).String(), fmt.Sprintf("n=%d", n), "station="+tid(s.Space))
	s.Run(t, `ip addr add $addr/$bits dev c0; ip link set c0 up`, "addr="+s.Addr.String(), w.bits())
	if w.place != netnstest.Direct {
		w.hub.Run(t, fmt.Sprintf("%splug c%d", netnstest.Hub, n))
	}
	s.Run(t, netnstest.Up+"ip route add default via 10.1.0.1; up c0")
	return s
}

// hw converts a MAC address for network packages.
func hw(m datapath.MAC) net.HardwareAddr { return net.HardwareAddr(m[:]) }

// client returns the station's entry, unauthenticated unless changed.
func (s Station) client(edits ...func(*datapath.Client)) datapath.Client {
	c := datapath.Client{Addrs: []netip.Addr{s.Addr}, MAC: s.MAC, Session: s.Session}
	for _, h := range edits {
		h(&c)
	}
	return c
}

// admitted makes an entry that of an admitted client.
func admitted(c *datapath.Client) { c.Admitted = true }

// lease sets stations as known clients; admit also admits them.
func (w *World) lease(t testing.TB, stations ...Station) {
	t.Helper()
	for _, s := range stations {
		must(t, w.Set(s.client()))
	}
}

// Clients that a path cannot admit, because they are not on PPPoE, are known only.
func (w *World) admit(t testing.TB, stations ...Station) {
	t.Helper()
	for _, s := range stations {
		if w.path.PPPoEOnly && s.Session == 0 {
			w.lease(t, s)
			continue
		}
		must(t, w.Set(s.client(admitted)))
	}
}

var must = netnstest.Must

// says fails the test unless a script, which may fail, prints the text.
func says(t testing.TB, s *netnstest.Space, script, text string) {
	t.Helper()
	if out, _ := s.Try(script); !strings.Contains(out, text) {
		t.Errorf("%s\nsays\n%s\nwant %q", script, out, text)
	}
}

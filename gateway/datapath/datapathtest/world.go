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

// Addresses of a World. The router is the gateway's machine.
var (
	Gateway   = netip.MustParseAddr("10.1.0.1")       // of the router, in the LAN
	RouterWAN = netip.MustParseAddr("192.0.2.1")      // of the router, in the WAN
	Server    = netip.MustParseAddr("192.0.2.2")      // of the server, in the WAN, as the next three
	Second    = netip.MustParseAddr("192.0.2.3")      // in the same network as Server
	Garden    = netip.MustParseAddr("198.51.100.9")   // in a network behind Server; tests put it into the walled garden
	Beside    = netip.MustParseAddr("198.51.100.200") // in Garden's network, and outside the garden
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

// Station is a client's machine with its address in the LAN.
type Station struct {
	*netnstest.Space
	Addr netip.Addr
	MAC  datapath.MAC
	// Session is the PPPoE session in which Addr is used; 0: none.
	Session uint16
}

// World is a gateway with clients on one side and a server on the other. The clients are on a hub, where each receives
// every frame, unless the place is netnstest.Direct, where they are directly at the gateway's link. Alice and Bob are
// clients, which tests make known (lease) and admit; the intruder has an address that was not leased.
type World struct {
	path                 Path
	place                netnstest.Place
	prefix               netip.Prefix
	bare                 bool // see Shape
	Router               *netnstest.Space
	Alice, Bob, Intruder Station
	Server               *netnstest.Space
	hub                  *netnstest.Space
	line                 *pppoeClient // Alice's PPPoE session; nil: she has none
	*Process                          // the gateway's, through which tests call the data path's methods
}

// NewWorld creates a network and opens the data path in it; both end with the test.
func NewWorld(t testing.TB, p Path, s Shape) *World {
	t.Helper()
	w := &World{path: p, place: s.Place.OrDefault(t), prefix: s.Prefix, bare: s.Bare, Router: netnstest.NewSpace(t),
		Server: netnstest.NewSpace(t)}
	if !w.prefix.IsValid() {
		w.prefix = defaultLAN
	}
	hub := netnstest.NewSpace(t)
	w.hub = hub
	hub.Quiet(t)
	if w.place != netnstest.Direct {
		hub.Hub(t)
	}
	if s.Switch {
		hub.Run(t, netnstest.Plain) // no netfilter on the hub's bridge
	}
	w.Router.Quiet(t)
	w.Router.Set(t, "ipv4/ip_forward", "1")
	w.Server.Quiet(t)
	w.Server.Enable(t, "lo", netip.PrefixFrom(Garden, 24), netip.PrefixFrom(Beside, 24))
	w.linkLAN(t)
	w.linkWAN(t)
	w.Alice, w.Bob, w.Intruder = w.station(t, 10), w.station(t, 11), w.station(t, 66)
	if s.Bare { // no offloads on any interface but lo and the bridges
		for _, space := range []*netnstest.Space{w.Router, w.Server, w.Alice.Space, w.Bob.Space, w.Intruder.Space, hub} {
			space.Run(t, `for l in $(ip -br link | grep -v -w -e lo -e br0 -e sink. | sed 's/[@ ].*//'); do ethtool -K $l tx off tso off gso off gro off; done`)
		}
	}
	w.Process = &Process{router: w.Router, path: p, orders: Orders{netip.PrefixFrom(Gateway, w.prefix.Bits()),
		pinDir(w.Router), lanLink, s.Learn, s.Welcome, s.PPPoE, s.Outside, s.IPv6}}
	if s.IPv6 {
		w.enable6(t)
	}
	if s.PPPoE {
		w.Alice.Session = aliceSession
		if s.Outside {
			w.Alice.Addr = outsideHost
		}
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
	near := netnstest.End{Name: lanLink, MAC: hw(LANMAC)}
	if w.place == netnstest.OnGateway {
		w.Router.Bridge(t, near)
		w.Router.Set(t, "bridge/bridge-nf-call-iptables", "1")
		w.Router.Veth(t, netnstest.End{Name: "port0"}, w.hub, netnstest.End{Name: "lan"})
		w.Router.Veth(t, netnstest.End{Name: "port1"}, w.hub, netnstest.End{Name: "aside"})
		w.Router.Port(t, "port0", lanLink)
		w.Router.Port(t, "port1", lanLink)
	} else {
		w.Router.Veth(t, near, w.hub, netnstest.End{Name: "lan"})
	}
	var addrs []netip.Prefix
	if !w.path.OwnAddress {
		addrs = append(addrs, w.on(Gateway))
	}
	w.Router.Enable(t, lanLink, addrs...)
	switch w.place {
	case netnstest.Direct:
		w.hub.Enable(t, "lan")
	case netnstest.OnGateway: // no client is behind the bridge's second port
		w.hub.Enable(t, "aside")
		fallthrough
	default:
		w.hub.Plug(t, "lan")
	}
	w.Router.AwaitUp(t, lanLink)
}

// seesBridged reports whether the data path judges frames between clients and counts aggregated packets as the packets
// into which they are split: Promises.SeesBridged, where clients are on a bridge of the gateway's machine.
func (w *World) seesBridged() bool { return w.path.SeesBridged && w.place == netnstest.OnGateway }

// lanLinks returns the gateway's interfaces on the LAN's side, a bridge's ports before the bridge.
func (w *World) lanLinks() string {
	if w.place == netnstest.OnGateway {
		return "port0 port1 lan0"
	}
	return lanLink
}

func (w *World) linkWAN(t testing.TB) {
	t.Helper()
	w.Router.Veth(t, netnstest.End{Name: wanLink, MAC: hw(WANMAC)}, w.Server,
		netnstest.End{Name: serverLink, MAC: hw(ServerMAC)})
	w.Router.Enable(t, wanLink, netip.PrefixFrom(RouterWAN, 24))
	w.Server.Enable(t, serverLink, netip.PrefixFrom(Server, 24), netip.PrefixFrom(Second, 24))
	w.Server.Default(t, RouterWAN)
	w.Router.Default(t, Server)
	w.Router.AwaitUp(t, wanLink)
}

// tid returns the ID of a thread in a namespace, by which ip(8) finds the namespace.
func tid(s *netnstest.Space) string { return fmt.Sprint(s.TID()) }

// pinDir is a folder for this network alone.
func pinDir(router *netnstest.Space) string { return "/sys/fs/bpf/" + tid(router) }

// uplink links the gateway to one more host, 10.9.0.2, whose default route leads to the gateway. name is the gateway's
// interface, which has 10.9.0.1. mac is of the host's interface, t0; nil: any.
func (w *World) uplink(t testing.TB, name string, mac net.HardwareAddr) *netnstest.Space {
	t.Helper()
	host := netnstest.NewSpace(t)
	host.Quiet(t)
	w.Router.Veth(t, netnstest.End{Name: name, MAC: net.HardwareAddr{2, 0, 0, 0, 1, 3}}, host,
		netnstest.End{Name: "t0", MAC: mac})
	w.Router.Enable(t, name, netip.MustParsePrefix("10.9.0.1/24"))
	host.Enable(t, "t0", netip.MustParsePrefix("10.9.0.2/24"))
	host.Default(t, netip.MustParseAddr("10.9.0.1"))
	w.Router.AwaitUp(t, name)
	return host
}

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

// on returns an address with the length of the LAN's prefix.
func (w *World) on(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, w.prefix.Bits()) }

// station plugs a client into the hub: 10.1.0.N with the MAC address 02:…:N.
func (w *World) station(t testing.TB, n byte) Station {
	t.Helper()
	s := Station{netnstest.NewSpace(t), netip.AddrFrom4([4]byte{10, 1, 0, n}), datapath.MAC{2, 0, 0, 0, 0, n}, 0}
	s.Quiet(t)
	end := netnstest.End{Name: clientLink, MAC: hw(s.MAC)}
	port := fmt.Sprintf("c%d", n)
	if w.place == netnstest.Direct { // each client has a macvlan on the same link
		w.hub.Macvlan(t, "lan", s.Space, end)
	} else {
		w.hub.Veth(t, netnstest.End{Name: port}, s.Space, end)
	}
	s.Enable(t, clientLink, w.on(s.Addr))
	if w.place != netnstest.Direct {
		w.hub.Plug(t, port)
	}
	s.Default(t, Gateway)
	s.AwaitUp(t, clientLink)
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

// lease makes stations known clients, as a lease does, which are not admitted.
func (w *World) lease(t testing.TB, stations ...Station) {
	t.Helper()
	for _, s := range stations {
		must(t, w.Set(s.client()))
	}
}

// admit makes stations admitted clients. Where the path cannot admit one because it is not on PPPoE, it is only known.
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

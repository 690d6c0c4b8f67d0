package datapathtest

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Networks outside the LAN of which clients on PPPoE have addresses, and Alice's in the second.
var (
	outside     = []netip.Prefix{netip.MustParsePrefix("100.64.9.0/29"), netip.MustParsePrefix("203.0.113.64/26")}
	outsideHost = netip.MustParseAddr("203.0.113.77")
)

// outsideBehaviours are behaviours of clients on PPPoE whose addresses are outside the LAN. Alice is one.
var outsideBehaviours = []behaviour{
	{"PPPoEOutsideTheLAN", onOutside(outsideTheLAN), Shape{PPPoE: true, Outside: true, Without: true}},
	{"PPPoEOutsideIsCounted", onOutside(packetsAreCounted), Shape{PPPoE: true, Outside: true, Without: true}},
	{"PPPoEOutsideOfTheStack", onOutside(stackSendsPPPoE), Shape{PPPoE: true, Outside: true, Without: true}},
	{"KilledWithPPPoEOutside", onOutside(func(t *testing.T, w *World) {
		w.outlives(t, "kill -9", func() { w.Kill(t); time.Sleep(w.path.Lingers); w.Start(t) })
	}), Shape{PPPoE: true, Outside: true, Without: true}},
}

// onOutside returns a check of paths that promise addresses outside the LAN. Other paths must not open.
func onOutside(check func(*testing.T, *World)) func(*testing.T, *World) {
	return func(t *testing.T, w *World) {
		err := w.Open()
		if !w.path.Outside {
			if err == nil {
				t.Error("a data path opens that has no addresses outside the LAN")
			}
			return
		}
		must(t, err)
		onPPPoE(check)(t, w)
	}
}

// outsideTheLAN: a client on PPPoE with an address outside the LAN is reached from outside, from the gateway and from
// another client. Nobody else sends from its address, by the LAN, by other sessions, or from the WAN; no client without
// PPPoE has such an address. What is beside the LAN and the networks is nobody's. Long: the steps of one run.
func outsideTheLAN(t *testing.T, w *World) {
	must(t, w.Set(w.Alice.client(admitted)))
	if !w.path.PPPoEOnly {
		must(t, w.Set(w.Bob.client(admitted)))
		w.Alice.Run(t, "ip addr add 203.0.113.78/32 dev line0")
		stranger := datapath.Client{Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.79")}, MAC: w.Bob.MAC, Admitted: true}
		if err := w.Set(stranger); err == nil {
			t.Error("a client without PPPoE got an address outside the LAN")
		}
	}
	if err := w.Set(datapath.Client{Addrs: []netip.Addr{netip.MustParseAddr("203.0.113.63")}, MAC: w.Bob.MAC,
		Session: bobSession, Admitted: true}); err == nil {
		t.Error("a client got an address that is in no network")
	}
	const packets = 200
	up, down := NewFlow(t, w.Alice.Space, w.Alice.Addr, w.Server, Server),
		NewFlow(t, w.Server, Server, w.Alice.Space, w.Alice.Addr)
	up.Send(packets)
	down.Send(packets)
	up.Whole(t, "from the client")
	down.Whole(t, "to the client")
	says(t, w.Alice.Space, "ping -c 1 -W 5 10.1.0.1", "1 received")
	says(t, w.Router, "ping -c 1 -W 5 -I 10.1.0.1 "+w.Alice.Addr.String(), "1 received")
	if w.path.PPPoEOnly {
		return
	}
	across := NewFlow(t, w.Bob.Space, w.Bob.Addr, w.Alice.Space, w.Alice.Addr)
	across.Send(packets)
	across.Whole(t, "from another client")
	w.forgedOutside(t)
	must(t, w.Remove(w.Alice.Addr))
	down.Begin()
	down.Stops(t, "to a client that has gone")
	if out, _ := w.Router.Try("ip -4 route show proto 103"); strings.TrimSpace(out) != "" {
		t.Errorf("routes are left:\n%s", out)
	}
}

// forgedOutside sends from Alice's address, and from one that nobody has, in all ways but hers.
func (w *World) forgedOutside(t *testing.T) {
	t.Helper()
	lan, wan, server := NewWire(t, w.Intruder.Space, clientLink), NewWire(t, w.Server, serverLink),
		NewWire(t, w.Server, serverLink)
	before := w.Packets(t)
	packet := func(source netip.Addr, mac datapath.MAC) []byte { return Reset("forged", From(source, mac)) }
	nobody := netip.MustParseAddr("203.0.113.80")
	lan.Send(t,
		packet(w.Alice.Addr, w.Intruder.MAC), packet(w.Alice.Addr, w.Alice.MAC), packet(nobody, w.Alice.MAC),
		onSession(packet(w.Alice.Addr, w.Intruder.MAC), aliceSession),
		onSession(packet(w.Alice.Addr, w.Alice.MAC), bobSession),
		onSession(packet(nobody, w.Alice.MAC), aliceSession),
		onSession(packet(netip.MustParseAddr("10.1.1.1"), w.Alice.MAC), aliceSession)) // beside the LAN
	wan.Send(t, Reset("forged", Down, func(f *Frame) {
		f.IP.SrcIP, f.IP.DstIP = w.Alice.Addr.AsSlice(), w.Bob.Addr.AsSlice()
	}))
	awaitCounts(t, w, before, 8)
	lan.Send(t, onSession(packetOf("honest", w.Alice.Addr, w.Alice.MAC), aliceSession))
	server.await(t, 0, "honest")
	if n := holding(server.Frames(), "forged"); n > 0 {
		t.Errorf("%d forged packets passed", n)
	}
}

package datapathtest

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Networks behind Alice's PPPoE session, and an address of hers in each.
var (
	wide, wideHost     = netip.MustParsePrefix("203.0.113.0/24"), netip.MustParseAddr("203.0.113.9")
	narrow, narrowHost = netip.MustParsePrefix("198.18.5.4/30"), netip.MustParseAddr("198.18.5.5")
)

// networksBehind: the packets of networks behind a client's PPPoE session come and go by this session alone, are
// counted and limited as the client's, and pass while no gateway runs if the path is Unattended. Long: the steps of one
// run, each of which needs the state that the one before left.
func networksBehind(t *testing.T, w *World) {
	routed := func(networks ...netip.Prefix) func(*datapath.Client) {
		return func(c *datapath.Client) { admitted(c); c.Routes = networks }
	}
	if w.path.PPPoEOnly { // the kernel's PPPoE
		if err := w.Set(w.Alice.client(routed(wide))); err == nil {
			t.Error("a data path that cannot have networks behind clients accepts one")
		}
		must(t, w.Set(w.Alice.client(admitted)))
		says(t, w.Alice.Space, "ping -c 1 -W 5 10.1.0.1", "1 received") // on its PPPoE session
		return
	}
	w.Alice.Run(t, "ip addr add "+wideHost.String()+"/32 dev line0; ip addr add "+narrowHost.String()+"/32 dev line0")
	w.Intruder.Run(t, "ip addr add "+wideHost.String()+"/32 dev c0")
	must(t, w.Set(w.Alice.client(routed(wide, narrow)), w.Bob.client(admitted)))
	before := w.Counters(t, w.Alice.Addr)
	const packets = 200
	for _, host := range []netip.Addr{wideHost, narrowHost} {
		up, down := NewFlow(t, w.Alice.Space, host, w.Server, Server), NewFlow(t, w.Server, Server, w.Alice.Space, host)
		up.Send(packets)
		down.Send(packets)
		up.Whole(t, "from "+host.String())
		down.Whole(t, "to "+host.String())
	}
	after := w.Counters(t, w.Alice.Addr)
	const size = 20 + 8 + FlowBytes
	if up, down := after.UpPackets-before.UpPackets, after.DownPackets-before.DownPackets; up != 2*packets ||
		down != 2*packets ||
		after.UpBytes-before.UpBytes != 2*packets*size || after.DownBytes-before.DownBytes != 2*packets*size {
		t.Errorf("%d packets up and %d down of %d each way are counted: %+v, then %+v", up, down, 2*packets, before, after)
	}
	says(t, w.Server, "ping -c 1 -W 5 -M dont -s 1472 "+wideHost.String(), "1 received")
	says(t, w.Server, "ping -c 2 -W 2 -M do -s 1472 "+wideHost.String(), "mtu")
	says(t, w.Alice.Space, "ping -c 1 -W 5 -I "+wideHost.String()+" 10.1.0.1", "1 received")
	flow := NewFlow(t, w.Bob.Space, w.Bob.Addr, w.Alice.Space, wideHost)
	flow.Send(packets)
	flow.Whole(t, "from another client")
	w.forgedNetworks(t)

	if err := w.Set(w.Bob.client(routed(netip.MustParsePrefix("198.18.9.0/24")))); err == nil {
		t.Error("a client without PPPoE got a network")
	}
	w.Router.Run(t, "ip route add 198.18.7.0/24 via 192.0.2.2")
	for _, taken := range []string{"198.18.7.0/24"} {
		if err := w.Set(w.Alice.client(routed(wide, netip.MustParsePrefix(taken)))); err == nil {
			t.Errorf("a client got %s, to which the machine has a route", taken)
		}
	}
	up, lost := NewFlow(t, w.Alice.Space, wideHost, w.Server, Server),
		NewFlow(t, w.Alice.Space, narrowHost, w.Server, Server)
	up.Begin()
	lost.Begin()
	lost.Passes(t, "after what was refused")
	must(t, w.Set(w.Alice.client(routed(wide))))
	lost.Stops(t, "from a network that is no longer the client's")
	up.Passes(t, "from the other one")
	w.outlivesWithNetworks(t, up, routed(wide))
	must(t, w.Remove(w.Alice.Addr))
	up.Ends(t, "from a network whose client has gone")
	if out, _ := w.Router.Try("ip -4 route show proto 103"); strings.TrimSpace(out) != "" {
		t.Errorf("routes are left:\n%s", out)
	}
}

// forgedNetworks: only the owner of a network behind a PPPoE session can send from it. Others cannot, from the LAN,
// from other sessions or from the WAN.
func (w *World) forgedNetworks(t *testing.T) {
	t.Helper()
	lan, wan, server := NewWire(t, w.Intruder.Space, clientLink), NewWire(t, w.Server, serverLink),
		NewWire(t, w.Server, serverLink)
	alice := NewWire(t, w.Alice.Space, clientLink)
	before := w.Packets(t)
	packet := func(source netip.Addr, mac datapath.MAC) []byte { return Reset("forged", From(source, mac)) }
	lan.Send(t,
		packet(wideHost, w.Intruder.MAC), packet(wideHost, w.Alice.MAC), packet(wideHost, w.Bob.MAC),
		onSession(packet(wideHost, w.Intruder.MAC), aliceSession), onSession(packet(wideHost, w.Alice.MAC), aliceSession+1),
		onSession(packet(netip.MustParseAddr("203.0.114.1"), w.Alice.MAC), aliceSession))
	wan.Send(t, Reset(
		"forged", Down, func(f *Frame) { f.IP.SrcIP, f.IP.DstIP = wideHost.AsSlice(), w.Alice.Addr.AsSlice() }))
	awaitCounts(t, w, before, 7)
	lan.Send(t, onSession(packetOf("honest", wideHost, w.Alice.MAC), aliceSession))
	server.await(t, 0, "honest")
	if n := holding(server.Frames(), "forged") + w.line.forged(alice); n > 0 {
		t.Errorf("%d forged packets passed", n)
	}
}

// awaitCounts waits until so many more packets are counted as forged.
func awaitCounts(t *testing.T, w *World, before map[string]uint64, want uint64) {
	t.Helper()
	netnstest.Await(t, "counts of what was forged", func() error {
		now := w.Packets(t)
		if n := now["wrong-mac"] + now["foreign-source"] - before["wrong-mac"] - before["foreign-source"]; n < want {
			return fmt.Errorf("%d of %d: %v", n, want, now)
		}
		return nil
	})
}

// packetOf returns a packet with a text, as Silent.
func packetOf(text string, source netip.Addr, mac datapath.MAC) []byte {
	return Reset(text, From(source, mac))
}

// forged counts frames to the PPPoE session that hold a forged packet.
func (l *pppoeClient) forged(lan *Wire) (n int) {
	for _, f := range lan.Frames() {
		if len(f) > 14 && datapath.MAC(f[6:12]) == LANMAC && holding([][]byte{f}, "forged") > 0 {
			n++
		}
	}
	return n
}

// outlivesWithNetworks kills the gateway under a flow from a network behind a PPPoE session.
func (w *World) outlivesWithNetworks(t *testing.T, up *Flow, routed func(*datapath.Client)) {
	t.Helper()
	w.Kill(t)
	if w.path.Unattended {
		up.Passes(t, "without a gateway")
	}
	time.Sleep(w.path.Lingers)
	w.Start(t)
	must(t, w.Open())
	must(t, w.Set(w.Alice.client(routed)))
	netnstest.Await(t, "packets of the network after the restart", func() error {
		from := up.Sent()
		time.Sleep(20 * time.Millisecond)
		if up.CameAfter(from) == 0 {
			return errors.New("none arrives")
		}
		return nil
	})
}

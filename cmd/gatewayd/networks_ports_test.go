// A test of a network over several interfaces. newNetwork makes the host of a gateway with clients and a server, in
// namespaces (world_test.go); networkOf returns the table of a network for the configuration (networks_test.go).

package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// addPort adds an isolated port to the bridge lan1 of the gateway, as a VLAN's interface is one, with a client behind
// it, which has no address yet. The port is named as the client's host.
func (w *world) addPort() *client {
	w.t.Helper()
	w.made++
	c := &client{w: w, host: fmt.Sprint("client", w.made)}
	space := w.space(c.host)
	w.sh(fmt.Sprintf(`ip -n $ID-router link add %[1]s type veth peer name c0 netns $ID-%[1]s
ip -n $ID-router link set %[1]s master lan1
nsenter --net=/run/netns/$ID-router bridge link set dev %[1]s isolated on
ip -n $ID-router link set %[1]s up
ip -n $ID-%[1]s link set c0 up
until nsenter --net=/run/netns/$ID-router bridge link show dev %[1]s | grep -q forwarding
do sleep 0.01; done`, c.host))
	space.AwaitUp(w.t, "c0")
	w.plainTCP(c.host)
	return c
}

// TestNetworkOverPorts: a network's interface is a bridge of isolated ports. Clients of two ports are of one network
// and do not reach each other. A port is added, and removed with its client, while a client of another port loses no
// packet.
func TestNetworkOverPorts(t *testing.T) {
	t.Parallel()
	netnstest.NeedTCX(t)
	w := newNetwork(t)
	w.plainTCP("server")
	// Without an address of its own a bridge takes the lowest of its ports', so that another port may change it.
	w.sh(`ip -n $ID-router link add name lan1 address 02:00:00:00:02:01 type bridge
ip -n $ID-router addr add 10.2.0.1/24 dev lan1
ip -n $ID-router link set lan1 up; ip -n $ID-server route add 10.2.0.0/24 via 192.0.2.1`)
	a, b := w.addPort(), w.addPort()
	w.configureNetworks(false, networkOf("first", 0, ""), networkOf("second", 1, ""))
	w.start()
	for _, c := range []*client{a, b} {
		if s := w.admit(c); s.Network != "second" || !c.passes(true) {
			t.Errorf("the client of %s is of network %q, or does not reach the server", c.host, s.Network)
		}
	}
	if _, err := a.try("ping -c 2 -i 0.1 -W 0.2 " + b.addr.String()); err == nil {
		t.Error("clients of isolated ports reach each other")
	}
	up, down := w.flow(a, true, 300), w.flow(a, false, 300)
	up.start()
	down.start()
	moves := func(after string) {
		t.Helper()
		u, d := up.received.Load(), down.received.Load()
		eventually(t, "packets of another port's client after "+after, func() error {
			if up.received.Load() < u+50 || down.received.Load() < d+50 {
				return errors.New("too few arrive")
			}
			return nil
		})
	}
	moves("the start")
	c := w.addPort()
	if w.admit(c); !c.passes(true) {
		t.Error("the client of a port that was added does not reach the server")
	}
	moves("a port was added")
	w.sh("ip -n $ID-router link del " + c.host)
	moves("a port was removed")
	up.halt()
	down.halt()
	up.expectAll(t, "all datagrams from the client of the port that stays")
	down.expectAll(t, "all datagrams to it")
}

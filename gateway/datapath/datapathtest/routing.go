package datapathtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// routing are the behaviours by which the gateway is a router like any other.
var routing = []behaviour{
	{"ARouterBetween", aRouterBetween, Shape{}},
	{"ICMPErrorsAppear", icmpErrors, Shape{}},
	{"PathMTUIsFound", pathMTU, Shape{}},
	{"TrafficFollowsTheNetwork", followsNetwork, Shape{}},
	{"NATAndFirewalls", natAndFirewalls, Shape{}},
}

// aRouterBetween: a forwarded packet has a TTL one less and the router's own MAC address, and is not changed otherwise.
func aRouterBetween(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	lan, server := NewWire(t, w.Alice.Space, clientLink), NewWire(t, w.Server, serverLink)
	up, down := w.Up(t, w.Alice), w.Down(t, w.Alice)
	up.Begin()
	down.Begin()
	up.Passes(t, "up")
	down.Passes(t, "down")
	for _, ttl := range []uint8{2, 64, 255} {
		for _, c := range []struct {
			name     string
			from, to *Wire
			edit     func(*Frame)
			source   datapath.MAC
			target   datapath.MAC
		}{
			{"up", lan, server, By(w.Alice), WANMAC, ServerMAC},
			{"down", server, lan, Down, LANMAC, w.Alice.MAC},
		} {
			text := fmt.Sprintf("%s with %d hops", c.name, ttl)
			seen := len(c.to.Frames())
			sent := UDP(4321, SourcePort(1234), c.edit, TTL(ttl), Carrying([]byte(text)), func(f *Frame) { f.IP.TOS = 0xb8 })
			c.from.Send(t, sent)
			c.to.await(t, seen, text)
			for _, f := range c.to.Frames()[seen:] {
				if bytes.Contains(f, []byte(text)) && f[14] == 0x45 && f[23] == 17 { // not the ICMP error that quotes it
					same(t, text, f, forwardedFrame(sent, c.source, c.target))
				}
			}
		}
	}
}

// forwardedFrame returns a frame as a router forwards it.
func forwardedFrame(in []byte, from, to datapath.MAC) []byte {
	out := bytes.Clone(in)
	copy(out, to[:])
	copy(out[6:], from[:])
	out[22]--
	return resum(out)
}

// same compares two frames.
func same(t *testing.T, label string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s arrived as\n%s\nwant\n%s", label, anatomy(got), anatomy(want))
	}
}

// icmpErrors: ICMP errors that a router must send are sent, from its address.
func icmpErrors(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	w.Router.Run(t, "ip link set wan0 mtu 1300; ip route add unreachable 198.18.0.0/16")
	w.Server.Run(t, "ip link set s0 mtu 1300")
	says(t, w.Alice.Space, "ping -c 1 -W 5 -t 1 192.0.2.2", "From 10.1.0.1 icmp_seq=1 Time to live exceeded")
	says(t, w.Alice.Space, "ping -c 2 -i 0.2 -W 5 -M do -s 1400 192.0.2.2", "1300")
	says(t, w.Bob.Space, "ping -c 1 -W 5 192.0.2.2", "From 10.1.0.1 icmp_seq=1 Packet filtered")
	says(t, w.Alice.Space, "ping -c 1 -W 5 -s 4000 192.0.2.2", "1 received")
	says(t, w.Alice.Space, "ping -c 1 -W 5 198.18.0.1", "Unreachable")
	w.Router.Run(t, "ip route add 198.51.100.0/24 via 192.0.2.2 mtu 1200")
	w.Alice.Run(t, "ping -c 2 -i 0.2 -W 5 198.51.100.9") // a data path with a cache of flows now has this one
	netnstest.Await(t, "errors with the route's MTU for each packet", func() error {
		// The data path may learn of the route a little later.
		for range 3 {
			out, _ := w.Alice.Try("ip route flush cache; ping -c 1 -W 1 -M do -s 1250 198.51.100.9")
			if !strings.Contains(out, "1200") {
				return errors.New(out)
			}
		}
		return nil
	})
	says(t, w.Server, "ping -c 1 -W 5 -t 1 10.1.0.10", "From 192.0.2.1 icmp_seq=1 Time to live exceeded")
	says(t, w.Alice.Space, "ping -c 1 -W 5 192.0.2.2", "ttl=63")
}

// pathMTU: connections cross a link with a smaller MTU, in either direction, and each end gets the ICMP error. Clients
// do not announce a smaller segment size.
func pathMTU(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	lan := func(mtu string) {
		for space, links := range map[*netnstest.Space]string{w.Router: w.lanLinks(), w.hub: "lan c10", w.Alice.Space: "c0"} {
			space.Run(t, `for l in $links; do ip link set $l mtu $mtu; done`, "links="+links, "mtu="+mtu)
		}
		w.Alice.Run(t, "ip route replace default via 10.1.0.1 advmss 1460")
	}
	cross := func(label string) {
		x := w.NewStream(t, w.Alice, Server)
		x.Carry(t, x.Client, 300_000)
		x.Carry(t, x.Server, 300_000)
		t.Log("connections cross", label)
	}
	w.Router.Run(t, "ip link set wan0 mtu 1300")
	w.Server.Run(t, "ip link set s0 mtu 1300; ip route replace default via 192.0.2.1 advmss 1460")
	cross("a shorter WAN")
	w.Router.Run(t, "ip link set wan0 mtu 1500")
	w.Server.Run(t, "ip link set s0 mtu 1500; ip route replace default via 192.0.2.1")
	lan("1280")
	netnstest.Await(t, "an error with the shorter LAN's MTU", func() error {
		// The data path may learn of the change a little later.
		if out, _ := w.Server.Try("ping -c 2 -i 0.2 -W 5 -M do -s 1400 10.1.0.10"); !strings.Contains(out, "mtu = 1280") {
			return errors.New(out)
		}
		return nil
	})
	cross("a shorter LAN")
	lan("1500")
	netnstest.Await(t, "the longer LAN", func() error {
		out, err := w.Server.Try("ip route flush cache; ping -c 1 -W 1 -M do -s 1400 10.1.0.10")
		if err != nil {
			return errors.New(out)
		}
		return nil
	})
}

// followsNetwork changes next hops under traffic.
func followsNetwork(t *testing.T, w *World) {
	// Neighbours are resolved again after a second, not after half a minute.
	w.Router.Run(t, `cd /proc/sys/net/ipv4/neigh/wan0; echo 500 >base_reachable_time_ms; echo 1 >delay_first_probe_time; echo 100 >retrans_time_ms`)
	w.admit(t, w.Alice)
	w.lease(t, w.Bob)
	up, down, blocked := w.Up(t, w.Alice), w.Down(t, w.Alice), w.Up(t, w.Bob)
	for _, f := range []*Flow{up, down, blocked} {
		f.Begin()
	}
	for _, c := range []struct {
		label  string
		where  *netnstest.Space
		script string
	}{
		{"the start", w.Router, `true`},
		{"a new MAC of the neighbour", w.Server, `ip link set s0 address 02:00:00:00:02:99; ip neigh flush dev s0`},
		{"a neighbour forgotten", w.Router, `ip neigh flush dev wan0`},
		{"a new MAC nobody tells of", w.Server, `ip link set s0 address 02:00:00:00:02:98`},
		{"a new address of the gateway", w.Router,
			`ip addr add 192.0.2.9/24 dev wan0; ip addr del 192.0.2.1/24 dev wan0; ip addr add 192.0.2.1/24 dev wan0; ip route replace default via 192.0.2.2`},
		{"the WAN going down and up", w.Router,
			`ip link set wan0 down; sleep 0.1; ip link set wan0 up; ip route replace default via 192.0.2.2`},
		{"the LAN going down and up", w.Router, `ip link set lan0 down; sleep 0.1; ip link set lan0 up`},
		{"a client's link going down and up", w.Alice.Space,
			`ip link set c0 down; sleep 0.1; ip link set c0 up; ip route replace default via 10.1.0.1`},
		{"a route through another hop", w.Router, `ip route add 192.0.2.2/32 via 192.0.2.3 dev wan0`},
		{"the route going away again", w.Router, `ip route del 192.0.2.2/32`},
		{"a shorter MTU", w.Router, `ip link set wan0 mtu 1400`},
	} {
		c.where.Run(t, c.script)
		up.Passes(t, "up after "+c.label)
		down.Passes(t, "down after "+c.label)
	}
	w.Router.Run(t, `ip route add unreachable 192.0.2.2/32`)
	up.Ends(t, "by a route that is gone")
	blocked.Halt()
	if blocked.Came() != 0 {
		t.Errorf("%d packets of a client that is not admitted arrived", blocked.Came())
	}
}

// natAndFirewalls: the machine's rules apply, clients are counted all the same, and no rule admits unauthenticated
// clients.
func natAndFirewalls(t *testing.T, w *World) {
	if !w.path.Netfilter {
		t.Log("it does not promise that netfilter's rules apply")
		return
	}
	w.admit(t, w.Alice, w.Bob)
	w.Server.Run(t, "ip route del default") // only masqueraded packets are answered
	if out, err := w.Alice.Try("ping -c 1 -W 1 192.0.2.2"); err == nil {
		t.Fatalf("the server answered an address it has no route to:\n%s", out)
	}
	w.Router.Run(t, `nft -f - <<end
table ip nat {
	chain pre { type nat hook prerouting priority dstnat; ip daddr 192.0.2.1 udp dport 5000 dnat to 10.1.0.11:6000; }
	chain post { type nat hook postrouting priority srcnat; oifname wan0 masquerade; ip saddr 10.1.0.0/24 ip daddr 10.1.0.11 ct status dnat masquerade; }
}
table ip filter {
	chain forward { type filter hook forward priority filter; udp dport 9999 drop; }
}
end`)
	netnstest.Await(t, "masquerading", func() error { // repeatedly, because rules may be read a moment later
		if out, err := w.Alice.Try("ping -c 5 -i 0.01 -W 1 192.0.2.2"); err != nil || !strings.Contains(out, "5 received") {
			return errors.New(out)
		}
		return nil
	})
	before := w.tally(t, w.Alice)
	says(t, w.Alice.Space, "ping -c 3 -i 0.05 -W 5 192.0.2.2", "3 received")
	w.counts(t, w.Alice, before, tally{3 * 84, 3, 3 * 84, 3})
	x := w.NewStream(t, w.Alice, Server)
	x.Carry(t, x.Client, 100_000)
	x.Carry(t, x.Server, 100_000)
	server, alice := NewWire(t, w.Server, serverLink), NewWire(t, w.Alice.Space, clientLink)
	alice.Send(t, UDP(9999, By(w.Alice), Carrying([]byte("dropped by a rule"))), Reset("allowed", By(w.Alice)))
	server.await(t, 0, "allowed")
	if holding(server.Frames(), "dropped by a rule") > 0 {
		t.Error("a packet passes although a firewall's rule drops it")
	}
	w.hairpin(t)
	w.Router.Run(t, "nft delete table ip nat; nft delete table ip filter")
	w.Server.Run(t, "ip route add default via 192.0.2.1")
	netnstest.Await(t, "traffic without rules", func() error {
		if out, err := w.Alice.Try("ping -c 1 -W 1 192.0.2.2"); err != nil {
			return errors.New(out)
		}
		return nil
	})
}

// hairpin sends to a port of the router's WAN address that is forwarded to Bob, from outside and from the LAN: the packets reach him
// only while he is admitted.
func (w *World) hairpin(t *testing.T) {
	bob := NewWire(t, w.Bob.Space, clientLink)
	send := func(s *netnstest.Space, text string) {
		var conn net.Conn
		var err error
		s.Do(func() { conn, err = net.Dial("udp4", "192.0.2.1:5000") })
		must(t, err)
		defer conn.Close()
		for range 3 {
			conn.Write([]byte(text)) // the receiver does not listen there and sends an error
		}
	}
	send(w.Server, "from outside")
	bob.await(t, 0, "from outside")
	send(w.Alice.Space, "by the hairpin")
	bob.await(t, 0, "by the hairpin")
	w.lease(t, w.Bob)
	send(w.Server, "stranger from outside")
	if w.path.JudgesMasqueraded {
		send(w.Alice.Space, "stranger by the hairpin")
	}
	says(t, w.Alice.Space, "ping -c 1 -W 5 192.0.2.2", "1 received")
	for _, f := range bob.Frames() {
		if bytes.Contains(f, []byte("stranger ")) && bytes.Equal(f[:6], w.Bob.MAC[:]) {
			t.Errorf("because of a rule a client that is not admitted gets\n%s", anatomy(f))
		}
	}
}

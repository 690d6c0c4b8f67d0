// Tests of packets that bypass the stack in the fast mode (redirect.go). fastWorld is a network with that mode.

package nfqueue

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"testing"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The tests of fast mode's redirecting: rules at the devices send clients' packets to their next hop, ahead of the
// stack ("redirect"), or the stack forwards them ("stack").

// forwards waits until packets are forwarded in the given way.
func forwards(t *testing.T, w *datapathtest.World, manner, phase string) {
	t.Helper()
	netnstest.Await(t, manner+" "+phase, func() error {
		if now := w.Forwarding(t); now != manner {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
}

// counted returns how many packets the rules at the devices have forwarded.
func counted(t *testing.T, w *datapathtest.World) (packets int) {
	t.Helper()
	for _, m := range regexp.MustCompile(`packets (\d+)`).FindAllStringSubmatch(
		w.Router.Run(t, "nft list counters table netdev gatewayd_lan0"), -1) {
		n, err := strconv.Atoi(m[1])
		must(t, err)
		packets += n
	}
	return packets
}

// fastWorld returns a network with the fast mode, where Alice is admitted, and flows from and to her.
func fastWorld(t *testing.T) (w *datapathtest.World, up, down *datapathtest.Flow) {
	t.Helper()
	for _, p := range paths(false) {
		if p.Name == "fast" {
			w = datapathtest.NewWorld(t, p, datapathtest.Shape{})
		}
	}
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Admitted: true}))
	return w, w.Up(t, w.Alice), w.Down(t, w.Alice)
}

// TestRedirected: the rules redirect an admitted client's packets to and from the WAN, and leave those to the stack
// that need more than forwarding.
func TestRedirected(t *testing.T) {
	w, up, down := fastWorld(t)
	forwards(t, w, "redirect", "at first")
	before := counted(t, w)
	up.Send(50)
	down.Send(50)
	up.Settle()
	down.Settle()
	if n := counted(t, w) - before; n != 100 {
		t.Errorf("%d of 100 packets were redirected", n)
	}
	far := datapathtest.NewFlow(t, w.Alice.Space, w.Alice.Addr, w.Server, netip.MustParseAddr("198.51.100.9"))
	far.Send(50)
	far.Settle()
	if n := counted(t, w) - before; n != 150 || far.Came() != 50 {
		t.Errorf("%d of 50 packets to beyond the next hop were redirected, %d came", n-100, far.Came())
	}
	before = counted(t, w)
	lan := datapathtest.NewWire(t, w.Alice.Space, "c0")
	by := datapathtest.By(w.Alice)
	lan.Send(t, datapathtest.Reset("its last hop", by, datapathtest.TTL(1)),
		datapathtest.Reset("with options", by, datapathtest.Options),
		datapathtest.Reset("to the gateway", by, datapathtest.To(datapathtest.Gateway)),
		datapathtest.Reset("to its other address", by, datapathtest.To(datapathtest.RouterWAN)),
		datapathtest.Reset("to all", by, datapathtest.To(netip.MustParseAddr("192.0.2.255"))),
		datapathtest.Reset("to a group", by, datapathtest.To(netip.MustParseAddr("224.0.0.9"))),
		datapathtest.Reset("to a neighbour", by, datapathtest.To(w.Bob.Addr)),
		datapathtest.Tagged(datapathtest.Reset("tagged", by), 0x8100, 7),
		datapathtest.Reset("for another machine", by, datapathtest.Via(w.Bob.MAC)),
		datapathtest.Reset("by another machine", datapathtest.From(w.Alice.Addr, w.Bob.MAC)))
	up.Send(1)
	up.Settle()
	if n := counted(t, w) - before; n != 1 {
		t.Errorf("%d packets were redirected that the stack must see", n-1)
	}
}

// TestRedirectFollows: when a change of rules or routes makes the way of packets uncertain, the stack forwards them,
// and when the change is undone they are redirected again. Traffic flows all the time.
func TestRedirectFollows(t *testing.T) {
	w, up, down := fastWorld(t)
	up.Begin()
	down.Begin()
	for _, c := range []struct{ label, script, undo string }{
		{"a masquerading rule",
			`nft 'add table ip nat; add chain ip nat post { type nat hook postrouting priority srcnat; }; add rule ip nat post oifname wan0 masquerade'`,
			`nft delete table ip nat`},
		{"iptables", `iptables -A FORWARD -p tcp --dport 9 -j DROP`, `iptables -D FORWARD -p tcp --dport 9 -j DROP`},
		{"a rule of routing", `ip rule add from 10.9.0.0/16 lookup main`, `ip rule del from 10.9.0.0/16 lookup main`},
		{"a second default route", `ip route add default via 192.0.2.3 metric 100`,
			`ip route del default via 192.0.2.3 metric 100`},
	} {
		forwards(t, w, "redirect", "before "+c.label)
		w.Router.Run(t, c.script)
		forwards(t, w, "stack", "with "+c.label)
		before := counted(t, w)
		up.Passes(t, "up with "+c.label)
		down.Passes(t, "down with "+c.label)
		if n := counted(t, w) - before; n > 0 {
			t.Errorf("with %s %d packets were redirected", c.label, n)
		}
		w.Router.Run(t, c.undo)
		forwards(t, w, "redirect", "without "+c.label)
		before = counted(t, w)
		up.Passes(t, "up without "+c.label)
		down.Passes(t, "down without "+c.label)
		if counted(t, w) == before {
			t.Errorf("without %s no packet is redirected", c.label)
		}
	}
	w.Router.Run(t, "sysctl -qw net.ipv4.conf.lan0.forwarding=0")
	up.Ends(t, "from an interface that does not forward")
}

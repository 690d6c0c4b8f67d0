package conntrack

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) {
	netnstest.Main(m, `ip link set lo up
for a in 2001:db8:1::1 2001:db8:1::2 2001:db8:1::3 2001:db8:1::4 2001:db8:9::2; do ip addr add $a/128 dev lo nodad; done
nft -f - <<EOF
table ip t {
  chain zones { type filter hook output priority -300; ip saddr 127.1.0.3 ct zone set 7; }
  chain zoned { type filter hook prerouting priority -300; ip saddr 127.1.0.3 ct zone set 7; }
  chain out { type nat hook output priority -100; ip daddr 127.8.0.1 dnat to 127.1.0.4; }
  chain post { type nat hook postrouting priority 100; ip saddr 127.1.0.2 ip daddr 127.2.0.1 snat to 127.8.0.2; }
}
table ip6 t { chain out { type filter hook output priority 0; ct state new counter; }; }
EOF`)
}

var must = netnstest.Must

var gateway = netip.MustParseAddr("127.1.0.254")

// client is the address of one of 40.
func client(i byte) netip.Addr { return netip.AddrFrom4([4]byte{127, 1, 0, i}) }

// connect connects each client to a server and to the gateway. The connections of client 2 are translated, and those of
// client 3 are in another zone. 127.9.0.1 is forwarded to client 4, and connected to the server.
func connect(t *testing.T) {
	t.Helper()
	all := Ender{}
	must(t, all.EndWhere(func(netip.Addr) bool { return true }))
	say := func(from, to string) {
		c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.ParseIP(to), Port: 9})
		must(t, err)
		_, err = c.Write([]byte("x"))
		must(t, err)
		must(t, c.Close())
	}
	for i := byte(1); i <= 40; i++ {
		say(client(i).String(), "127.2.0.1")
		say(client(i).String(), gateway.String())
	}
	say("127.9.0.1", "127.8.0.1")
	say("127.9.0.1", "127.2.0.1")
}

// connections counts those of each client, and at 0 all others.
func connections(t *testing.T) (of [41]int) {
	t.Helper()
	e := Ender{Gateway: gateway}
	must(t, List(func(c Connection) {
		for i := range byte(40) {
			if e.mustEnd(c, func(a netip.Addr) bool { return a == client(i+1) }) {
				of[i+1]++
				return
			}
		}
		of[0]++
	}))
	return of
}

// TestEnd: the connections of clients that have left end, whichever side began them, translated or not and in any zone.
// Connections of other clients and with the gateway go on.
func TestEnd(t *testing.T) {
	several := func(n byte) (prefixes []netip.Prefix) {
		for i := range n {
			prefixes = append(prefixes, netip.PrefixFrom(client(i+1), 32))
		}
		return prefixes
	}
	network := netip.MustParsePrefix("127.1.0.0/29")
	for name, prefixes := range map[string][]netip.Prefix{
		"nobody's": {netip.MustParsePrefix("127.1.0.200/32")}, "one": several(1), "translated": several(2)[1:],
		"in a zone": several(3)[2:], "forwarded": several(4)[3:],
		"some": several(5), "many": several(30), "a network": {network}, "both": {several(9)[8], network, several(9)[8]},
	} {
		t.Run(name, func(t *testing.T) {
			connect(t)
			want, ended := connections(t), 0
			if want[0] != 41 || want[1] != 1 || want[4] != 2 {
				t.Fatalf("before: %v", want)
			}
			for i := byte(1); i <= 40; i++ {
				if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(client(i)) }) {
					ended, want[i] = ended+want[i], 0
				}
			}
			forgotten := 0
			e := Ender{Gateway: gateway, Forget: func(all []Connection) error { forgotten += len(all); return nil }}
			must(t, e.End(prefixes...))
			if got := connections(t); got != want || forgotten != ended {
				t.Errorf("left:\n%v, want\n%v; %d were told to be gone, want %d", got, want, forgotten, ended)
			}
		})
	}
}

// TestOneByOne: the kernel looks for addresses where it has many entries.
func TestOneByOne(t *testing.T) {
	connect(t)
	want := connections(t)
	e := Ender{Gateway: gateway}
	for _, i := range []byte{2, 3, 4, 40} {
		p := netip.PrefixFrom(client(i), 32)
		must(t, e.endWhere(p.Contains, queryFrom(p.Addr(), tupleOrig), queryFrom(p.Addr(), tupleReply)))
		want[i] = 0
		if got := connections(t); got != want {
			t.Errorf("client %d: left\n%v, want\n%v", i, got, want)
		}
	}
	n := 0
	must(t, list(queryFrom(client(5), tupleOrig), func(c Connection) { n++ }))
	if n != 2 { // since Linux 5.8
		t.Errorf("the kernel lists %d entries from an address, want 2", n)
	}
}

// TestSchedule: scheduled addresses' connections end within seconds, and at the latest when a caller waits for the end
// of any.
func TestSchedule(t *testing.T) {
	connect(t)
	e := Ender{Gateway: gateway, Failed: func(err error) { t.Error(err) }}
	for i := byte(1); i <= 9; i++ {
		e.Schedule(netip.PrefixFrom(client(i), 32))
	}
	if e.Flush(netip.PrefixFrom(client(30), 32)) != nil {
		t.Error("connections are ending that nobody asked to end")
	}
	<-e.Flush(netip.PrefixFrom(client(9), 29))
	if got := connections(t); got[9] != 0 || got[10] != 1 {
		t.Errorf("left: %v", got)
	}
	if e.Flush(netip.PrefixFrom(client(9), 32)) != nil {
		t.Error("connections are ending that have ended")
	}
	e.Schedule(netip.PrefixFrom(client(10), 32))
	netnstest.Await(t, "the end of another's connections", func() error {
		if got := connections(t); got[10] != 0 || got[11] != 1 {
			return fmt.Errorf("left: %v", got)
		}
		return nil
	})
}

// TestEndTogether: concurrent callers of End all find the connections ended when their call returns.
func TestEndTogether(t *testing.T) {
	connect(t)
	e := Ender{Gateway: gateway}
	var all sync.WaitGroup
	for i := byte(1); i <= 40; i++ {
		all.Go(func() {
			if err := e.End(netip.PrefixFrom(client(i), 32)); err != nil {
				t.Error(err)
			}
			if n := connections(t)[i]; n > 0 {
				t.Errorf("client %d has %d connections", i, n)
			}
		})
	}
	all.Wait()
}

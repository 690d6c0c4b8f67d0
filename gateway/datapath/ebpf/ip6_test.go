package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// IPv6 addresses of the tests' networks.
var (
	gateway6   = netip.MustParseAddr("2001:db8:1::1")
	alice6     = netip.MustParseAddr("2001:db8:1::10")
	alice6Temp = netip.MustParseAddr("2001:db8:1::a1ce")
	aliceLocal = netip.MustParseAddr("fe80::ff:fe00:a")
)

// newNetwork6 is newNetwork with IPv6: the client's interface has the addresses aliceLocal, alice6 and alice6Temp.
func newNetwork6(t testing.TB) network {
	t.Helper()
	n := newNetwork(t)
	run(t, `sysctl -qw net.ipv6.conf.all.forwarding=1
ip addr add 2001:db8:1::1/64 dev $lan nodad; ip addr add 2001:db8:9::1/64 dev $wan nodad
ip netns exec $client sh -ec 'cd /proc/sys/net/ipv6/conf/c0; echo 0 >disable_ipv6; echo 0 >accept_ra; echo 0 >accept_dad
ip addr flush dev c0 scope link
for a in fe80::ff:fe00:a 2001:db8:1::10 2001:db8:1::a1ce; do ip addr replace $a/64 dev c0 nodad; done
ip route replace default via 2001:db8:1::1 dev c0'
ip netns exec $server sysctl -qw net.ipv6.conf.s0.disable_ipv6=0 net.ipv6.conf.s0.accept_ra=0
ip -n $server addr add 2001:db8:9::2/64 dev s0 nodad; ip -n $server route add default via 2001:db8:9::1`, n.env()...)
	return n
}

// open6 opens the data path with IPv6.
func (n network) open6(t testing.TB, change ...func(*Config)) *Datapath {
	t.Helper()
	return n.open(t, append(change, func(cfg *Config) { cfg.Networks[0].Address6 = netip.PrefixFrom(gateway6, 64) })...)
}

// ping6 sends three echo requests from an address of the client.
func (n network) ping6(from netip.Addr) error {
	_, err := try(`timeout 5 ip netns exec $client ping -6 -c 3 -i 0.05 -W 1 -q -I $from 2001:db8:9::2`,
		append(n.env(), "from="+from.String())...)
	return err
}

// reaches6 waits until the client reaches the server from an address: on a busy machine the first packets may be over
// before neighbours and hops are known.
func (n network) reaches6(t testing.TB, from netip.Addr) {
	t.Helper()
	netnstest.Await(t, "echoes from "+from.String(), func() error {
		out, err := try(`timeout 20 ip netns exec $client ping -6 -c 3 -i 0.05 -W 10 -q -I $from 2001:db8:9::2`,
			append(n.env(), "from="+from.String())...)
		if err == nil && !strings.Contains(out, " 3 received") {
			err = errors.New(out)
		}
		return err
	})
}

func (d *Datapath) redirecting6(t testing.TB) {
	t.Helper()
	netnstest.Await(t, "redirecting IPv6", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stackReason6 != "" {
			return errors.New(d.stackReason6)
		}
		return nil
	})
}

// TestIPv6IsOneClients: IPv4 and IPv6 addresses of a client are admitted, redirected and counted together, an address
// that it loses is shut out, and the next daemon knows them all.
func TestIPv6IsOneClients(t *testing.T) {
	n := newNetwork6(t)
	d := n.open6(t)
	d.redirecting6(t)
	c := datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6, alice6Temp}, MAC: aliceMAC, Admitted: true}
	must(t, d.Set(c))
	ping4 := `ip netns exec $client ping -c 3 -i 0.05 -W 1 -q -I 10.1.0.10 192.0.2.2`
	n.reaches6(t, alice6) // neighbours and next hops are now known
	n.reaches6(t, alice6Temp)
	run(t, ping4, n.env()...)
	before := counters(t, d, alice)
	n.reaches6(t, alice6)
	n.reaches6(t, alice6Temp)
	run(t, ping4, n.env()...)
	got := counters(t, d, alice)
	if up, down := got.UpPackets-before.UpPackets, got.DownPackets-before.DownPackets; up != 9 || down != 9 {
		t.Errorf("counted %d up, %d down for nine echoes", up, down)
	}
	if bytes := got.UpBytes - before.UpBytes; bytes != 6*104+3*84 {
		t.Errorf("counted %d bytes up, want six of 104 and three of 84", bytes)
	}
	for name, echo := range map[string]func(){
		"IPv6": func() { n.reaches6(t, alice6) }, "IPv4": func() { run(t, ping4, n.env()...) }} {
		netnstest.Await(t, name+" packets from the client to be redirected", func() error {
			packets := d.packets(t)
			echo()
			if got := change(packets, d.packets(t))["forwarded"]; got <= 3 { // those to the client are
				return fmt.Errorf("of six packets were redirected %d", got)
			}
			return nil
		})
	}
	c.Addrs = c.Addrs[:3]
	must(t, d.Set(c))
	if n.ping6(alice6Temp) == nil {
		t.Error("an address that the client has lost is still admitted")
	}
	must(t, d.Close())
	d = n.open6(t)
	d.redirecting6(t)
	n.reaches6(t, alice6)
	must(t, d.Remove(datapath.IDOf(alice)))
	if n.ping6(alice6) == nil {
		t.Error("a client that was removed still passes")
	}
	if out := run(t, "ip -6 neigh show dev $lan nud permanent", n.env()...); strings.TrimSpace(out) != "" {
		t.Errorf("neighbour entries are left: %s", out)
	}
}

// TestIPv6BeforeLogin: connections of a client that is not admitted are refused at once, and its HTTP to any address
// reaches the portal.
func TestIPv6BeforeLogin(t *testing.T) {
	n := newNetwork6(t)
	d := n.open6(t)
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6, alice6Temp}, MAC: aliceMAC}))
	asked := servePortal6(t, d)
	out, err := try(`timeout 10 ip netns exec $client curl -6 -sS -o /dev/null -w '%{http_code} %{remote_ip}' `+
		`http://[2001:db8:9::2]/`, n.env()...)
	if err != nil || out != "511 2001:db8:9::2" {
		t.Errorf("HTTP before login: %q, %v", out, err)
	}
	if request := <-asked; !strings.HasPrefix(request, "GET / ") {
		t.Errorf("the portal was asked %q", request)
	}
	const couldNotConnect = 7 // curl's exit status; without an answer it is 28
	_, err = try(`timeout 10 ip netns exec $client curl -6 -sS --connect-timeout 8 https://[2001:db8:9::2]/`, n.env()...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != couldNotConnect {
		t.Errorf("HTTPS before login: %v, want it refused", err)
	}
	in(t, n.client, func() error {
		c, err := net.Dial("udp6", "[2001:db8:9::2]:443")
		if err != nil {
			return err
		}
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		if _, err := c.Write(bytes.Repeat([]byte{'x'}, 1200)); err != nil {
			return err
		}
		if _, err = c.Read(make([]byte, 10)); !errors.Is(err, unix.EACCES) {
			t.Errorf("QUIC before login: %v, want the error of ICMPv6's administratively prohibited", err)
		}
		return nil
	})
}

// servePortal6 answers one request in the portal's place, and returns a channel from which it can then be read.
func servePortal6(t *testing.T, d *Datapath) <-chan string {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // a socket map takes only plain TCP
	l, err := lc.Listen(t.Context(), "tcp6", "[::]:8080")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	must(t, d.Portal6(l.(*net.TCPListener)))
	asked := make(chan string, 1)
	go func() {
		defer close(asked)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		request := make([]byte, 100)
		k, _ := c.Read(request)
		asked <- string(request[:k])
		fmt.Fprint(c, "HTTP/1.0 511 log in\r\n\r\n")
	}()
	return asked
}

// TestIPv6IsHeard: neighbour discovery, DHCPv6 and packets from unknown addresses are passed to the daemon, and packets
// with another client's address to nobody.
func TestIPv6IsHeard(t *testing.T) {
	n := newNetwork6(t)
	d := n.open6(t)
	heard, err := d.Heard6()
	must(t, err)
	defer heard.Close()
	if n.ping6(alice6) == nil {
		t.Error("an address that nobody is known to have passes")
	}
	b := make([]byte, 2000)
	for {
		k, err := heard.Read(b)
		must(t, err)
		if k >= 54 && bytes.Equal(b[6:12], aliceMAC[:]) && bytes.Equal(b[22:38], alice6.AsSlice()) {
			break
		}
	}
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob, alice6}, MAC: bobMAC, Admitted: true}))
	run(t, "ip -n $client -6 neigh replace 2001:db8:1::1 lladdr 02:00:00:00:01:01 dev c0 nud permanent", n.env()...)
	if n.ping6(alice6) == nil {
		t.Error("a client passes with another's address")
	}
	if got := d.packets(t)["wrong-mac"]; got == 0 {
		t.Error("packets with another's address are not counted")
	}
}

// TestIPv6NothingUnasked: from outside only answers to packets of a client, ICMPv6 errors about them, and packets from
// prefixes that the configuration lets in reach the client.
func TestIPv6NothingUnasked(t *testing.T) {
	n := newNetwork6(t)
	c := datapath.Client{Addrs: []netip.Addr{alice, aliceLocal, alice6, alice6Temp}, MAC: aliceMAC, Admitted: true}
	d := n.open6(t)
	must(t, d.Set(c))
	pingIn := func() error {
		_, err := try("timeout 5 ip netns exec $server ping -6 -c 2 -i 0.2 -W 1 -q 2001:db8:1::10", n.env()...)
		return err
	}
	if pingIn() == nil || d.packets(t)["unasked"] == 0 {
		t.Errorf("the server reaches a client unasked; packets %v", d.packets(t))
	}
	n.reaches6(t, alice6)
	if pingIn() == nil {
		t.Error("the server's own ping passes after the client's")
	}
	in(t, n.client, func() error { // the server's error about a closed port passes
		conn, err := net.Dial("udp6", "[2001:db8:9::2]:9")
		if err != nil {
			return err
		}
		defer conn.Close()
		must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		if _, err = conn.Read(make([]byte, 10)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("a datagram to a closed port: %v", err)
		}
		return nil
	})
	must(t, d.Close())
	outside := []netip.Prefix{netip.MustParsePrefix("2001:db8:9::/64")}
	n.open6(t, func(cfg *Config) { cfg.Networks[0].Inbound6 = outside })
	netnstest.Await(t, "the server's echoes", pingIn)
}

// TestIPv6Alone: a client without IPv4 is admitted, limited and counted, and the next daemon knows it. Its addresses
// can be given to a client with IPv4. Long: the steps of one run.
func TestIPv6Alone(t *testing.T) {
	n := newNetwork6(t)
	d := n.open6(t, shaped)
	d.redirecting6(t)
	id := datapath.Numbered(7)
	c := datapath.Client{ID: id, Addrs: []netip.Addr{alice6, aliceLocal}, MAC: aliceMAC}
	must(t, d.Set(c))
	if n.ping6(alice6) == nil {
		t.Error("it passes before login")
	}
	c.Admitted, c.Limits = true, datapath.Limits{UpBps: 8e6, DownBps: 8e6, TotalBytes: 1 << 20}
	must(t, d.Set(c))
	n.reaches6(t, alice6)
	read := func() datapath.Counters {
		got, err := d.Counters(id)
		must(t, err)
		return got
	}
	before := read()
	n.reaches6(t, alice6)
	got := read()
	if up, down := got.UpPackets-before.UpPackets, got.DownPackets-before.DownPackets; up != 3 || down != 3 {
		t.Errorf("counted %d up, %d down for three echoes", up, down)
	}
	var moved []datapath.ID
	must(t, d.Moved(func(id datapath.ID) { moved = append(moved, id) }))
	all, err := d.Clients()
	must(t, err)
	if want := []datapath.ID{id}; !slices.Equal(moved, want) || !slices.Equal(all, want) {
		t.Errorf("moved: %v, clients: %v", moved, all)
	}
	must(t, d.Close())
	d = n.open6(t, shaped)
	d.redirecting6(t)
	n.reaches6(t, alice6)
	if again := read(); again.Epoch != got.Epoch || again.UpPackets <= got.UpPackets {
		t.Errorf("the next daemon counts %+v after %+v", again, got)
	}
	d.shaping.mu.Lock()
	held := len(d.shaping.heldRates)
	d.shaping.mu.Unlock()
	if held != 1 {
		t.Errorf("the next daemon holds packets of %d clients to their rates", held)
	}
	must(t, d.Remove(id))
	if n.ping6(alice6) == nil {
		t.Error("a client that was removed still passes")
	}
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice, alice6}, MAC: aliceMAC, Admitted: true}))
	n.reaches6(t, alice6)
	if _, err := d.Counters(datapath.Numbered(1 << 20)); !errors.Is(err, datapath.ErrForeign) {
		t.Errorf("a number that there is no room for: %v", err)
	}
}

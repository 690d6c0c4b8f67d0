// Tests of the table with real connections: of a client at 10.1.0.2 and 2001:db8::2, and of one at 10.1.0.3, through a
// router to a server. newScene builds it, and opens a Limiter in the router.

package connlimit_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/netfilter/connlimit"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "ip link set lo up") }

var must = netnstest.Must

const (
	one, other = "10.1.0.2", "10.1.0.3"
	one6       = "2001:db8::2"
	server     = "192.0.2.2:7000"
	server6    = "[2001:db8:1::2]:7000"
)

type scene struct {
	t                      testing.TB
	client, router, server *netnstest.Space
	limiter                *connlimit.Limiter
}

func newScene(t testing.TB) *scene {
	s := &scene{t: t, client: netnstest.NewSpace(t), router: netnstest.NewSpace(t), server: netnstest.NewSpace(t)}
	for _, at := range []*netnstest.Space{s.client, s.router, s.server} {
		at.Run(t, "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0")
	}
	prefix := netip.MustParsePrefix
	s.router.Veth(t, netnstest.End{Name: "lan0"}, s.client, netnstest.End{Name: "c0"})
	s.router.Veth(t, netnstest.End{Name: "wan0"}, s.server, netnstest.End{Name: "s0"})
	s.client.Enable(t, "c0", prefix(one+"/24"), prefix(other+"/24"), prefix(one6+"/64"))
	s.server.Enable(t, "s0", prefix("192.0.2.2/24"), prefix("2001:db8:1::2/64"))
	s.router.Enable(t, "lan0", prefix("10.1.0.1/24"), prefix("2001:db8::1/64"))
	s.router.Enable(t, "wan0", prefix("192.0.2.1/24"), prefix("2001:db8:1::1/64"))
	s.router.AwaitUp(t, "lan0", "wan0")
	s.client.AwaitUp(t, "c0")
	s.server.AwaitUp(t, "s0")
	for _, at := range []*netnstest.Space{s.client, s.router, s.server} { // the kernel hands them out in a moment
		netnstest.Until(t, "IPv6 addresses", func() bool { return at.Run(t, "ip -6 addr show tentative") == "" })
	}
	s.router.Run(t, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 "+ // and UDP must not be forgotten
		"net.netfilter.nf_conntrack_udp_timeout=3600 net.netfilter.nf_conntrack_udp_timeout_stream=3600")
	s.client.Run(t, "ip route add default via 10.1.0.1; ip -6 route add default via 2001:db8::1")
	s.server.Run(t, "ip route add default via 192.0.2.1; ip -6 route add default via 2001:db8:1::1")
	var err error
	s.server.Do(func() { err = errors.Join(echo(t, server), echo(t, server6)) })
	must(t, err)
	s.connect()
	s.do(func() error { return s.limiter.Start() })
	t.Cleanup(func() { s.limiter.Close() })
	return s
}

func (s *scene) connect() {
	s.t.Helper()
	s.do(func() (err error) {
		s.limiter, err = connlimit.Open("lan0", slog.New(slog.DiscardHandler))
		return err
	})
}

// echo sends back what it receives, by TCP and UDP, until the test ends.
func echo(t testing.TB, at string) error {
	l, err := net.Listen("tcp", at)
	if err != nil {
		return err
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	u, err := net.ListenPacket("udp", at)
	if err != nil {
		return err
	}
	t.Cleanup(func() { u.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			u.WriteTo(buf[:n], from)
		}
	}()
	return nil
}

// do calls f in the router.
func (s *scene) do(f func() error) {
	s.t.Helper()
	var err error
	s.router.Do(func() { err = f() })
	must(s.t, err)
}

func (s *scene) set(id datapath.ID, most uint32, addrs ...string) {
	s.t.Helper()
	var all []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a); err == nil {
			all = append(all, p)
			continue
		}
		addr := netip.MustParseAddr(a)
		all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
	}
	s.do(func() error { return s.limiter.Set(id, all, most) })
}

// open opens a connection from an address, and has a byte of it sent there and back.
func (s *scene) open(network, from, to string) (c net.Conn, err error) {
	s.client.Do(func() {
		d := net.Dialer{Timeout: 5 * time.Second}
		ip := net.ParseIP(from)
		if d.LocalAddr = (&net.TCPAddr{IP: ip}); network == "udp" {
			d.LocalAddr = &net.UDPAddr{IP: ip}
		}
		if c, err = d.Dial(network, to); err != nil {
			return
		}
		s.t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err = c.Write([]byte{1}); err == nil {
			_, err = c.Read(make([]byte, 1))
		}
	})
	return c, err
}

// opens opens n connections that must succeed.
func (s *scene) opens(n int, network, from, to string) (all []net.Conn) {
	s.t.Helper()
	for i := range n {
		c, err := s.open(network, from, to)
		if err != nil {
			s.t.Fatalf("connection %d of %d (%s from %s): %v\n%s", i+1, n, network, from, err, s.router.Run(s.t,
				"nft list ruleset; cat /proc/net/nf_conntrack || true"))
		}
		all = append(all, c)
	}
	return all
}

// refused opens a connection, which must be refused at once.
func (s *scene) refused(network, from, to string) {
	s.t.Helper()
	want := syscall.ECONNREFUSED
	if network == "udp" {
		want = syscall.EHOSTUNREACH
		if strings.HasPrefix(to, "[") {
			want = syscall.EACCES
		}
	}
	if _, err := s.open(network, from, to); !errors.Is(err, want) {
		s.t.Fatalf("a connection too many (%s from %s): %v, want %v\n%s", network, from, err, want,
			s.router.Run(s.t, "nft list ruleset; cat /proc/net/nf_conntrack || true"))
	}
}

func TestLimit(t *testing.T) {
	s := newScene(t)
	s.set(7, 5, one, one6)
	s.set(8, 1, other)
	tcp := s.opens(2, "tcp", one, server)
	s.opens(1, "udp", one, server)
	s.opens(1, "tcp", one6, server6)
	s.opens(1, "udp", one6, server6)
	for range 20 {
		s.refused("tcp", one, server)
		s.refused("tcp", one6, server6)
	}
	s.refused("udp", one, server) // ICMP's errors are few: the kernel limits their rate
	s.refused("udp", one6, server6)
	if n := s.limiter.Refused(); n < 42 { // more where a slow machine's client sends one again
		t.Errorf("%d packets refused, want 42", n)
	}
	s.opens(1, "tcp", other, server)
	s.refused("tcp", other, server)

	must(t, tcp[0].Close())
	netnstest.Await(t, "room for another connection", func() error { _, err := s.open("tcp", one, server); return err })
	s.refused("tcp", one, server)
	if _, err := tcp[1].Write([]byte{1}); err != nil {
		t.Errorf("a connection that was there: %v", err)
	}
}

// TestChange changes a limit while connections are there.
func TestChange(t *testing.T) {
	s := newScene(t)
	s.set(7, 3, one)
	all := s.opens(3, "tcp", one, server)
	s.refused("tcp", one, server)
	s.set(7, 5, one)
	all = append(all, s.opens(2, "tcp", one, server)...)
	s.refused("tcp", one, server)
	s.set(7, 2, one)
	for i := range 3 { // five are there: three must end until there is room for none, and a fourth for one
		s.refused("tcp", one, server)
		must(t, all[i].Close())
	}
	s.refused("tcp", one, server)
	must(t, all[3].Close())
	netnstest.Await(t, "room once older connections have ended", func() error {
		s.do(func() error { s.limiter.Look(); return nil })
		_, err := s.open("tcp", one, server)
		return err
	})
	s.refused("tcp", one, server)
	s.set(7, 0, one)
	s.opens(10, "tcp", one, server)
}

// TestFirstLimit gives clients that had none a limit, while they have connections: those through the router count, and
// those with it do not. A client that is held because counting has failed goes on once counting succeeds.
func TestFirstLimit(t *testing.T) {
	s := newScene(t)
	s.do(func() error { return echo(t, "10.1.0.1:7000") })
	s.set(7, 0, one)
	s.opens(2, "tcp", one, server)
	s.opens(2, "tcp", one, "10.1.0.1:7000")
	s.opens(2, "udp", one, "10.1.0.1:7000")
	s.set(7, 3, one)
	s.opens(1, "tcp", one, server)
	s.refused("tcp", one, server)

	s.set(7, 4, one)
	s.do(func() error { return s.limiter.Hold(7) })
	s.do(func() error { s.limiter.Look(); return nil })
	s.opens(1, "tcp", one, server)
	s.refused("tcp", one, server)
}

// TestOverlapping gives clients networks that overlap, and what is the same twice: nothing fails, also where the table
// is made anew, and a network within another one counts with that.
func TestOverlapping(t *testing.T) {
	s := newScene(t)
	s.set(7, 2, "10.1.0.0/24", "10.1.0.0/28")
	s.set(8, 9, "10.1.0.0/28", other, other, other+"/32")
	s.do(func() error { return s.limiter.Start() })
	s.opens(2, "tcp", one, server)
	s.refused("tcp", one, server)
	s.set(7, 2, "10.1.0.0/25")
	s.refused("tcp", one, server)
	s.set(8, 1, "10.1.0.128/25", other)
	s.do(func() error { return s.limiter.Start() })
	s.refused("tcp", one, server)
}

// TestNetworks counts the connections of networks behind a client, and what others open to it.
func TestNetworks(t *testing.T) {
	s := newScene(t)
	s.set(7, 2, "10.1.0.0/24", "2001:db8::/64")
	s.opens(1, "tcp", one, server)
	s.opens(1, "tcp", one6, server6)
	s.refused("tcp", other, server)
	s.refused("udp", one6, server6)
}

// TestMoved gives a client's address to another one.
func TestMoved(t *testing.T) {
	s := newScene(t)
	s.set(7, 1, one, other)
	s.opens(1, "tcp", one, server)
	s.refused("tcp", other, server)
	s.set(8, 1, other)
	s.opens(1, "tcp", other, server)
	s.refused("tcp", one, server)
	s.do(func() error { return s.limiter.Remove(7) })
	s.opens(3, "tcp", one, server)
	s.refused("tcp", other, server)
	s.set(9, 0, other, other) // a client without a limit, while client 8 may be away
	s.opens(3, "tcp", other, server)
}

// TestTakenOver has another daemon take the table over, whose connections count on.
func TestTakenOver(t *testing.T) {
	s := newScene(t)
	s.set(7, 2, one)
	s.opens(2, "tcp", one, server)
	must(t, s.limiter.Close())
	s.refused("tcp", one, server)
	s.connect()
	s.refused("tcp", one, server)
	s.set(7, 3, one)
	s.do(func() error { return s.limiter.Start() })
	s.opens(1, "tcp", one, server)
	s.refused("tcp", one, server)
}

// TestFlood opens connections faster than the kernel forgets refused ones, after which there is room at once.
func TestFlood(t *testing.T) {
	s := newScene(t)
	s.set(7, 3, one)
	all := s.opens(3, "tcp", one, server)
	var err error
	s.client.Do(func() {
		var c net.PacketConn
		if c, err = net.ListenPacket("udp", one+":0"); err != nil {
			return
		}
		defer c.Close()
		for i := range 50_000 {
			to := &net.UDPAddr{IP: net.ParseIP("192.0.2.2"), Port: 1024 + i}
			for range 3 {
				if _, err := c.WriteTo([]byte{1}, to); err == nil {
					break
				}
			}
		}
	})
	must(t, err)
	must(t, all[0].Close())
	netnstest.Await(t, "room after a flood", func() error { _, err := s.open("tcp", one, server); return err })
	s.refused("tcp", one, server)
	if n := s.limiter.Refused(); n < 1000 {
		t.Errorf("%d refused", n)
	}
}

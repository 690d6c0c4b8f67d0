// Tests of limits of connections, with clients that hold connections open: 10.1.0.…, with a lease, and 10.1.0.200.

package gateway

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestConnectionLimit bounds the connections of a client on each data path: as many as the limit pass, one more is
// refused, also while the daemon is away and after a restart, and one passes when one has ended. Another client's pass.
// A login again changes the limit. Long: the steps of one run, each of which needs the state that the one before left.
func TestConnectionLimit(t *testing.T) {
	const translated = "\n[nat]\nmasquerade = true"
	for name, keys := range map[string]string{
		"ebpf": onEBPF, "ebpf and NAT": onEBPF + translated, "tun": `kind = "tun"` + translated,
		"nfqueue": `kind = "nfqueue"` + translated, "nfqueue alone": `kind = "nfqueue"`,
	} {
		if strings.HasPrefix(name, "ebpf") {
			netnstest.NeedTCX(t)
		}
		t.Run(name, func(t *testing.T) {
			network(t)
			keepUDP(t)
			serveEcho(t)
			if name == "tun" { // whose device has the address
				sh(t, "ip addr del 10.1.0.1/24 dev lan0")
			}
			dir := t.TempDir()
			run := func() daemon { return startOn(t, dir, keys+"\n[limits]\nconnections = \"none\"") }
			d := run()
			t.Cleanup(func() {
				must(t, Detach(d.cfg, false))
				if rules := sh(t, "nft list tables"); strings.Contains(rules, "connections") {
					t.Errorf("after detach there are %s", rules)
				}
			})
			addr, other := netip.MustParseAddr(lease(t)), netip.MustParseAddr("10.1.0.200")
			sh(t, "ip -n client addr add 10.1.0.200/24 dev c0")
			mac := strings.TrimSpace(sh(t, "ip netns exec client cat /sys/class/net/c0/address"))
			c, err := control.Dial(d.cfg.ControlSocket())
			must(t, err)
			_, err = c.Login(t.Context(), control.LoginRequest{Addr: addr, User: "ann", Limits: control.Limits{Connections: 4}})
			must(t, err)
			_, err = c.Login(t.Context(), control.LoginRequest{Addr: other, MAC: mac, User: "bob"})
			must(t, err)

			held := openFrom(t, addr, "tcp", 3)
			openFrom(t, addr, "udp", 1)
			refuse(t, addr)
			openFrom(t, other, "tcp", 10)
			st, err := c.Status(t.Context())
			must(t, err)
			if st.Packets["connections"] == 0 {
				t.Errorf("no packet was refused, as it seems: %v", st.Packets)
			}
			if strings.HasPrefix(name, "ebpf") {
				awaitCache(t, c, "ebpf, flow cache", "gatewayd-")
			}
			for _, conn := range held { // established ones go on
				must(t, exchange(conn))
			}
			must(t, held[0].Close())
			room(t, addr)

			must(t, d.stop())
			if !strings.HasPrefix(name, "tun") && !strings.HasPrefix(name, "nfqueue") {
				refuse(t, addr)
			}
			d = run()
			refuse(t, addr)
			c, err = control.Dial(d.cfg.ControlSocket())
			must(t, err)
			_, err = c.Login(t.Context(), control.LoginRequest{Addr: addr, User: "ann", Limits: control.Limits{Connections: 6}})
			must(t, err)
			openFrom(t, addr, "tcp", 2)
			refuse(t, addr)
		})
	}
}

// keepUDP has the kernel not forget connections by UDP, however long a test takes.
func keepUDP(t *testing.T) {
	t.Helper()
	sh(t, "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=3600 net.netfilter.nf_conntrack_udp_timeout_stream=3600")
}

// serveEcho has the server send back what it receives, by TCP and UDP, at port 7000.
func serveEcho(t *testing.T) {
	t.Helper()
	must(t, netnstest.In("/run/netns/server", func() error {
		l, err := net.Listen("tcp", "192.0.2.2:7000")
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		u, err := net.ListenPacket("udp", "192.0.2.2:7000")
		if err != nil {
			return err
		}
		t.Cleanup(func() { u.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					b := make([]byte, 1)
					for {
						if _, err := c.Read(b); err != nil {
							return
						}
						c.Write(b)
					}
				}()
			}
		}()
		go func() {
			b := make([]byte, 1)
			for {
				_, from, err := u.ReadFrom(b)
				if err != nil {
					return
				}
				u.WriteTo(b, from)
			}
		}()
		return nil
	}))
}

// dialFrom opens a connection from one of the client's addresses to the server's port 7000, and uses it.
func dialFrom(t *testing.T, from netip.Addr, network string) (c net.Conn, err error) {
	d := net.Dialer{Timeout: 10 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	if network == "udp" {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	err = netnstest.In("/run/netns/client", func() (err error) {
		c, err = d.Dial(network, "192.0.2.2:7000")
		return err
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	return c, exchange(c)
}

// exchange sends a byte and waits for it to come back.
func exchange(c net.Conn) error {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// openFrom opens n connections, which must succeed.
func openFrom(t *testing.T, from netip.Addr, network string, n int) (all []net.Conn) {
	t.Helper()
	for i := range n {
		c, err := dialFrom(t, from, network)
		if err != nil {
			t.Fatalf("connection %d of %d by %s from %s: %v\n%s", i+1, n, network, from, err,
				sh(t, "nft list ruleset; grep 10.1.0 /proc/net/nf_conntrack || :"))
		}
		all = append(all, c)
	}
	return all
}

// refuse opens a connection, which must be refused at once.
func refuse(t *testing.T, from netip.Addr) {
	t.Helper()
	if _, err := dialFrom(t, from, "tcp"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("a connection too many from %s: %v\n%s", from, err,
			sh(t, "nft list ruleset; grep 10.1.0 /proc/net/nf_conntrack || :"))
	}
}

// room waits until there is room for exactly one more connection.
func room(t *testing.T, from netip.Addr) {
	t.Helper()
	netnstest.Await(t, "room for a connection", func() error { _, err := dialFrom(t, from, "tcp"); return err })
	refuse(t, from)
}

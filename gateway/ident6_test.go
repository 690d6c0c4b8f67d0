package gateway

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/control"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// identPeer is a server to which the client connects, and which then asks who the client is (RFC 1413).
type identPeer struct {
	t        *testing.T
	listener net.Listener
}

// newIdentPeer has a server at an address of the namespace server.
func newIdentPeer(t *testing.T, addr string) *identPeer {
	t.Helper()
	p := &identPeer{t: t}
	must(t, netnstest.In("/run/netns/server", func() (err error) {
		p.listener, err = net.Listen("tcp", net.JoinHostPort(addr, "5000"))
		return err
	}))
	t.Cleanup(func() { p.listener.Close() })
	return p
}

// connect connects the client to the server, from an address.
func (p *identPeer) connect(from netip.Addr) net.Conn {
	p.t.Helper()
	var near net.Conn
	netnstest.Await(p.t, "a connection of the client", func() error {
		return netnstest.In("/run/netns/client", func() (err error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Timeout: 20 * time.Second}
			near, err = d.Dial("tcp", p.listener.Addr().String())
			return err
		})
	})
	far, err := p.listener.Accept()
	must(p.t, err)
	p.t.Cleanup(func() { near.Close(); far.Close() })
	return near
}

// query asks at an address's port 113 about a connection, and returns the reply.
func (p *identPeer) query(at netip.Addr, about net.Conn) (reply string, err error) {
	err = netnstest.In("/run/netns/server", func() error {
		from := p.listener.Addr().(*net.TCPAddr).IP
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 5 * time.Second}
		conn, err := d.Dial("tcp", net.JoinHostPort(at.String(), "113"))
		if err != nil {
			return err
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(2 * time.Minute))
		near, far := about.LocalAddr().(*net.TCPAddr).Port, about.RemoteAddr().(*net.TCPAddr).Port
		if _, err := fmt.Fprintf(conn, "%d,%d\r\n", near, far); err != nil {
			return err
		}
		b, err := io.ReadAll(conn)
		reply = strings.TrimSpace(string(b))
		return err
	})
	return reply, err
}

// expectReply asks until the reply ends with an answer.
func (p *identPeer) expectReply(at netip.Addr, about net.Conn, answer string) {
	p.t.Helper()
	netnstest.Await(p.t, "the reply "+answer, func() error {
		reply, err := p.query(at, about)
		if err == nil && !strings.HasSuffix(reply, " : "+answer) {
			err = fmt.Errorf("%q", reply)
		}
		return err
	})
}

// expectClosed checks that nobody answers at an address's port 113.
func (p *identPeer) expectClosed(at netip.Addr, about net.Conn) {
	p.t.Helper()
	if reply, err := p.query(at, about); err == nil {
		p.t.Errorf("port 113 of %s is open, and says %q", at, reply)
	}
}

// TestIdentIPv6: a host that has a connection with a client's IPv6 address and asks there gets the user of the session
// in which the connection began, whatever the client says itself, and also after the daemon was away. Other hosts, and
// queries about other connections, get no user. Queries by IPv4 are answered as ever. Long: the steps of one run, each
// of which needs the state that the one before left.
func TestIdentIPv6(t *testing.T) {
	network6(t)
	sh(t, "ip -n server addr add 2001:db8:9::3/64 dev s0 nodad")
	cfg := configured(t, t.TempDir(), onEBPF)
	cfg.LAN.Address6 = netip.MustParsePrefix("2001:db8:1::1/64")
	cfg.Ident.Enabled, cfg.Ident.Rate, cfg.Ident.TokenOf = true, 10000, []string{"bob"}
	d := serve(t, cfg)
	t.Cleanup(func() { d.stop(); must(t, Detach(d.cfg, false)) })
	v4, addr := netip.MustParseAddr(lease(t)), awaitAddrs6(t, 1)[0]
	login(t, d, addr, "ann")
	spawn(t, "client", "busybox", "nc", "-lk", "-p", "113", "-e", "/bin/echo", "1 , 1 : USERID : UNIX : liar")
	const ann, none = "USERID : UNIX : ann", "ERROR : NO-USER"
	server, other, server4 := newIdentPeer(t, "2001:db8:9::2"), newIdentPeer(t, "2001:db8:9::3"),
		newIdentPeer(t, "192.0.2.2")
	conn, conn4 := server.connect(addr), server4.connect(v4)
	server.expectReply(addr, conn, ann)
	server4.expectReply(v4, conn4, ann)
	other.expectReply(addr, conn, none)
	server.expectReply(netip.MustParseAddr("2001:db8:1::bad"), conn, none)
	server.expectReply(addr, conn4, none)
	closed := server.connect(addr)
	server.expectReply(addr, closed, ann)
	closed.(*net.TCPConn).SetLinger(0) // RST
	closed.Close()
	server.expectReply(addr, closed, none)

	must(t, d.stop())
	server.expectClosed(addr, conn)
	cfg.Ident.Method = config.IdentMasquerade // which is about IPv4 alone
	d = serve(t, cfg)
	server.expectReply(addr, conn, ann)
	logout(t, d, addr)
	server.expectReply(addr, conn, none)
	login(t, d, addr, "bob")
	server.expectReply(addr, conn, none)
	reply, err := server.query(addr, server.connect(addr))
	must(t, err)
	_, token, _ := strings.Cut(reply, "USERID : OTHER : ")
	if who, err := IdentToken(cfg, token); err != nil || who.User != "bob" || who.Client != addr {
		t.Errorf("the token of %q is of %+v, %v", reply, who, err)
	}
}

// login logs the client in that has an address.
func login(t *testing.T, d daemon, addr netip.Addr, user string) {
	t.Helper()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	netnstest.Await(t, "the login of "+user, func() error {
		_, err := c.Login(t.Context(), control.LoginRequest{Addr: addr, User: user})
		return err
	})
}

// logout logs the client out that has an address.
func logout(t *testing.T, d daemon, addr netip.Addr) {
	t.Helper()
	c, err := control.Dial(d.cfg.ControlSocket())
	must(t, err)
	_, err = c.Logout(t.Context(), control.LogoutRequest{Addr: addr})
	must(t, err)
}

// Tests of the program portal_lookup, which hands connections to the portal's socket. newNetwork makes a LAN with alice
// and bob and a WAN with a server, and open starts a data path between them (main_test.go).

package ebpf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// serve answers each connection with a name and the connection's local address.
func serve(t *testing.T, name, addr string) *net.TCPListener {
	t.Helper()
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // sockmaps hold plain TCP only
	l, err := lc.Listen(t.Context(), "tcp4", addr)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, name+" "+c.LocalAddr().String())
			c.Close()
		}
	}()
	return l.(*net.TCPListener)
}

// TestPortalSocketLookup: HTTP of unauthenticated clients to any address reaches the portal. Admitted clients, hosts of
// the WAN and this machine reach the servers that they address.
func TestPortalSocketLookup(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Portal(serve(t, "portal", "10.1.0.1:8080")))
	serve(t, "here", "192.0.2.1:80")
	in(t, n.server, func() error { serve(t, "far", "192.0.2.2:80"); return nil })
	for name, c := range map[string]struct {
		namespace string // "": this machine
		from      netip.Addr
		admitted  bool
		to, want  string
	}{
		"before login, far away":  {n.client, alice, false, "192.0.2.2:80", "portal 10.1.0.1:80"},
		"before login, nowhere":   {n.client, alice, false, "198.51.100.1:80", "portal 10.1.0.1:80"},
		"before login, here":      {n.client, alice, false, "192.0.2.1:80", "portal 10.1.0.1:80"},
		"admitted, here":          {n.client, alice, true, "192.0.2.1:80", "here 192.0.2.1:80"},
		"admitted, far away":      {n.client, alice, true, "192.0.2.2:80", "far 192.0.2.2:80"},
		"from the WAN":            {n.server, server, false, "192.0.2.1:80", "here 192.0.2.1:80"},
		"this machine":            {"", routerWAN, false, "192.0.2.1:80", "here 192.0.2.1:80"},
		"the gateway's own":       {"", gateway, false, "192.0.2.1:80", "here 192.0.2.1:80"},
		"the gateway's own, away": {"", gateway, false, "192.0.2.2:80", "far 192.0.2.2:80"},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: c.admitted}))
			var text string
			ask := func() error {
				dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.from.AsSlice()}, Timeout: 10 * time.Second}
				conn, err := dialer.Dial("tcp4", c.to)
				if err != nil {
					return err
				}
				defer conn.Close()
				b, err := io.ReadAll(conn)
				text = string(b)
				return err
			}
			if c.namespace == "" {
				must(t, ask())
			} else {
				in(t, c.namespace, ask)
			}
			if !strings.HasPrefix(text, c.want) {
				t.Errorf("answered by %q, want %q", text, c.want)
			}
		})
	}
}

// TestPortOfTwoSites: a client may use one port for connections to two sites, but at the portal they would have the
// same addresses and ports. The later one is answered, and the other one ends at once.
func TestPortOfTwoSites(t *testing.T) {
	n := newNetwork(t)
	d := n.open(t)
	must(t, d.Portal(serve(t, "portal", "10.1.0.1:8080")))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC}))
	dialer := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: alice.AsSlice(), Port: 40406}, Timeout: 10 * time.Second,
		Control: func(_, _ string, c syscall.RawConn) error {
			var set error
			err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
			return errors.Join(err, set)
		},
	}
	var first, second net.Conn
	in(t, n.client, func() (err error) {
		if first, err = dialer.Dial("tcp4", "192.0.2.2:80"); err == nil {
			second, err = dialer.Dial("tcp4", "198.51.100.1:80")
		}
		return err
	})
	defer first.Close()
	defer second.Close()
	for _, c := range []net.Conn{first, second} {
		must(t, c.SetDeadline(time.Now().Add(2*time.Minute)))
	}
	if text, err := io.ReadAll(second); err != nil || !strings.HasPrefix(string(text), "portal") {
		t.Errorf("the later one was answered by %q, %v", text, err)
	}
	netnstest.Await(t, "the end of the former", func() error {
		if _, err := first.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			return fmt.Errorf("writing to it: %v", err)
		}
		return nil
	})
}

// TestHTTPReachesOnlyPortal: rules of the administrator send HTTP to a proxy behind the WAN. They work for admitted
// clients, and no packet of unauthenticated clients leaves by them.
func TestHTTPReachesOnlyPortal(t *testing.T) {
	n := newNetwork(t)
	n.neighbour(t)
	d := n.open(t)
	must(t, d.Portal(serve(t, "portal", "10.1.0.1:8080")))
	run(t, `nft "table ip proxy { chain pre { type nat hook prerouting priority dstnat; iifname $lan tcp dport 80 dnat to 192.0.2.3:443; }; }"`,
		n.env()...)
	t.Cleanup(func() { run(t, "nft delete table ip proxy") })
	netnstest.Await(t, "the stack's turn", func() error {
		if current, _ := d.Forwarding(); current != string(ForwardStack) {
			return errors.New(current)
		}
		return nil
	})
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC, Admitted: true}))
	must(t, d.Set(datapath.Client{Addrs: []netip.Addr{bob}, MAC: bobMAC}))
	w, syn := n.wire(t), datapathtest.Flags("S")
	if came := w.pass(t, tcp(80, syn)); len(came) != 1 || !came[0].of(netip.MustParseAddr("192.0.2.3")) {
		t.Errorf("of an admitted client %d frames came to the proxy", len(came))
	}
	before := d.packets(t)
	if came := w.pass(t, tcp(80, syn, from(bob, bobMAC))); len(came) > 0 {
		t.Errorf("of a stranger came % x", came[0].frame)
	}
	if got := change(before, d.packets(t)); got["portal"] != 1 {
		t.Errorf("a stranger's HTTP was counted as %v", got)
	}
}

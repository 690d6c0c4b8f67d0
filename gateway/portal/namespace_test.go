// The network namespace of this package's tests: addresses of the portal, of clients and of a site outside the LAN.
// start (world_test.go) serves a portal there.

package portal

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// Addresses of the tests' namespace. All of them are local there, so that any LAN address
// can be a client's and any other a site's; connections to port 80 of a site are handed to
// the portal's socket, as a data path does.
var (
	portalAddr = netip.MustParseAddrPort("10.1.0.1:8080")
	tlsAddr    = netip.MustParseAddrPort("10.1.0.1:8443")
	clientA    = netip.MustParseAddr("10.1.0.5") // also that of the browser
	clientB    = netip.MustParseAddr("10.1.0.6")
	site       = netip.MustParseAddr("203.0.113.9")
)

// prepare adds the addresses, and hands connections to the portal like a transparent
// proxy: packets keep their destination and are delivered to another address's socket,
// which must be transparent.
const prepare = `ip link set lo up
ip addr add 10.1.0.5/32 dev lo
ip route add local 10.1.0.0/16 dev lo src 10.1.0.5
ip route add local 203.0.113.0/24 dev lo src 10.1.0.5
nft -f - <<end
table ip capture {
	chain pre {
		type filter hook prerouting priority mangle;
		ip daddr != 10.1.0.0/16 tcp dport 80 tproxy to 10.1.0.1:8080 accept
	}
}
end`

func TestMain(m *testing.M) { netnstest.Main(m, prepare) }

// dialFrom connects as a client of the LAN. Every name resolves to site.
func dialFrom(client netip.Addr) func(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		if _, err := netip.ParseAddr(host); err != nil {
			host = site.String()
			if port == strconv.Itoa(int(tlsAddr.Port())) { // the portal's name
				host = tlsAddr.Addr().String()
			}
		}
		return d.DialContext(ctx, network, net.JoinHostPort(host, port))
	}
}

// TestForeignSourceOverALink covers what loopback cannot show: the site's address is not
// local, so that only a transparent socket can answer from it.
func TestForeignSourceOverALink(t *testing.T) {
	w := start(t, Config{})
	lan := newLink(t, "gwp0", "10.2.0.1/16", "gwp1", "10.2.0.2/16")
	client := netip.MustParseAddr("10.2.0.2")
	w.table.lease(client)
	run(t, "ip", "route", "add", "local", "default", "dev", "lo", "table", "100")
	run(t, "ip", "rule", "add", "iif", "gwp0", "lookup", "100")
	t.Cleanup(func() {
		run(t, "ip", "rule", "del", "iif", "gwp0")
		run(t, "ip", "route", "flush", "table", "100")
	})

	foreign := netip.MustParseAddrPort("198.51.100.7:80")
	conn := lan.dial(t, foreign)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /a HTTP/1.1\r\nHost: example.org\r\n\r\n")
	head := readHead(t, conn)
	want := "Location: http://10.1.0.1:8080/login?url=http%3A%2F%2Fexample.org%2Fa"
	if !strings.HasPrefix(head, "HTTP/1.1 302 ") || !strings.Contains(head, want) {
		t.Errorf("answer from %s:\n%s\nwant a 302 with %s", foreign, head, want)
	}
}

// link is a veth to another namespace.
type link struct {
	*netnstest.Space
}

// newLink joins the tests' namespace, and its address, with another.
func newLink(t *testing.T, near, nearAddr, far, farAddr string) link {
	t.Helper()
	l := link{netnstest.NewSpace(t)}
	run(t, "ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", strconv.Itoa(l.TID()))
	run(t, "ip", "addr", "add", nearAddr, "dev", near)
	run(t, "ip", "link", "set", near, "up")
	gateway, _, _ := strings.Cut(nearAddr, "/")
	l.Run(t, "ip addr add $addr dev $link; ip link set $link up; ip route add default via $via", "addr="+farAddr,
		"link="+far, "via="+gateway)
	return l
}

// dial connects from the other namespace. The socket is opened on the namespace's thread;
// the net package could use any thread.
func (l link) dial(t *testing.T, to netip.AddrPort) net.Conn {
	t.Helper()
	fd, err := -1, error(nil)
	l.Do(func() {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
		}
	})
	if err != nil {
		t.Fatalf("connecting to %s: %v", to, err)
	}
	f := os.NewFile(uintptr(fd), "client")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func run(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

package portal

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideEnv marks the test binary that runs in its own network namespace.
const insideEnv = "GATEWEIGH_PORTAL_TEST_NAMESPACE"

// Addresses of the tests' namespace. All of them are local there, so that any of
// the LAN can be a client's and any of the Internet a site's; what goes to port 80
// of a site is given to the portal's socket, as the data path does it.
var (
	portalAddr = netip.MustParseAddrPort("10.1.0.1:8080")
	tlsAddr    = netip.MustParseAddrPort("10.1.0.1:8443")
	clientA    = netip.MustParseAddr("10.1.0.5") // also the browser's
	clientB    = netip.MustParseAddr("10.1.0.6")
	site       = netip.MustParseAddr("203.0.113.9")
)

// capture is what the eBPF data path does with bpf_sk_assign: packets keep their
// destination and go to the socket of another one, which must be transparent.
const capture = `table ip capture {
	chain pre {
		type filter hook prerouting priority mangle;
		ip daddr != 10.1.0.0/16 tcp dport 80 tproxy to 10.1.0.1:8080 accept
	}
}`

// TestMain runs the tests in a network namespace of their own. It is entered by
// executing the binary anew: threads that exist already would stay outside.
func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) == "" {
		fmt.Fprintln(os.Stderr, "entering a network namespace (needs root):", enter())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// enter returns only on error.
func enter() error {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	for _, line := range []string{
		"ip link set lo up",
		"ip addr add 10.1.0.5/32 dev lo",
		"ip route add local 10.1.0.0/16 dev lo src 10.1.0.5",
		"ip route add local 203.0.113.0/24 dev lo src 10.1.0.5",
		"nft -f -",
	} {
		argv := strings.Fields(line)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin = strings.NewReader(capture)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), insideEnv+"=1"))
}

// dialFrom connects as a client of the LAN. Names are resolved to site, as all of
// them would be somewhere outside.
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

// TestForeignSourceOverALink is the one case that loopback cannot show: the site's
// address is not local, so that only a transparent socket can answer from it.
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

// link is a veth to a namespace that lives as long as its thread.
type link struct {
	work chan func()
}

// newLink joins the tests' namespace, and its address, with another.
func newLink(t *testing.T, near, nearAddr, far, farAddr string) *link {
	t.Helper()
	l := &link{work: make(chan func())}
	done, ready := make(chan struct{}), make(chan error)
	var tid int
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread must not be used again
		tid = unix.Gettid()
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for f := range l.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("unshare: %v", err)
	}
	t.Cleanup(func() { close(l.work); <-done })
	run(t, "ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", strconv.Itoa(tid))
	run(t, "ip", "addr", "add", nearAddr, "dev", near)
	run(t, "ip", "link", "set", near, "up")
	gateway, _, _ := strings.Cut(nearAddr, "/")
	l.do(func() {
		run(t, "ip", "addr", "add", farAddr, "dev", far)
		run(t, "ip", "link", "set", far, "up")
		run(t, "ip", "route", "add", "default", "via", gateway)
	})
	return l
}

// do runs f on the other namespace's thread.
func (l *link) do(f func()) {
	done := make(chan struct{})
	l.work <- func() { defer close(done); f() }
	<-done
}

// dial connects from the other namespace. The socket is made by the thread that is
// there; the net package would make it on any.
func (l *link) dial(t *testing.T, to netip.AddrPort) net.Conn {
	t.Helper()
	fd, err := -1, error(nil)
	l.do(func() {
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

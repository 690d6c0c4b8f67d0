// Steps of the tests of address translation, about protocols for which the kernel has helpers, such as FTP. An
// identHost is a host on the WAN (ident_test.go).

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// checkForeignPorts checks that a client gets no outside port that belongs to another client, neither by a forward nor
// by the kernel's FTP helper, which opens the connections that a client announces. low has the ports 1024 to 41023 of
// 192.0.2.7, and high those of 192.0.2.9. Port 30000 is forwarded to low. Long: the steps of one run, each of which
// needs the state that the one before left.
func (w *world) checkForeignPorts(t *testing.T, low, high *client, server *identHost) {
	t.Helper()
	l, _ := low.serving(7000)
	if got, err := w.reaches("server", netip.MustParseAddrPort("192.0.2.7:30000"), l); err != nil ||
		got.Addr() != serverAddr {
		t.Errorf("forwarded from %v, %v", got, err)
	}
	if got, err := w.reaches(high.host, netip.MustParseAddrPort("192.0.2.7:30000"), l); err != nil ||
		got.Addr().String() != "192.0.2.9" || got.Port() > 41023 {
		t.Errorf("another client's connection comes from %v, %v, not from one of its ports", got, err)
	}
	if got, err := w.reaches("server", netip.MustParseAddrPort("192.0.2.9:30000"), l); err == nil {
		t.Errorf("a port of another client is forwarded to this one, from %v", got)
	}
	w.sh(`nsenter --net=/run/netns/$ID-router nft 'table ip ftp { ct helper standard { type "ftp" protocol tcp; }; chain pre { type filter hook prerouting priority 0; tcp dport 5000 ct helper set "standard"; }; }'`)
	if out := w.sh("nsenter --net=/run/netns/$ID-router gatewayd check-config $DIR/gatewayd.toml 2>&1"); !strings.Contains(
		out, "nat.ports_per_client: the table ip ftp gives connections a helper") {
		t.Errorf("check-config does not say what a helper does:\n%s", out)
	}
	control := low.connect(server)
	near, far := bufio.NewReader(control), bufio.NewReader(server.lastConn)
	for _, say := range []struct { // the helper ignores the first line of each side
		to   net.Conn
		from *bufio.Reader
	}{{control, far}, {server.lastConn, near}} {
		_, err := fmt.Fprint(say.to, "220 hello\r\n")
		must(t, err)
		_, err = say.from.ReadString('\n')
		must(t, err)
	}
	const port = 50001 // belongs to no client

	// The client announces a port to the server.
	_, err := fmt.Fprintf(
		control, "PORT %s,%d,%d\r\n", strings.ReplaceAll(low.addr.String(), ".", ","), port>>8, port&0xff)
	must(t, err)
	text, err := far.ReadString('\n')
	must(t, err)
	var a, b, c, d, high8, low8 int
	_, err = fmt.Sscanf(text, "PORT %d,%d,%d,%d,%d,%d", &a, &b, &c, &d, &high8, &low8)
	must(t, err)
	if !strings.Contains(text, "192,0,2,7") {
		t.Errorf("the kernel has no FTP helper: the server hears %s", text)
	}
	active := low.listens(port)
	if got, ok := w.crosses(
		t, "server", "", fmt.Sprintf("%d.%d.%d.%d:%d", a, b, c, d, high8<<8|low8), active, low, server); ok {
		t.Errorf("%s, as the server receives it, leads to the client (from %v)", strings.TrimSpace(text), got)
	}

	// The server announces a port to the client.
	var passive *net.TCPListener
	w.inHost("server", func() (err error) {
		passive, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: serverAddr.AsSlice(), Port: port})
		return err
	})
	defer passive.Close()
	_, err = fmt.Fprintf(server.lastConn, "227 Entering Passive Mode (192,0,2,2,%d,%d)\r\n", port>>8, port&0xff)
	must(t, err)
	_, err = near.ReadString('\n')
	must(t, err)
	if got, ok := w.crosses(t, low.host, low.addr.String()+":50002", passive.Addr().String(), passive, low, server); ok &&
		(got.Addr().String() != "192.0.2.7" || got.Port() > 41023) {
		t.Errorf("the server sees %v, which is not a port of the client", got)
	}
	w.sh("nsenter --net=/run/netns/$ID-router nft delete table ip ftp")
}

// listens listens at a client's port until the test ends.
func (c *client) listens(port int) (l *net.TCPListener) {
	c.w.t.Helper()
	c.w.inHost(c.host, func() (err error) {
		l, err = net.ListenTCP("tcp4", &net.TCPAddr{IP: c.addr.AsSlice(), Port: port})
		return err
	})
	c.w.t.Cleanup(func() { l.Close() })
	return l
}

// crosses sends a SYN from a host to an address, and reports whether it reaches the listener l before a connection that
// client c begins afterwards, and from which address and port. from is the source; "": any.
func (w *world) crosses(t *testing.T, host, from, to string, l *net.TCPListener, c *client, server *identHost) (
	netip.AddrPort, bool) {
	t.Helper()
	fd := -1
	defer func() { unix.Close(fd) }()
	w.inHost(host, func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
			return os.NewSyscallError("socket", err)
		}
		if from != "" {
			if err := unix.Bind(fd, sockaddr(from)); err != nil {
				return os.NewSyscallError("bind", err)
			}
		}
		unix.Connect(fd, sockaddr(to)) // does not wait for an answer
		return nil
	})
	c.sourceSeenBy(server)
	if !waiting(t, l) {
		return netip.AddrPort{}, false
	}
	far, err := l.Accept()
	must(t, err)
	defer far.Close()
	return far.RemoteAddr().(*net.TCPAddr).AddrPort(), true
}

func sockaddr(address string) *unix.SockaddrInet4 {
	a := netip.MustParseAddrPort(address)
	return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
}

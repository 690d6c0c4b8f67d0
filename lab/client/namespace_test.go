// A test of EndConnections, which resets the connections of a namespace so that the kernel can remove it.

package client

import (
	"fmt"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestEndConnectionsWithoutConnections(t *testing.T) {
	ns, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	open := func() (n int) {
		list, err := netlink.SocketDiagTCP(unix.AF_INET)
		if err != nil {
			t.Error(err)
		}
		for _, s := range list {
			if s.State != tcpTimeWait && s.State != tcpListen {
				n++
			}
		}
		return n
	}
	err = ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		ours, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			return err
		}
		theirs, err := l.Accept()
		if err != nil {
			return err
		}
		// Last words that never arrive.
		if err := netlink.LinkSetDown(lo); err != nil {
			return err
		}
		fmt.Fprint(ours, "goodbye")
		ours.Close()
		theirs.Close()
		if n := open(); n != 2 {
			t.Errorf("%d connections that nobody holds, want 2", n)
		}
		if err := EndConnections(); err != nil {
			return err
		}
		if n := open(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Tests of clients that open connections and send nothing. start (world_test.go) serves a portal; w.table.lease gives a
// client's address a lease. clientA is another client, which must still be answered.

package portal

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// openSilent opens n connections to the portal, of the clients in turn, and sends nothing on them.
func openSilent(n int, clients []netip.Addr) (fds []int, err error) {
	to := &unix.SockaddrInet4{Port: int(portalAddr.Port()), Addr: portalAddr.Addr().As4()}
	for i := range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fds, fmt.Errorf("socket %d: %w", i, err)
		}
		fds = append(fds, fd)
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
			unix.Bind(fd, &unix.SockaddrInet4{Addr: clients[i%len(clients)].As4()}), unix.Connect(fd, to))
		if err != nil && !errors.Is(err, unix.ECONNRESET) { // turned away at once
			return fds, fmt.Errorf("connection %d: %w", i, err)
		}
	}
	return fds, nil
}

// TestSilentConnections: 10,000 connections that say nothing, half of them of one client and half of 200 others, leave
// another client served.
func TestSilentConnections(t *testing.T) {
	const (
		many, others = 10_000, 200
		most         = defaultConns/2 + (1+others)*defaultConnsPerClient/scarceShare // that the portal keeps
	)
	w := start(t, Config{})
	var clients []netip.Addr
	one := netip.MustParseAddr("10.1.8.1")
	w.table.lease(one)
	for i := range others {
		other := netip.AddrFrom4([4]byte{10, 1, 9, byte(i)})
		w.table.lease(other)
		clients = append(clients, one, other)
	}
	var fds []int
	ended := make(chan error)
	go func() {
		var err error
		fds, err = openSilent(many, clients)
		ended <- err
	}()
	served := func() {
		if r := request(t, clientA, base+"/login", nil); r.StatusCode != 200 {
			t.Errorf("another client: %s", r.Status)
		}
	}
	for opening := true; opening; served() { // and once more
		select {
		case err := <-ended:
			opening = false
			if err != nil {
				t.Error(err)
			}
		default:
		}
	}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	await(t, "the rest to be turned away", func() bool { return w.Stats().Turned >= many-most })
	served()
}

// TestFilesForOthers: a low limit of open files bounds the connections, so that the daemon can open what else it needs.
func TestFilesForOthers(t *testing.T) {
	for files, want := range map[uint64]int{
		1024: 512, 20_000: defaultConns, 65_536: defaultConns, unix.RLIM_INFINITY: defaultConns} {
		if got := connsWith(files); got != want {
			t.Errorf("%d connections with %d files, want %d", got, files, want)
		}
	}
}

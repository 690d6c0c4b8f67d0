package portal

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// silence opens n connections to the portal, of the clients in turn, and sends nothing on them.
func silence(n int, clients []netip.Addr) (fds []int, err error) {
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

// TestSilentConnections: 10,000 connections that say nothing, of one client and of 200, leave
// another client served.
func TestSilentConnections(t *testing.T) {
	const many = 10_000
	w := start(t, Config{})
	for name, c := range map[string]struct {
		clients int
		most    int // that the portal keeps
	}{
		"one client":  {1, defaultConnsPerClient},
		"200 clients": {200, defaultConns/2 + 200*defaultConnsPerClient/scarceShare},
	} {
		t.Run(name, func(t *testing.T) {
			var clients []netip.Addr
			for i := range c.clients {
				clients = append(clients, netip.AddrFrom4([4]byte{10, 1, 9, byte(i)}))
				w.table.lease(clients[i])
			}
			before := w.Stats().Turned
			var fds []int
			ended := make(chan error)
			go func() {
				var err error
				fds, err = silence(many, clients)
				ended <- err
			}()
			served := func() {
				if r := ask(t, clientA, base+"/login", nil); r.StatusCode != 200 {
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
			await(t, "the rest to be turned away", func() bool { return int(w.Stats().Turned-before) >= many-c.most })
			served()
		})
	}
}

// TestFilesForOthers: a low limit of open files bounds the connections, so that the daemon can
// open what else it needs.
func TestFilesForOthers(t *testing.T) {
	for files, want := range map[uint64]int{1024: 512, 20_000: defaultConns, 65_536: defaultConns, unix.RLIM_INFINITY: defaultConns} {
		if got := connsWith(files); got != want {
			t.Errorf("%d connections with %d files, want %d", got, files, want)
		}
	}
}

package portal

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen opens the socket to which the data path hands captured connections. It is
// transparent (ip(7), IP_TRANSPARENT), which needs CAP_NET_ADMIN: answers leave with
// the connection's local address, which is that of the requested site.
func Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	lc := net.ListenConfig{
		Control: func(_, _ string, c syscall.RawConn) error {
			var set error
			level, option := unix.SOL_IP, unix.IP_TRANSPARENT
			if addr.Addr().Is6() {
				level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
			}
			err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, 1) })
			if err == nil && set != nil {
				err = fmt.Errorf("making it transparent (needs CAP_NET_ADMIN): %w", set)
			}
			return err
		},
		// Connections are short and have their own deadlines.
		KeepAliveConfig: net.KeepAliveConfig{Enable: false},
		KeepAlive:       -1,
	}
	lc.SetMultipathTCP(false) // a data path cannot steer connections to a socket of that kind
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6"
	}
	l, err := lc.Listen(ctx, network, addr.String())
	if err != nil {
		return nil, fmt.Errorf("listening for clients on %s: %w", addr, err)
	}
	return l, nil
}

// addrPort is a TCP address without the IPv6 form of an IPv4 one, and a link-local one without its zone.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

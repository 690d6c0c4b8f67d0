package client

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// States of a TCP connection that hold nothing: /proc/net/tcp's numbers.
const (
	tcpTimeWait = 6
	tcpListen   = 10
)

// EndConnections resets every TCP connection over IPv4 of the calling thread's
// network namespace. A connection that no process holds any more and whose last
// words nobody acknowledges keeps its namespace, and the links in it, for some
// 100 s more: guests that leave before their gateway has answered make such
// ones. Kernels without CONFIG_INET_DIAG_DESTROY just take that long.
func EndConnections() error {
	var errs []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} { // IPv4 is spoken over sockets of both
		list, err := netlink.SocketDiagTCP(family)
		if err != nil {
			errs = append(errs, fmt.Errorf("listing the host's connections: %w", err))
		}
		for _, s := range list {
			if s.State == tcpTimeWait || s.State == tcpListen || s.ID.Source.To4() == nil {
				continue
			}
			from := &net.TCPAddr{IP: s.ID.Source, Port: int(s.ID.SourcePort)}
			err := netlink.SocketDestroy(from, &net.TCPAddr{IP: s.ID.Destination, Port: int(s.ID.DestinationPort)})
			if errors.Is(err, unix.EOPNOTSUPP) {
				return nil
			}
			if err != nil && !errors.Is(err, unix.ENOENT) { // gone meanwhile
				errs = append(errs, fmt.Errorf("ending the connection %s: %w", from, err))
			}
		}
	}
	return errors.Join(errs...)
}

package persona

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Spoof sends n UDP datagrams to a server's port under addresses that do not
// belong together: from mac, and as the IP address source. They pass by the
// programs, which would put that right.
func (d *DHCP) Spoof(mac MAC, source netip.Addr, via MAC, to netip.AddrPort, n int) error {
	frame, err := datagram(mac, via, netip.AddrPortFrom(source, 9), to, []byte("spoofed"))
	if err != nil {
		return err
	}
	// Protocol zero: it receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a packet socket: %w", err)
	}
	defer unix.Close(fd)
	// Past the queue and so past the program at the way out (packet(7)).
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("preparing a packet socket: %w", err)
	}
	for range n {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: d.ifi.Index}); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
	}
	return nil
}

// Packet sockets, which the sinks of kinds "recv" and "mmap" have in common.

package sink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// packetSocket is a packet socket that sees the frames of an interface in both directions.
type packetSocket struct {
	fd            int
	port          port
	packets, lost int64 // sums of the kernel's statistics; packets includes lost
}

// openPacket opens a socket that receives nothing until bind. keep is the number of bytes that it gets of each frame.
func openPacket(cfg Config, target port, keep int) (_ *packetSocket, err error) {
	program := acceptAll(keep)
	if cfg.Filter != "" {
		if program, err = parseFilter(cfg.Filter); err != nil {
			return nil, err
		}
		program = keepBytes(program, keep)
	}
	fd, err := newSocket(unix.AF_PACKET)
	if err != nil {
		return nil, err
	}
	socket := &packetSocket{fd: fd, port: target}
	if err := socket.filter(program); err != nil {
		socket.close()
		if errors.Is(err, unix.EINVAL) {
			return nil, &configError{
				"the kernel refuses the filter program: it jumps or reads where it must not, or does not end with a return"}
		}
		return nil, fmt.Errorf("attaching the filter: %w", err)
	}
	return socket, nil
}

// newSocket makes a raw socket of a family that needs CAP_NET_RAW.
func newSocket(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EPERM):
		return -1, fmt.Errorf("opening a socket: %w: run as root, or with CAP_NET_RAW", err)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return -1, fmt.Errorf("opening a socket: %w: the kernel lacks CONFIG_PACKET or CONFIG_XDP_SOCKETS", err)
	case err != nil:
		return -1, fmt.Errorf("opening a socket: %w", err)
	}
	return fd, nil
}

// keepPromiscuous makes the interface promiscuous for as long as the socket is open.
func keepPromiscuous(target port) (fd int, err error) {
	if fd, err = newSocket(unix.AF_PACKET); err != nil {
		return -1, err
	}
	if err := promiscuous(fd, target); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// filter has the kernel run a program on each frame, which returns how many bytes of it to keep.
func (s *packetSocket) filter(program []unix.SockFilter) error {
	return unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// vlanTag is the length of a VLAN tag. The kernel removes a frame's outer tag and keeps it in the frame's metadata.
const vlanTag = 4

// tagBytes returns the length of the VLAN tag that the kernel has removed from a frame, by the frame's status.
func tagBytes(status uint32) int {
	if status&unix.TP_STATUS_VLAN_VALID != 0 {
		return vlanTag
	}
	return 0
}

// bind begins to receive. On loopback it leaves out outgoing frames, because each of them comes back.
func (s *packetSocket) bind() error {
	if err := promiscuous(s.fd, s.port); err != nil {
		return err
	}
	if s.port.loopback {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
			return fmt.Errorf("leaving out the frames that leave, which Linux can from 4.20 on: %w", err)
		}
	}
	err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: s.port.index})
	if err != nil {
		return fmt.Errorf("binding a packet socket: %w", err)
	}
	return nil
}

// promiscuous has the interface receive frames for other hosts too, for as long as the socket is open.
func promiscuous(fd int, target port) error {
	member := unix.PacketMreq{Ifindex: int32(target.index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &member); err != nil {
		return fmt.Errorf("making the interface promiscuous: %w", err)
	}
	return nil
}

// networkOrder converts a 16-bit number from the machine's byte order to the network's.
func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(n >> 8), byte(n)})
}

// stopReceiving stops the arrival of frames: by a filter, and by binding the socket to no protocol, which waits for
// frames that are being delivered (older kernels keep the protocol).
func (s *packetSocket) stopReceiving() error {
	if err := s.filter(acceptAll(0)); err != nil {
		return fmt.Errorf("closing the socket to new frames: %w", err)
	}
	_ = unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: s.port.index}) // the interface may be gone
	return nil
}

// tally adds the kernel's statistics to the sums. The kernel resets them with each reading.
func (s *packetSocket) tally() error {
	stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("reading the socket's statistics: %w", err)
	}
	s.packets += int64(stats.Packets)
	s.lost += int64(stats.Drops)
	return nil
}

// drain stops receiving and calls next until all frames that the kernel counted were taken, or until the deadline.
func (s *packetSocket) drain(count *counter, deadline time.Time, next func() error) (lost, left int64, err error) {
	if err := errors.Join(s.stopReceiving(), s.tally()); err != nil {
		return 0, 0, err
	}
	for s.packets-s.lost > count.frames && time.Now().Before(deadline) {
		if err := next(); err != nil {
			return 0, 0, err
		}
	}
	return s.lost, max(0, s.packets-s.lost-count.frames), nil
}

func (s *packetSocket) close() { unix.Close(s.fd) }

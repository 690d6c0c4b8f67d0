package framelink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// Socket is a packet socket that receives a link's frames, which show their sender and bypass the firewall and reverse
// path filter.
//
// It is bound to the interface and to all protocols: the kernel hands each frame to such sockets first, and has it for
// itself again when it comes to the stack. A socket of one protocol would be handed the frame beside the stack, which
// then handles packets one by one and copies them; and where netfilter has seen the frame on a bridge, the connection
// that it begins belonged to two, and the kernel drops such packets on their way to a queue.
type Socket struct {
	// Filter returns the program that passes frames by the index of the interface that they must have come by: a socket
	// that is bound may be handed others at first.
	Filter func(ifindex uint32) []bpf.Instruction
	Buffer int   // bytes of waiting frames
	Groups []MAC // multicast addresses whose frames the interface takes meanwhile
	// AllGroups has the interface take the frames of all multicast addresses.
	AllGroups bool
}

// packetSocket reads one frame a Read.
type packetSocket struct{ *packet.Conn }

// Read takes one frame.
func (s packetSocket) Read(b []byte) (int, error) {
	n, _, err := s.ReadFrom(b)
	return n, err
}

// Open opens the socket. Each Read takes one frame.
func (s Socket) Open(ifi *net.Interface) (io.ReadCloser, error) {
	filter, err := bpf.Assemble(s.Filter(uint32(ifi.Index)))
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err)
	}
	if err := errors.Join(s.prepare(conn, ifi.Index), sockbuf.ReceiveOn(conn, s.Buffer)); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the packet socket: %w", err), conn.Close())
	}
	return packetSocket{conn}, nil
}

// prepare has a socket leave out frames which leave by the interface, and join its groups.
func (s Socket) prepare(conn *packet.Conn, index int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var memberships []unix.PacketMreq
	for _, group := range s.Groups {
		m := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(group))}
		copy(m.Address[:], group[:])
		memberships = append(memberships, m)
	}
	if s.AllGroups {
		memberships = append(memberships, unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI})
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
		for _, m := range memberships {
			inner = errors.Join(inner, unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m))
		}
	})
	return errors.Join(err, inner)
}

// Port is a UDP port of the interface that is bound and not read from, so that no other server takes it, and the kernel
// answers nobody with ICMP errors.
type Port struct {
	Number uint16
	Taken  string // what the error says where another program has it: who, and what to do
	// Group is the IPv6 multicast group to which clients send, so that the interface takes its frames, and switches pass
	// them on; zero: the port is one of IPv4.
	Group netip.Addr
}

func (p Port) hold(ifi *net.Interface) (io.Closer, error) {
	network, local := "udp4", netip.IPv4Unspecified()
	if p.Group.IsValid() {
		network, local = "udp6", netip.IPv6Unspecified()
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		err2 := c.Control(func(fd uintptr) { err = p.prepare(int(fd), ifi) })
		return errors.Join(err, err2)
	}}
	conn, err := lc.ListenPacket(context.Background(), network, netip.AddrPortFrom(local, p.Number).String())
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, errors.New(p.Taken)
	case err != nil && p.Group.IsValid():
		return nil, fmt.Errorf("%w (is IPv6 off there?)", err)
	}
	return conn, err
}

func (p Port) prepare(fd int, ifi *net.Interface) error {
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	err := errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]}),
		unix.BindToDevice(fd, ifi.Name))
	if p.Group.IsValid() {
		group := unix.IPv6Mreq{Multiaddr: p.Group.As16(), Interface: uint32(ifi.Index)}
		err = errors.Join(err, unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &group))
	}
	return err
}

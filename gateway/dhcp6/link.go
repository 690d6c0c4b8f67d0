package dhcp6

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// link is the server's access to its interface. Messages arrive as frames, which show their sender and bypass the
// firewall.
type link struct {
	requests io.ReadCloser  // one frame a Read
	out      *packet.Conn   // receives nothing
	port     net.PacketConn // reserves the port, and joins the servers' group (see holdPort)
	name     string
	mac      MAC
	source   netip.Addr // of replies; zero: not found yet. Of the receiving goroutine
}

const (
	receiveBuffer = 4 << 20 // bytes: some 5,000 messages
	experimental  = 0x88b5  // IEEE 802's local experimental EtherType: nobody sends it
	maxFrame      = 4096    // bytes that are read of a frame: more than Ethernet's 1,514
)

func openLink(cfg Config) (*link, error) {
	name := cfg.Interface
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("serving DHCPv6 on %s: %w", name, err)
	}
	if len(ifi.HardwareAddr) != len(MAC{}) {
		return nil, fmt.Errorf("serving DHCPv6 on %s: it is no Ethernet interface", name)
	}
	port, err := holdPort(ifi)
	if err != nil {
		return nil, err
	}
	l := &link{port: port, name: name, mac: MAC(ifi.HardwareAddr)}
	l.findSource(cfg)
	l.out, err = packet.Listen(
		ifi, packet.Raw, experimental, &packet.Config{Filter: []bpf.RawInstruction{{Op: unix.BPF_RET | unix.BPF_K}}})
	if err != nil {
		l.close()
		return nil, fmt.Errorf("serving DHCPv6 on %s: opening a packet socket: %w (it needs CAP_NET_RAW)", name, err)
	}
	open := cfg.Requests
	if open == nil {
		open = func() (io.ReadCloser, error) { return openSocket(ifi) }
	}
	if l.requests, err = open(); err != nil {
		l.close()
		return nil, fmt.Errorf("serving DHCPv6 on %s: %w", name, err)
	}
	return l, nil
}

// findSource finds the link-local address from which replies come, unless it has one, and reports whether it has then.
// The kernel gives the interface one once it has a carrier.
func (l *link) findSource(cfg Config) bool {
	if !l.source.IsValid() {
		l.source = cfg.Source
	}
	if l.source.IsValid() {
		return true
	}
	ifi, err := net.InterfaceByName(l.name)
	if err != nil {
		return false
	}
	addrs, _ := ifi.Addrs() // an error: there are none
	for _, one := range addrs {
		ip, ok := one.(*net.IPNet)
		if !ok {
			continue
		}
		if addr, _ := netip.AddrFromSlice(ip.IP); addr.Is6() && addr.IsLinkLocalUnicast() {
			l.source = addr
			return true
		}
	}
	return false
}

// socket is a packet socket that receives messages. It is bound to the interface and to all protocols: the kernel hands
// each frame to such sockets first, and has it for itself again when it comes to the stack (see gateway/dhcp).
type socket struct{ *packet.Conn }

func openSocket(ifi *net.Interface) (io.ReadCloser, error) {
	filter, err := bpf.Assemble(messageFilter(uint32(ifi.Index)))
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err)
	}
	if err := errors.Join(incomingOnly(conn), sockbuf.ReceiveOn(conn, receiveBuffer)); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the packet socket: %w", err), conn.Close())
	}
	return socket{conn}, nil
}

// incomingOnly is a filter that drops the packets which leave by the interface.
func incomingOnly(conn *packet.Conn) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = rc.Control(
		func(fd uintptr) { inner = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1) })
	return errors.Join(err, inner)
}

// Read takes one frame.
func (s socket) Read(b []byte) (int, error) {
	n, _, err := s.ReadFrom(b)
	return n, err
}

// messageFilter passes untagged UDP datagrams over IPv6 that arrived on the interface: those to port 547 that are
// addressed to this host or a group, and all to port 546, which show other servers.
func messageFilter(ifindex uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ifindex, SkipTrue: 12},
		bpf.LoadExtension{Num: bpf.ExtVLANTag}, // which the kernel has taken off; 0 is a priority alone
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xfff, SkipTrue: 10},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 8},
		bpf.LoadAbsolute{Off: ethernetLen + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ethernetLen + ipv6Len + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: clientPort, SkipTrue: 3},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: serverPort, SkipTrue: 3},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_MULTICAST, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
}

// holdPort binds UDP port 547 of an interface without reading from it, so that the kernel answers nobody with ICMP
// errors, and joins the group to which clients send: so that the interface takes its frames, and switches pass them on.
func holdPort(ifi *net.Interface) (net.PacketConn, error) {
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	group := unix.IPv6Mreq{Multiaddr: allServers.As16(), Interface: uint32(ifi.Index)}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		err2 := c.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptSockFprog(
					int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]}),
				unix.BindToDevice(int(fd), ifi.Name),
				unix.SetsockoptIPv6Mreq(int(fd), unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &group))
		})
		return errors.Join(err, err2)
	}}
	conn, err := lc.ListenPacket(context.Background(), "udp6", fmt.Sprintf("[::]:%d", serverPort))
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("serving DHCPv6 on %s: another DHCPv6 server has the port: stop it", ifi.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("serving DHCPv6 on %s: %w (is IPv6 off there?)", ifi.Name, err)
	}
	return conn, nil
}

// receive calls f with each frame until reading fails, the interface goes down or disappears, or interrupt is called.
func (l *link) receive(f func([]byte)) error {
	gone := make(chan error, 1)
	go func() {
		_, _, err := l.out.ReadFrom(make([]byte, 64))
		gone <- err
		l.interrupt()
	}()
	buf := make([]byte, maxFrame)
	for {
		n, err := l.requests.Read(buf)
		if err != nil {
			l.interrupt()
			if cause := <-gone; errors.Is(err, os.ErrClosed) || !errors.Is(cause, os.ErrDeadlineExceeded) {
				err = cause // the interface's error is the cause: requests only ended with it
			}
			return fmt.Errorf("reading messages: %w", err)
		}
		f(buf[:n])
	}
}

// send sends a frame.
func (s *Server) send(frame []byte) {
	s.stats.replies.Add(1) // counted before it is sent, so that the count includes it when the client has it
	_, err := s.link.Load().out.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
	if err != nil && !errors.Is(err, net.ErrClosed) {
		s.stats.sendErrors.Add(1)
		s.log.Debug("sending a reply", "err", err)
	}
}

// interrupt ends receive; send still works.
func (l *link) interrupt() {
	l.requests.Close()
	l.out.SetReadDeadline(time.Unix(1, 0))
}

// close may be called more than once.
func (l *link) close() {
	if l.requests != nil {
		l.requests.Close()
	}
	if l.out != nil {
		l.out.Close()
	}
	l.port.Close()
}

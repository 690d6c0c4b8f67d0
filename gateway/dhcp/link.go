package dhcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// link is the server's access to its interface. Requests arrive as frames, which show
// their sender and bypass firewall and reverse path filter, which may reject packets of
// clients without an address.
type link struct {
	requests io.ReadCloser  // one frame a Read
	out      *packet.Conn   // receives nothing
	port     net.PacketConn // reserves the port, and keeps the kernel from answering with ICMP errors
	mac      MAC
}

const (
	receiveBuffer = 4 << 20 // bytes: some 5,000 requests
	experimental  = 0x88b5  // IEEE 802's local experimental EtherType: nobody sends it
)

func openLink(cfg Config) (*link, error) {
	name := cfg.Interface
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("serving DHCP on %s: %w", name, err)
	}
	if len(ifi.HardwareAddr) != len(MAC{}) {
		return nil, fmt.Errorf("serving DHCP on %s: it is no Ethernet interface", name)
	}
	port, err := holdPort(name)
	if err != nil {
		return nil, err
	}
	l := &link{port: port, mac: MAC(ifi.HardwareAddr)}
	l.out, err = packet.Listen(
		ifi, packet.Raw, experimental, &packet.Config{Filter: []bpf.RawInstruction{{Op: unix.BPF_RET | unix.BPF_K}}})
	if err != nil {
		l.close()
		return nil, fmt.Errorf("serving DHCP on %s: opening a packet socket: %w (it needs CAP_NET_RAW)", name, err)
	}
	open := cfg.Requests
	if open == nil {
		open = func() (io.ReadCloser, error) { return openSocket(ifi) }
	}
	if l.requests, err = open(); err != nil {
		l.close()
		return nil, fmt.Errorf("serving DHCP on %s: %w", name, err)
	}
	return l, nil
}

// socket is a packet socket that receives requests. It is bound to the interface and to all protocols: the kernel hands
// each frame to such sockets first, and has it for itself again when it comes to the stack. A socket of IPv4's would be
// handed the frame beside the stack, which then handles packets one by one and copies them; and where netfilter has
// seen the frame on a bridge, the connection that it begins belonged to two, and the kernel drops such packets on their
// way to a queue.
type socket struct{ *packet.Conn }

func openSocket(ifi *net.Interface) (io.ReadCloser, error) {
	filter, err := bpf.Assemble(requestFilter(uint32(ifi.Index)))
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

// requestFilter passes untagged, complete UDP datagrams to port 67 that arrived on the
// interface and are addressed to this host or to all.
func requestFilter(ifindex uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ifindex, SkipTrue: 14},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_BROADCAST, SkipTrue: 12},
		bpf.LoadExtension{Num: bpf.ExtVLANTag}, // which the kernel has taken off; 0 is a priority alone
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xfff, SkipTrue: 10},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 8},
		bpf.LoadAbsolute{Off: ethernetLen + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ethernetLen + 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 4}, // a fragment
		bpf.LoadMemShift{Off: ethernetLen},
		bpf.LoadIndirect{Off: ethernetLen + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: serverPort, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	}
}

// holdPort binds UDP port 67 of an interface without reading from it.
func holdPort(name string) (net.PacketConn, error) {
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		err2 := c.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptSockFprog(
					int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]}),
				unix.BindToDevice(int(fd), name))
		})
		return errors.Join(err, err2)
	}}
	conn, err := lc.ListenPacket(context.Background(), "udp4", fmt.Sprintf("0.0.0.0:%d", serverPort))
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf(
			"serving DHCP on %s: another DHCP server has the port: stop it, or configure DHCP as external", name)
	}
	if err != nil {
		return nil, fmt.Errorf("serving DHCP on %s: %w", name, err)
	}
	return conn, nil
}

// receive calls f with each frame until reading fails, the interface goes down or
// disappears, or interrupt is called.
func (l *link) receive(f func([]byte)) error {
	gone := make(chan error, 1)
	go func() {
		_, _, err := l.out.ReadFrom(make([]byte, 64))
		gone <- err
		l.interrupt()
	}()
	buf := make([]byte, 4096)
	for {
		n, err := l.requests.Read(buf)
		if err != nil {
			l.interrupt()
			if cause := <-gone; errors.Is(err, os.ErrClosed) || !errors.Is(cause, os.ErrDeadlineExceeded) {
				err = cause // the interface's error is the cause: requests only ended with it
			}
			return fmt.Errorf("reading requests: %w", err)
		}
		f(buf[:n])
	}
}

func (l *link) send(frame []byte) error {
	_, err := l.out.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]})
	return err
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

package bindings

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/sockbuf"
)

// link is a server's access to its interface.
type link struct {
	frames io.ReadCloser // one frame a Read
	out    *packet.Conn  // receives nothing
	mac    MAC
}

const (
	receiveBuffer = 4 << 20 // bytes: some 5,000 messages
	experimental  = 0x88b5  // IEEE 802's local experimental EtherType: nobody sends it
	longestFrame  = 2048    // bytes: a message with all its options fits into a packet of 1,500
)

func openLink(name string, open func() (io.ReadCloser, error)) (*link, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("neighbour discovery on %s: %w", name, err)
	}
	if len(ifi.HardwareAddr) != len(MAC{}) {
		return nil, fmt.Errorf("neighbour discovery on %s: it is no Ethernet interface", name)
	}
	out, err := packet.Listen(
		ifi, packet.Raw, experimental, &packet.Config{Filter: []bpf.RawInstruction{{Op: unix.BPF_RET | unix.BPF_K}}})
	if err != nil {
		return nil, fmt.Errorf("neighbour discovery on %s: opening a packet socket: %w (it needs CAP_NET_RAW)", name, err)
	}
	if open == nil {
		open = func() (io.ReadCloser, error) { return openSocket(ifi) }
	}
	frames, err := open()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("neighbour discovery on %s: %w", name, err)
	}
	return &link{frames: frames, out: out, mac: MAC(ifi.HardwareAddr)}, nil
}

// socket is a packet socket that receives neighbour discovery. It is bound to all protocols, as package dhcp's is, for
// the same reason. The interface takes the frames of all multicast groups while it is open.
type socket struct{ *packet.Conn }

func openSocket(ifi *net.Interface) (io.ReadCloser, error) {
	filter, err := bpf.Assemble(filter(uint32(ifi.Index)))
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err)
	}
	if err := errors.Join(prepare(conn, ifi.Index), sockbuf.ReceiveOn(conn, receiveBuffer)); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the packet socket: %w", err), conn.Close())
	}
	return socket{conn}, nil
}

// prepare has a socket receive incoming frames only, and those of all groups.
func prepare(conn *packet.Conn, index int) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = rc.Control(func(fd uintptr) {
		inner = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP,
				&unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_ALLMULTI}))
	})
	return errors.Join(err, inner)
}

// Read takes one frame.
func (s socket) Read(b []byte) (int, error) {
	n, _, err := s.ReadFrom(b)
	return n, err
}

// filter passes untagged ICMPv6 messages of the types 133 to 137 that arrived on the interface and are addressed to
// this host or to a group.
func filter(ifindex uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: ifindex, SkipTrue: 12},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_MULTICAST, SkipTrue: 10},
		bpf.LoadExtension{Num: bpf.ExtVLANTag}, // which the kernel has taken off; 0 is a priority alone
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0xfff, SkipTrue: 8},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IPV6, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ethernetLen + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: icmpv6, SkipTrue: 4},
		bpf.LoadAbsolute{Off: ethernetLen + ipv6Len, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: RouterSolicitation, SkipTrue: 2},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: Redirect, SkipTrue: 1},
		bpf.RetConstant{Val: longestFrame},
		bpf.RetConstant{Val: 0},
	}
}

// receive calls f with each frame until reading fails, the interface goes down or disappears, or interrupt is called.
func (l *link) receive(f func([]byte)) error {
	gone := make(chan error, 1)
	go func() {
		_, _, err := l.out.ReadFrom(make([]byte, 64))
		gone <- err
		l.interrupt()
	}()
	buf := make([]byte, longestFrame)
	for {
		n, err := l.frames.Read(buf)
		if err != nil {
			l.interrupt()
			if cause := <-gone; errors.Is(err, os.ErrClosed) || !errors.Is(cause, os.ErrDeadlineExceeded) {
				err = cause // the interface's error is the cause: frames only ended with it
			}
			return fmt.Errorf("reading neighbour discovery: %w", err)
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
	l.frames.Close()
	l.out.SetReadDeadline(time.Unix(1, 0))
}

// close may be called more than once.
func (l *link) close() {
	l.frames.Close()
	l.out.Close()
}

package routeradv

import (
	"context"
	"encoding/binary"
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

const (
	receiveBuffer = 1 << 20 // bytes: some 1,300 solicitations
	experimental  = 0x88b5  // IEEE 802's local experimental EtherType: nobody sends it
	maxFrame      = 4096    // bytes: longer frames are cut, and refused as such
	// reopenPause is between looks whether an interface that has gone is back.
	reopenPause = 200 * time.Millisecond
)

// link is the server's access to its interface.
type link struct {
	frames io.ReadCloser // one frame a Read
	out    *packet.Conn  // receives nothing
	mac    MAC
}

func openLink(cfg Config) (*link, error) {
	fault := func(err error) (*link, error) {
		return nil, fmt.Errorf("advertising a router on %s: %w", cfg.Interface, err)
	}
	ifi, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return fault(err)
	}
	if len(ifi.HardwareAddr) != len(MAC{}) {
		return fault(errors.New("it is no Ethernet interface"))
	}
	l := &link{mac: MAC(ifi.HardwareAddr)}
	l.out, err = packet.Listen(
		ifi, packet.Raw, experimental, &packet.Config{Filter: []bpf.RawInstruction{{Op: unix.BPF_RET | unix.BPF_K}}})
	if err != nil {
		return fault(fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err))
	}
	open := cfg.Frames
	if open == nil {
		open = func() (io.ReadCloser, error) { return openSocket(ifi) }
	}
	if l.frames, err = open(); err != nil {
		l.close()
		return fault(err)
	}
	return l, nil
}

// socket is a packet socket that receives solicitations and advertisements. It is bound to all protocols, for the
// reason that package dhcp gives for its own.
type socket struct{ *packet.Conn }

func openSocket(ifi *net.Interface) (io.ReadCloser, error) {
	filter, err := bpf.Assemble(frameFilter(uint32(ifi.Index)))
	if err != nil {
		return nil, err
	}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_ALL, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err)
	}
	if err := errors.Join(prepare(conn, ifi), sockbuf.ReceiveOn(conn, receiveBuffer)); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing the packet socket: %w", err), conn.Close())
	}
	return socket{conn}, nil
}

// prepare drops packets which leave by the interface, and has the interface take frames to all routers and all nodes
// while the socket is open, also where the kernel does not forward IPv6.
func prepare(conn *packet.Conn, ifi *net.Interface) error {
	rc, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = rc.Control(func(fd uintptr) {
		inner = unix.SetsockoptInt(int(fd), unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
		for _, group := range []MAC{groupMAC(allNodes.As16()), groupMAC(allRouters.As16())} {
			request := unix.PacketMreq{Ifindex: int32(ifi.Index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(group))}
			copy(request.Address[:], group[:])
			inner = errors.Join(inner,
				unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &request))
		}
	})
	return errors.Join(err, inner)
}

// groupMAC is the Ethernet address of a multicast group (RFC 2464, section 7).
func groupMAC(group [16]byte) MAC { return MAC{0x33, 0x33, group[12], group[13], group[14], group[15]} }

// Read takes one frame.
func (s socket) Read(b []byte) (int, error) {
	n, _, err := s.ReadFrom(b)
	return n, err
}

// frameFilter passes untagged router solicitations and advertisements that arrived on the interface and are addressed
// to this host or to several.
func frameFilter(ifindex uint32) []bpf.Instruction {
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
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 4},
		bpf.LoadAbsolute{Off: ethernetLen + ipv6Len, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: typeRS, SkipTrue: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: typeRA, SkipTrue: 1},
		bpf.RetConstant{Val: maxFrame},
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
	buf := make([]byte, maxFrame)
	for {
		n, err := l.frames.Read(buf)
		if err != nil {
			l.interrupt()
			if cause := <-gone; errors.Is(err, os.ErrClosed) || !errors.Is(cause, os.ErrDeadlineExceeded) {
				err = cause // the interface's error is the cause: frames only ended with it
			}
			return fmt.Errorf("reading frames: %w", err)
		}
		f(buf[:n])
	}
}

// send sends an IPv6 packet to a MAC address, which may be one host's although the packet is for all nodes (RFC 6085).
func (l *link) send(to MAC, ip []byte) error {
	frame := make([]byte, 0, ethernetLen+len(ip))
	frame = append(append(frame, to[:]...), l.mac[:]...)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IPV6)
	_, err := l.out.WriteTo(append(frame, ip...), &packet.Addr{HardwareAddr: to[:]})
	return err
}

// interrupt ends receive; send still works.
func (l *link) interrupt() {
	l.frames.Close()
	l.out.SetReadDeadline(time.Unix(1, 0))
}

// close may be called more than once.
func (l *link) close() {
	if l.frames != nil {
		l.frames.Close()
	}
	l.out.Close()
}

// reopen opens the link again, and repeats that until it works or ctx ends: then it returns nil.
func reopen(ctx context.Context, cfg Config) *link {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reopenPause):
		}
		ifi, err := net.InterfaceByName(cfg.Interface)
		if err != nil || ifi.Flags&net.FlagUp == 0 {
			continue
		}
		if l, err := openLink(cfg); err == nil {
			return l
		}
	}
}

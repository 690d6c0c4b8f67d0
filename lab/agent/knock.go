package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/traffic"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/socket"
)

// Door is where the packets of a load arrive: clients knock there before they are admitted, and after.
type Door struct {
	At  netip.AddrPort `json:"at"`
	UDP bool           `json:"udp,omitzero"` // else TCP
}

func (d Door) String() string {
	if d.UDP {
		return "UDP " + d.At.String()
	}
	return "TCP " + d.At.String()
}

// Door is where the load's packets arrive.
func (t Traffic) Door() Door {
	if traffic.KindOf(t.Kind).Frames {
		return Door{netip.AddrPortFrom(t.Server, frames.Port), true}
	}
	return Door{netip.AddrPortFrom(t.Server, trafficPort), t.UDP}
}

// porter sees what arrives at a door. It reads the host's link: packets count before anything of the server refuses
// them.
type porter struct {
	mu sync.Mutex // guards what follows
	fd int        // 0: the host watches no door
}

var errNoDoor = errors.New("this host watches no door")

// WatchDoor notes the knocks that arrive at a door by a link of the host, from now on and until LeaveDoor.
func (a *Agent) WatchDoor(_ context.Context, link string, d Door) error {
	p := &a.porter
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave()
	ifi, err := net.InterfaceByName(link)
	if err != nil {
		return fmt.Errorf("watching %s on %s: %w", d, link, err)
	}
	// Without a protocol it takes nothing before the filter is there.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("watching %s on %s: %w", d, link, err)
	}
	filter := d.filter()
	err = unix.SetsockoptSockFprog(
		fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: ifi.Index})
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("watching %s on %s: %w", d, link, err)
	}
	p.fd = fd
	return nil
}

func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

// filter takes IPv4 packets that knock at the door, up to their ports: the first segment of a TCP connection (SYN
// without ACK, RFC 9293 section 3.1), or a datagram that begins with knockText. Segments and datagrams of a load that
// arrive late are none.
func (d Door) filter() (list []unix.SockFilter) {
	to := d.At.Addr().As4()
	const most = 64 // bytes: a header with all options, and the ports
	var refuse []int
	var program []bpf.Instruction
	refuseIf := func(cond bpf.JumpTest, val uint32) {
		refuse = append(refuse, len(program))
		program = append(program, bpf.JumpIf{Cond: cond, Val: val})
	}
	protocol := uint32(unix.IPPROTO_TCP)
	if d.UDP {
		protocol = unix.IPPROTO_UDP
	}
	program = append(program, bpf.LoadAbsolute{Off: 16, Size: 4}) // destination
	refuseIf(bpf.JumpNotEqual, binary.BigEndian.Uint32(to[:]))
	program = append(program, bpf.LoadAbsolute{Off: 9, Size: 1})
	refuseIf(bpf.JumpNotEqual, protocol)
	program = append(program, bpf.LoadAbsolute{Off: 6, Size: 2}) // place of a fragment
	refuseIf(bpf.JumpBitsSet, 0x1fff)
	program = append(program, bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: 2, Size: 2}) // destination port
	refuseIf(bpf.JumpNotEqual, uint32(d.At.Port()))
	if d.UDP {
		for at := 0; at < len(knockText); at += 4 {
			program = append(program, bpf.LoadIndirect{Off: uint32(8 + at), Size: 4})
			refuseIf(bpf.JumpNotEqual, binary.BigEndian.Uint32([]byte(knockText[at:])))
		}
	} else {
		const syn, ack = 0x02, 0x10
		program = append(program, bpf.LoadIndirect{Off: 13, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: syn | ack})
		refuseIf(bpf.JumpNotEqual, syn)
	}
	program = append(program, bpf.RetConstant{Val: most}, bpf.RetConstant{Val: 0})
	for _, i := range refuse {
		jump := program[i].(bpf.JumpIf)
		jump.SkipTrue = uint8(len(program) - 2 - i) // to the last one
		program[i] = jump
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		panic(err) // the program is constant but for its operands
	}
	for _, i := range raw {
		list = append(list, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return list
}

// Arrivals returns the senders of the knocks that arrived since the call before, in their order.
func (a *Agent) Arrivals(context.Context) (from []netip.Addr, err error) {
	p := &a.porter
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd == 0 {
		return nil, errNoDoor
	}
	for packet := make([]byte, 64); ; {
		n, _, err := unix.Recvfrom(p.fd, packet, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return from, nil
		case err != nil:
			return from, fmt.Errorf("reading what arrived: %w", err)
		case n >= 20:
			from = append(from, netip.AddrFrom4([4]byte(packet[12:16])))
		}
	}
}

// LeaveDoor watches no longer. Twice is harmless.
func (a *Agent) LeaveDoor(context.Context) {
	a.porter.mu.Lock()
	defer a.porter.mu.Unlock()
	a.porter.leave()
}

// leave closes the socket. The caller holds the lock.
func (p *porter) leave() {
	if p.fd != 0 {
		unix.Close(p.fd)
		p.fd = 0
	}
}

// Knocks are packets that clients send to a door: the first of a connection, or datagrams.
type Knocks struct {
	Door    Door          `json:"door"`
	Clients []int         `json:"clients"` // of the host, by their place from 0
	Times   int           `json:"times"`   // each client knocks so often
	Gap     time.Duration `json:"gap"`     // between two knocks of a client
}

// Knock has clients knock, each time from a new port, and returns when Gap has passed since the last time. What is
// answered is of no interest. Connections that were begun are given up then, so nothing of a knock is sent later.
func (a *Agent) Knock(ctx context.Context, k Knocks) error {
	pool, err := a.clients()
	if err != nil {
		return err
	}
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	for range k.Times {
		for _, i := range k.Clients {
			fd, err := k.Door.knock(pool.Clients[i])
			if err != nil {
				return fmt.Errorf("client %d: knocking at %s: %w", pool.Clients[i].Num, k.Door, err)
			}
			open = append(open, fd)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(k.Gap):
		}
	}
	return nil
}

// knock sends one packet. The caller closes the socket.
func (d Door) knock(c *client.Client) (fd int, err error) {
	kind := unix.SOCK_STREAM
	if d.UDP {
		kind = unix.SOCK_DGRAM
	}
	err = c.Do(func() error {
		fd, err = socket.New(kind, d.At.Addr())
		return err
	})
	if err != nil {
		return -1, err
	}
	if err := d.knockWith(fd, c.LocalIP()); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// knockWith sends one packet by a socket, from an address.
func (d Door) knockWith(fd int, from netip.Addr) error {
	err := unix.Bind(fd, socket.Addr(netip.AddrPortFrom(from, 0)))
	if err == nil {
		err = unix.Connect(fd, socket.Addr(d.At))
	}
	if err == nil && d.UDP {
		_, err = socket.SendSome(fd, append([]byte(knockText), make([]byte, knockBytes-len(knockText))...))
	}
	if errors.Is(err, unix.EINPROGRESS) || refused(err) {
		return nil
	}
	return err
}

const (
	knockBytes = 32         // the payload of a datagram that knocks
	knockText  = "KNOCKING" // what it begins with, a multiple of four bytes: datagrams and frames of no load begin so
)

// refused reports whether a packet was answered with a no: the client is kept out, or nobody listens.
func refused(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) ||
		errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

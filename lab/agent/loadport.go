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

// LoadPort is the port of the server to which clients send their load. To test whether a device blocks clients that are
// not admitted, clients knock at the port, and the server's host records which knocks arrive. A knock is the first
// packet of a TCP connection, or one datagram.
type LoadPort struct {
	Addr netip.AddrPort `json:"at"`
	UDP  bool           `json:"udp,omitzero"` // else TCP
}

func (port LoadPort) String() string {
	if port.UDP {
		return "UDP " + port.Addr.String()
	}
	return "TCP " + port.Addr.String()
}

// LoadPort returns the port to which the clients of the load send.
func (t Traffic) LoadPort() LoadPort {
	if traffic.KindOf(t.Kind).Frames {
		return LoadPort{netip.AddrPortFrom(t.Server, frames.Port), true}
	}
	return LoadPort{netip.AddrPortFrom(t.Server, trafficPort), t.UDP}
}

// portWatch records knocks that arrive for a port. It reads the packets of the host's link, so knocks count even if no
// program listens at the port.
type portWatch struct {
	mu sync.Mutex // guards what follows
	fd int        // 0: the host watches no port
}

var errNoPortWatched = errors.New("this host watches no port")

// WatchPort records the knocks that arrive on a link of the host for a port, until UnwatchPort.
func (a *Agent) WatchPort(_ context.Context, link string, port LoadPort) error {
	p := &a.portWatch
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave()
	ifi, err := net.InterfaceByName(link)
	if err != nil {
		return fmt.Errorf("watching %s on %s: %w", port, link, err)
	}
	// Protocol 0 receives nothing, so no packet passes before the filter is attached.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("watching %s on %s: %w", port, link, err)
	}
	filter := port.filter()
	err = unix.SetsockoptSockFprog(
		fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_IP), Ifindex: ifi.Index})
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("watching %s on %s: %w", port, link, err)
	}
	p.fd = fd
	return nil
}

func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

// filter is a program for the socket that accepts knocks only, so late packets of a load do not count. It cuts packets
// off after the port numbers. Knocks are IPv4 packets: the first segment of a TCP connection (SYN without ACK, RFC 9293
// section 3.1), or a datagram that begins with knockText.
func (port LoadPort) filter() (list []unix.SockFilter) {
	to := port.Addr.Addr().As4()
	const most = 64 // bytes: an IPv4 header with all options, and the ports
	var refuse []int
	var program []bpf.Instruction
	refuseIf := func(cond bpf.JumpTest, val uint32) {
		refuse = append(refuse, len(program))
		program = append(program, bpf.JumpIf{Cond: cond, Val: val})
	}
	protocol := uint32(unix.IPPROTO_TCP)
	if port.UDP {
		protocol = unix.IPPROTO_UDP
	}
	program = append(program, bpf.LoadAbsolute{Off: 16, Size: 4}) // destination
	refuseIf(bpf.JumpNotEqual, binary.BigEndian.Uint32(to[:]))
	program = append(program, bpf.LoadAbsolute{Off: 9, Size: 1})
	refuseIf(bpf.JumpNotEqual, protocol)
	program = append(program, bpf.LoadAbsolute{Off: 6, Size: 2}) // place of a fragment
	refuseIf(bpf.JumpBitsSet, 0x1fff)
	program = append(program, bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: 2, Size: 2}) // destination port
	refuseIf(bpf.JumpNotEqual, uint32(port.Addr.Port()))
	if port.UDP {
		for i := 0; i < len(knockText); i += 4 {
			program = append(program, bpf.LoadIndirect{Off: uint32(8 + i), Size: 4})
			refuseIf(bpf.JumpNotEqual, binary.BigEndian.Uint32([]byte(knockText[i:])))
		}
	} else {
		const syn, ack = 0x02, 0x10
		program = append(program, bpf.LoadIndirect{Off: 13, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: syn | ack})
		refuseIf(bpf.JumpNotEqual, syn)
	}
	program = append(program, bpf.RetConstant{Val: most}, bpf.RetConstant{Val: 0})
	for _, i := range refuse {
		jump := program[i].(bpf.JumpIf)
		jump.SkipTrue = uint8(len(program) - 2 - i) // to the last instruction, which refuses
		program[i] = jump
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		panic(err) // cannot happen: only operands differ between programs
	}
	for _, i := range raw {
		list = append(list, unix.SockFilter{Code: i.Op, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	return list
}

// Arrivals returns the senders of the knocks that arrived since the last call, in order of arrival.
func (a *Agent) Arrivals(context.Context) (from []netip.Addr, err error) {
	p := &a.portWatch
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd == 0 {
		return nil, errNoPortWatched
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

// UnwatchPort ends the watch. Without one it does nothing.
func (a *Agent) UnwatchPort(context.Context) {
	a.portWatch.mu.Lock()
	defer a.portWatch.mu.Unlock()
	a.portWatch.leave()
}

// leave closes the socket. The caller holds the lock.
func (p *portWatch) leave() {
	if p.fd != 0 {
		unix.Close(p.fd)
		p.fd = 0
	}
}

// Knocks says which clients Knock lets knock, and how often.
type Knocks struct {
	Port    LoadPort      `json:"door"`
	Clients []int         `json:"clients"` // indices among the host's clients
	Times   int           `json:"times"`   // knocks of each client
	Gap     time.Duration `json:"gap"`     // after each knock
}

// Knock sends the knocks, each from a new source port, and reads no answers. After the last Gap it
// closes the sockets, so that the kernel does not send a knock again.
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
			fd, err := k.Port.knock(pool.Clients[i])
			if err != nil {
				return fmt.Errorf("client %d: knocking at %s: %w", pool.Clients[i].Num, k.Port, err)
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

// knock sends one packet from a new socket, which the caller closes.
func (port LoadPort) knock(c *client.Client) (fd int, err error) {
	kind := unix.SOCK_STREAM
	if port.UDP {
		kind = unix.SOCK_DGRAM
	}
	err = c.Do(func() error {
		fd, err = socket.New(kind, port.Addr.Addr())
		return err
	})
	if err != nil {
		return -1, err
	}
	if err := port.sendKnock(fd, c.LocalIP()); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sendKnock sends one knock through the socket fd, from the address given. That the device rejects it is no error.
func (port LoadPort) sendKnock(fd int, from netip.Addr) error {
	err := unix.Bind(fd, socket.Addr(netip.AddrPortFrom(from, 0)))
	if err == nil {
		err = unix.Connect(fd, socket.Addr(port.Addr))
	}
	if err == nil && port.UDP {
		_, err = socket.SendSome(fd, append([]byte(knockText), make([]byte, knockBytes-len(knockText))...))
	}
	if errors.Is(err, unix.EINPROGRESS) || portUnreachable(err) {
		return nil
	}
	return err
}

const (
	knockBytes = 32 // payload of a datagram
	// knockText begins the payload. No datagram or frame of a load begins with it. The filter compares four bytes at a
	// time, so its length is a multiple of four.
	knockText = "KNOCKING"
)

// portUnreachable reports whether an error means that a packet was rejected: the device blocks the client, or no
// program listens at the port.
func portUnreachable(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.ENETUNREACH) ||
		errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}

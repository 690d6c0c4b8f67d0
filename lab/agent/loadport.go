package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
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
	Server Server `json:"at"`
	Port   uint16 `json:"port"`
	UDP    bool   `json:"udp,omitzero"` // else TCP
}

// addrs lists the port at each address of the server.
func (port LoadPort) addrs() (list []netip.AddrPort) {
	for _, ip := range []netip.Addr{port.Server.Addr4, port.Server.Addr6} {
		if ip.IsValid() {
			list = append(list, netip.AddrPortFrom(ip, port.Port))
		}
	}
	return list
}

func (port LoadPort) String() string {
	var addrs []string
	for _, addr := range port.addrs() {
		addrs = append(addrs, addr.String())
	}
	protocol := "TCP "
	if port.UDP {
		protocol = "UDP "
	}
	return protocol + strings.Join(addrs, " and ")
}

// LoadPort returns the port to which the clients of the load send.
func (t Traffic) LoadPort() LoadPort {
	if traffic.KindOf(t.Kind).Frames {
		return LoadPort{t.Server, frames.Port, true}
	}
	return LoadPort{t.Server, trafficPort, t.UDP}
}

// portWatch records knocks that arrive for a port. It reads the packets of the host's link, so knocks count even if no
// program listens at the port.
type portWatch struct {
	mu  sync.Mutex // guards what follows
	fds []int      // packet sockets, one for each address of the server; none: the host watches no port
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
	for _, addr := range port.addrs() {
		fd, err := watchAddress(ifi.Index, addr, port.UDP)
		if err != nil {
			p.leave()
			return fmt.Errorf("watching %s on %s: %w", port, link, err)
		}
		p.fds = append(p.fds, fd)
	}
	return nil
}

// watchAddress opens a packet socket that receives the knocks for an address.
func watchAddress(index int, addr netip.AddrPort, udp bool) (fd int, err error) {
	// Protocol 0 receives nothing, so no packet passes before the filter is attached.
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	filter, protocol := knockFilter(addr, udp), uint16(unix.ETH_P_IP)
	if addr.Addr().Is6() {
		protocol = unix.ETH_P_IPV6
	}
	err = unix.SetsockoptSockFprog(
		fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(protocol), Ifindex: index})
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func networkOrder(n uint16) uint16 { return n<<8 | n>>8 }

// knockFilter is a program for the socket that accepts knocks for an address only, so late packets of a load do not
// count. It cuts packets off after the port numbers. A knock is the first segment of a TCP connection (SYN without ACK,
// RFC 9293 section 3.1), or a datagram that begins with knockText. In IPv6 it has no extension headers. Long: one
// program, instruction by instruction.
func knockFilter(addr netip.AddrPort, udp bool) (list []unix.SockFilter) {
	const most = 64 // bytes: a header of IPv6, or one of IPv4 with all options, and the ports
	var refuse []int
	var program []bpf.Instruction
	refuseIf := func(cond bpf.JumpTest, val uint32) {
		refuse = append(refuse, len(program))
		program = append(program, bpf.JumpIf{Cond: cond, Val: val})
	}
	protocol := uint32(unix.IPPROTO_TCP)
	if udp {
		protocol = unix.IPPROTO_UDP
	}
	destination, kind := uint32(16), uint32(9) // places in the header
	if addr.Addr().Is6() {
		destination, kind = 24, 6
	}
	for to := addr.Addr().AsSlice(); len(to) > 0; to, destination = to[4:], destination+4 {
		program = append(program, bpf.LoadAbsolute{Off: destination, Size: 4})
		refuseIf(bpf.JumpNotEqual, binary.BigEndian.Uint32(to))
	}
	program = append(program, bpf.LoadAbsolute{Off: kind, Size: 1})
	refuseIf(bpf.JumpNotEqual, protocol)
	if addr.Addr().Is6() {
		program = append(program, bpf.LoadConstant{Dst: bpf.RegX, Val: ipv6HeaderBytes})
	} else {
		program = append(program, bpf.LoadAbsolute{Off: 6, Size: 2}) // place of a fragment
		refuseIf(bpf.JumpBitsSet, 0x1fff)
		program = append(program, bpf.LoadMemShift{Off: 0})
	}
	program = append(program, bpf.LoadIndirect{Off: 2, Size: 2}) // destination port
	refuseIf(bpf.JumpNotEqual, uint32(addr.Port()))
	if udp { // the payload begins behind a header of 8 bytes
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

// Arrivals returns the senders of the knocks that arrived since the last call, in order of arrival, those of IPv4
// first.
func (a *Agent) Arrivals(context.Context) (from []netip.Addr, err error) {
	p := &a.portWatch
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.fds) == 0 {
		return nil, errNoPortWatched
	}
	for _, fd := range p.fds {
		list, err := readSenders(fd)
		if from = append(from, list...); err != nil {
			return from, fmt.Errorf("reading what arrived: %w", err)
		}
	}
	return from, nil
}

// ipv6HeaderBytes is the length of an IPv6 header without extensions (RFC 8200, 3).
const ipv6HeaderBytes = 40

// readSenders returns the senders of the packets that a packet socket holds.
func readSenders(fd int) (from []netip.Addr, err error) {
	for packet := make([]byte, 64); ; {
		n, _, err := unix.Recvfrom(fd, packet, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return from, nil
		case err != nil:
			return from, err
		case n >= ipv6HeaderBytes && packet[0]>>4 == 6:
			from = append(from, netip.AddrFrom16([16]byte(packet[8:24])))
		case n >= 20 && packet[0]>>4 == 4:
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

// leave closes the sockets. The caller holds the lock.
func (p *portWatch) leave() {
	for _, fd := range p.fds {
		unix.Close(fd)
	}
	p.fds = nil
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
			for _, addr := range k.Port.addrs() {
				fd, err := k.Port.knock(pool.Clients[i], addr)
				if err != nil {
					return fmt.Errorf("client %d: knocking at %s: %w", pool.Clients[i].Num, k.Port, err)
				}
				open = append(open, fd)
			}
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
func (port LoadPort) knock(c *client.Client, addr netip.AddrPort) (fd int, err error) {
	kind := unix.SOCK_STREAM
	if port.UDP {
		kind = unix.SOCK_DGRAM
	}
	err = c.Do(func() error {
		fd, err = socket.New(kind, addr.Addr())
		return err
	})
	if err != nil {
		return -1, err
	}
	if err := port.sendKnock(fd, c.AddressTo(addr.Addr()), addr); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// sendKnock sends one knock through the socket fd, from the address given. That the device rejects it is no error.
func (port LoadPort) sendKnock(fd int, from netip.Addr, to netip.AddrPort) error {
	err := unix.Bind(fd, socket.Addr(netip.AddrPortFrom(from, 0)))
	if err == nil {
		err = unix.Connect(fd, socket.Addr(to))
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

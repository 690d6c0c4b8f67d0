package datapathtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Ports of the gateway's machine. machinePort is another program's, which unauthenticated clients may not reach.
const (
	portalPort  = 8080
	dnsPort     = 53
	machinePort = 2222
	dhcpPort    = 67
)

// services are what clients find at the gateway: a portal that answers with the client's
// address, DNS ports that echo, another program of the machine, and receivers of DHCP.
type services struct {
	closers []io.Closer
	running sync.WaitGroup
}

// listen opens the services that clients reach on the gateway.
func (s *Service) listen(dp datapath.Running) (_ *services, err error) {
	v := &services{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("starting the gateway's services: %w", err), v.close())
		}
	}()
	portal, err := v.tcp(netip.AddrPortFrom(Gateway, portalPort))
	if err != nil {
		return nil, err
	}
	if dp.Portal != nil {
		if err := dp.Portal(portal.(syscall.Conn)); err != nil {
			return nil, err
		}
	}
	guests := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "portal: %s wants %s", r.RemoteAddr, r.Host)
	})
	v.running.Go(func() { http.Serve(portal, guests) })
	for _, addr := range []netip.AddrPort{
		netip.AddrPortFrom(Gateway, dnsPort), netip.AddrPortFrom(netip.IPv4Unspecified(), machinePort)} {
		l, err := v.tcp(addr)
		if err != nil {
			return nil, err
		}
		v.running.Go(func() { echoAll(l) })
	}
	dns, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(Gateway, dnsPort)))
	if err != nil {
		return nil, err
	}
	v.closers = append(v.closers, dns)
	v.running.Go(func() { answer(dns) })
	return v, errors.Join(v.watchDHCP(s), v.hearDHCP(s, dp))
}

// tcp listens with a socket to which a data path can hand captured connections.
func (v *services) tcp(addr netip.AddrPort) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
		return err
	}}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp4", addr.String())
	if err != nil {
		return nil, err
	}
	v.closers = append(v.closers, l)
	return l, nil
}

// echoAll echoes on every connection.
func echoAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { io.Copy(c, c); c.Close() }()
	}
}

// answer echoes every datagram.
func answer(c *net.UDPConn) {
	b := make([]byte, 2000)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		c.WriteToUDPAddrPort(b[:n], from)
	}
}

// watchDHCP counts clients' DHCP messages.
func (v *services) watchDHCP(s *Service) error {
	wire, err := s.dhcpWire()
	if err != nil {
		return err
	}
	v.closers = append(v.closers, wire)
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) {
			err = errors.Join(unix.BindToDevice(int(fd), s.config.LAN()),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
		})
		return err
	}}
	socket, err := lc.ListenPacket(context.Background(), "udp4", fmt.Sprintf("0.0.0.0:%d", dhcpPort))
	if err != nil {
		return err
	}
	v.closers = append(v.closers, socket)
	v.running.Go(func() {
		each(wire, func(b []byte) {
			if headers := 20 + 8; len(b) >= headers { // a frame may end in the middle
				s.count(s.seen.PacketDHCP, b[headers:])
			}
		})
	})
	v.running.Go(func() { each(socket, func(b []byte) { s.count(s.seen.SocketDHCP, b) }) })
	return nil
}

// dhcpWire opens a packet socket for UDP to DHCP's port, as gatewayd's server has it: of all protocols, so that the
// stack does not share packets with it. Where the data path hands requests over, the socket is behind it, and receives
// none.
func (s *Service) dhcpWire() (*packet.Conn, error) {
	dev, err := net.InterfaceByName(s.config.LAN())
	if err != nil {
		return nil, err
	}
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 7},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: unix.PACKET_BROADCAST, SkipTrue: 5},
		bpf.LoadAbsolute{Off: 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 3},
		bpf.LoadAbsolute{Off: 22, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: dhcpPort, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, err
	}
	protocol := unix.ETH_P_ALL
	if s.path.Requests {
		protocol = unix.ETH_P_IP
	}
	return packet.Listen(dev, packet.Datagram, protocol, &packet.Config{Filter: filter})
}

// hearDHCP counts the requests from the data path.
func (v *services) hearDHCP(s *Service, dp datapath.Running) error {
	if !s.path.Requests {
		return nil
	}
	requests, err := dp.Requests()
	if err != nil {
		return err
	}
	v.closers = append(v.closers, requests)
	v.running.Go(func() {
		b := make([]byte, 2000)
		for {
			n, err := requests.Read(b)
			if err != nil {
				return
			}
			if n > 42 {
				s.count(s.seen.FrameDHCP, b[42:n])
			}
		}
	})
	return nil
}

// count records a DHCP message's transaction ID.
func (s *Service) count(in map[uint32]int, message []byte) {
	if len(message) < 8 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in[binary.BigEndian.Uint32(message[4:])]++
}

// each reads from a socket until it is closed, also while its interface is down.
func each(c net.PacketConn, f func([]byte)) {
	b := make([]byte, 1<<16)
	for {
		n, _, err := c.ReadFrom(b)
		switch {
		case err == nil:
			f(b[:n])
		case !errors.Is(err, unix.ENETDOWN):
			return
		}
	}
}

// close closes all services and waits.
func (v *services) close() error {
	var errs []error
	for _, c := range v.closers {
		errs = append(errs, c.Close())
	}
	v.running.Wait()
	return errors.Join(errs...)
}

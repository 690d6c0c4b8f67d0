package dhcp6

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

const receiveBuffer = 4 << 20 // bytes: some 5,000 messages

func linkConfig(cfg Config) framelink.Config {
	return framelink.Config{
		Interface: cfg.Interface, Frames: cfg.Requests, Log: cfg.Log,
		Socket: framelink.Socket{Filter: messageFilter, Buffer: receiveBuffer},
		Port: framelink.Port{
			Number: serverPort, Group: allServers, Taken: "another DHCPv6 server has the port: stop it"},
	}
}

// findSource returns the link-local address from which replies come; zero: there is none yet, because the kernel gives
// the interface one once it has a carrier.
func (s *Server) findSource() netip.Addr {
	if s.cfg.Source.IsValid() {
		return s.cfg.Source
	}
	ifi, err := net.InterfaceByName(s.cfg.Interface)
	if err != nil {
		return netip.Addr{}
	}
	addrs, _ := ifi.Addrs() // an error: there are none
	for _, one := range addrs {
		ip, ok := one.(*net.IPNet)
		if !ok {
			continue
		}
		if addr, _ := netip.AddrFromSlice(ip.IP); addr.Is6() && addr.IsLinkLocalUnicast() {
			return addr
		}
	}
	return netip.Addr{}
}

// send sends a frame.
func (s *Server) send(frame []byte) {
	s.stats.replies.Add(1) // counted before it is sent, so that the count includes it when the client has it
	if err := s.link.Send(frame); err != nil && !errors.Is(err, net.ErrClosed) {
		s.stats.sendErrors.Add(1)
		s.log.Debug("sending a reply", "err", err)
	}
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

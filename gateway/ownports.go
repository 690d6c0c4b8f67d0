package gateway

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/config"
	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// listener is a socket of this machine that can be reached from outside of the LAN.
type listener struct {
	port  uint16
	inode uint32
}

// ownPorts refuses forwards of ports at which this machine itself is reached, as its SSH server: they would lead to the
// client instead.
func (s *survey) ownPorts() {
	if len(s.NAT.Forwards) == 0 {
		return
	}
	from, to := ownChoice()
	for _, proto := range []string{config.TCP, config.UDP} {
		all, err := s.listeners(proto)
		if err != nil {
			s.addFinding(Warning, "looking for the ports of this machine, which no [[nat.forward]] must take: %v", err)
			return
		}
		reported := map[string]bool{}
		for i, f := range s.NAT.Forwards {
			for _, l := range all {
				if f.Proto != proto || l.port < f.Ports.First || f.Ports.Last < l.port {
					continue
				}
				pid, owner := l.holder()
				weight := Refusal
				if proto == config.UDP && pid != 0 && from <= l.port && l.port <= to {
					weight = Warning // perhaps of a question that has been answered by then
				}
				text := fmt.Sprintf(
					"%s: %s of this machine has %s port %d, and would no longer be reached at it from outside: forward another port "+
						"to %s, or stop it",
					s.WhereForward(i, "ports"), owner, strings.ToUpper(proto), l.port, f.To)
				// The gateway's own ports are compared by the configuration's checks.
				if isOurs := pid != 0 && pid == s.running; !isOurs && !reported[text] {
					s.addFinding(weight, "%s", text)
				}
				reported[text] = true
			}
		}
	}
}

// holder names the program that has the socket; pid is 0 where it is the kernel's.
func (l listener) holder() (pid int, owner string) {
	pid, name := datapath.SocketHolder(map[string]bool{fmt.Sprintf("socket:[%d]", l.inode): true})
	if pid == 0 {
		return 0, "the kernel (a tunnel: ip -d link) or a program (ss -lntup)"
	}
	return pid, fmt.Sprintf("%s (process %d)", name, pid)
}

// listeners lists the sockets of a protocol that are reached by wan.interface.
func (s *survey) listeners(proto string) (all []listener, err error) {
	dump, idle := netlink.SocketDiagTCP, uint8(unix.BPF_TCP_LISTEN)
	if proto == config.UDP {
		dump, idle = netlink.SocketDiagUDP, unix.BPF_TCP_CLOSE // bound, and connected to nobody
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		sockets, err := dump(family)
		if err != nil {
			return nil, err
		}
		for _, k := range sockets {
			if k.State == idle && s.outside4(proto, k) {
				all = append(all, listener{k.ID.SourcePort, k.INode})
			}
		}
	}
	return all, nil
}

// outside4 reports whether a socket is reached from outside by IPv4.
func (s *survey) outside4(proto string, k *netlink.Socket) bool {
	if on := int(k.ID.Interface); on != 0 && (s.wan == nil || on != s.wan.Index) {
		return false
	}
	addr, _ := netip.AddrFromSlice(k.ID.Source)
	addr = addr.Unmap()
	switch {
	case addr.IsUnspecified() && k.Family == unix.AF_INET6: // also for IPv4, unless the socket is for IPv6 alone
		return port{network: proto + "4", addr: netip.AddrPortFrom(netip.IPv4Unspecified(), k.ID.SourcePort)}.isTaken()
	case !addr.Is4() || addr.IsLoopback():
		return false
	}
	return !s.LAN.Network().Contains(addr)
}

// ownChoice returns the ports that the kernel chooses of for sockets that name none.
func ownChoice() (from, to uint16) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &from, &to)
	}
	if err != nil {
		return 32768, 60999 // the kernel's own choice
	}
	return from, to
}

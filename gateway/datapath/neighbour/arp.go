package neighbour

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// ARP answers clients that become known by asking for the gateway's address, where another
// program leases addresses. The kernel would make a neighbour entry of everybody it
// answers, whoever that is; so its data path keeps the requests of unknown clients from it.
type ARP struct {
	dev     *net.Interface
	gateway netip.Addr
	conn    *packet.Conn
}

// OpenARP opens a socket on the LAN's interface. With hear it receives ARP packets, otherwise it
// only sends.
func OpenARP(dev *net.Interface, gateway netip.Addr, hear bool) (*ARP, error) {
	cfg := &packet.Config{}
	if !hear {
		cfg.Filter = []bpf.RawInstruction{{Op: unix.BPF_RET | unix.BPF_K}}
	}
	conn, err := packet.Listen(dev, packet.Raw, unix.ETH_P_ARP, cfg)
	if err != nil {
		return nil, fmt.Errorf("answering ARP on %s: %w", dev.Name, err)
	}
	return &ARP{dev: dev, gateway: gateway, conn: conn}, nil
}

// Close ends Next.
func (a *ARP) Close() error {
	if a == nil {
		return nil
	}
	return a.conn.Close()
}

// Next waits for the next ARP packet, and returns its sender as the packet says. ok is false for packets
// without one.
func (a *ARP) Next() (addr netip.Addr, mac datapath.MAC, ok bool, err error) {
	b := make([]byte, 128)
	n, _, err := a.conn.ReadFrom(b)
	if err != nil {
		return addr, mac, false, err
	}
	addr, mac, ok = sender(b[:n])
	return addr, mac, ok, nil
}

// Layout of an ARP packet for IPv4 on Ethernet (RFC 826), bytes.
const (
	header     = 14
	senderMAC  = header + 8
	senderAddr = header + 14
	targetMAC  = header + 18
	targetAddr = header + 24
	arpBytes   = header + 28
)

// fixed is the beginning of each ARP packet, up to the operation.
var fixed = [...]byte{0, 1, 8, 0, 6, 4}

// sender decodes the sender of an ARP frame.
func sender(b []byte) (addr netip.Addr, mac datapath.MAC, ok bool) {
	if len(b) < arpBytes || [len(fixed)]byte(b[header:]) != fixed {
		return addr, mac, false
	}
	addr, mac = netip.AddrFrom4([4]byte(b[senderAddr:])), datapath.MAC(b[senderMAC:])
	return addr, mac, !addr.IsUnspecified() && mac != datapath.MAC{}
}

// Answer sends a client the gateway's MAC address, which is the interface's present one.
func (a *ARP) Answer(addr netip.Addr, mac datapath.MAC) error {
	dev, err := net.InterfaceByIndex(a.dev.Index)
	if err == nil {
		_, err = a.conn.WriteTo(reply(a.gateway, datapath.MAC(dev.HardwareAddr), addr, mac), &packet.Addr{HardwareAddr: mac[:]})
	}
	if err != nil {
		return fmt.Errorf("answering ARP of %s: %w", addr, err)
	}
	return nil
}

// reply encodes an ARP reply.
func reply(from netip.Addr, fromMAC datapath.MAC, to netip.Addr, toMAC datapath.MAC) []byte {
	const operation, isAt = header + 6, 2
	b := make([]byte, arpBytes)
	copy(b, toMAC[:])
	copy(b[6:], fromMAC[:])
	binary.BigEndian.PutUint16(b[12:], unix.ETH_P_ARP)
	copy(b[header:], fixed[:])
	binary.BigEndian.PutUint16(b[operation:], isAt)
	copy(b[senderMAC:], fromMAC[:])
	copy(b[senderAddr:], from.AsSlice())
	copy(b[targetMAC:], toMAC[:])
	copy(b[targetAddr:], to.AsSlice())
	return b
}

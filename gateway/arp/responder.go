package arp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Responder answers ARP requests for the gateway's address by hosts that are not clients yet, where another program
// leases addresses: the request makes such a host a client. The kernel would enter every host that it answers into its
// neighbour table, which has little room (package neighbour). So data paths keep requests of unknown hosts from the
// kernel.
type Responder struct {
	dev     *net.Interface
	gateway netip.Addr
	conn    *packet.Conn
}

// Respond opens a socket on an interface. With hear it receives ARP packets, otherwise it only sends.
func Respond(dev *net.Interface, gateway netip.Addr, hear bool) (*Responder, error) {
	cfg := &packet.Config{}
	if !hear {
		cfg.Filter = []bpf.RawInstruction{{Op: unix.BPF_RET | unix.BPF_K}}
	}
	conn, err := packet.Listen(dev, packet.Raw, unix.ETH_P_ARP, cfg)
	if err != nil {
		return nil, fmt.Errorf("answering ARP on %s: opening a packet socket: %w (it needs CAP_NET_RAW)", dev.Name, err)
	}
	return &Responder{dev: dev, gateway: gateway, conn: conn}, nil
}

// Close ends Next. A nil Responder has nothing to close.
func (r *Responder) Close() error {
	if r == nil {
		return nil
	}
	return r.conn.Close()
}

// Next waits for the next ARP packet of a host, and returns the host's addresses as the packet says. It fails after
// Close and when the interface is gone.
func (r *Responder) Next() (netip.Addr, MAC, error) {
	b := make([]byte, frameLen)
	for {
		n, _, err := r.conn.ReadFrom(b)
		if isOver(err) {
			return netip.Addr{}, MAC{}, err
		}
		if err != nil { // the interface was down for a moment
			continue
		}
		if h, _, ok := sender(b[:n]); ok && !h.addr.IsUnspecified() && h.mac != (MAC{}) {
			return h.addr, h.mac, nil
		}
	}
}

// Answer tells a host the gateway's MAC address, which is the interface's present one.
func (r *Responder) Answer(addr netip.Addr, mac MAC) error {
	dev, err := net.InterfaceByIndex(r.dev.Index)
	if err == nil {
		_, err = r.conn.WriteTo(
			answer(host{r.gateway, MAC(dev.HardwareAddr)}, host{addr, mac}), &packet.Addr{HardwareAddr: mac[:]})
	}
	if err != nil {
		return fmt.Errorf("answering ARP of %s: %w", addr, err)
	}
	return nil
}

// Reply returns the frame that answers an ARP request for the host's address with its MAC address; nil: the frame is no
// such request.
func Reply(frame []byte, addr netip.Addr, mac MAC) []byte {
	of, operation, ok := sender(frame)
	if !ok || operation != request || netip.AddrFrom4([4]byte(frame[ethernetLen+24:])) != addr {
		return nil
	}
	return answer(host{addr, mac}, of)
}

// answer returns the frame of a reply.
func answer(from, to host) []byte {
	b := question4(from.mac, from.addr, to.addr)
	copy(b, to.mac[:])
	binary.BigEndian.PutUint16(b[ethernetLen+6:], reply)
	copy(b[ethernetLen+18:], to.mac[:])
	return b
}

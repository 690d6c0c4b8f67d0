package arp

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
)

// announced is how often an announcement is sent: nobody confirms it.
const announced = 3

// Announce tells all hosts at an interface that it has an address from now on (RFC 5227, 3).
func Announce(dev string, addr netip.Addr) error {
	ifi, err := net.InterfaceByName(dev)
	if err != nil {
		return err
	}
	if len(ifi.HardwareAddr) != len(MAC{}) {
		return fmt.Errorf("%s is no Ethernet interface", dev)
	}
	conn, err := packet.Listen(ifi, packet.Raw, unix.ETH_P_ARP, nil)
	if err != nil {
		return fmt.Errorf("opening a packet socket: %w (it needs CAP_NET_RAW)", err)
	}
	defer conn.Close()
	frame := question4(MAC(ifi.HardwareAddr), addr, addr)
	for range announced {
		if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: broadcast[:]}); err != nil {
			return err
		}
	}
	return nil
}

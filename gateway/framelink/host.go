package framelink

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// Host is whom IPv6 frames come from and go to: a device, or the client of a PPPoE session, which is a link of its own.
type Host struct {
	MAC     MAC
	Session uint16 // PPPoE session; 0: Ethernet without PPPoE
}

// String is the MAC address, and the session's number after a slash if there is a session.
func (h Host) String() string {
	if h.Session == 0 {
		return net.HardwareAddr(h.MAC[:]).String()
	}
	return fmt.Sprintf("%s/%d", net.HardwareAddr(h.MAC[:]), h.Session)
}

const ethernetLen = 14

// Split returns whom an untagged frame is from and its IPv6 packet, with what may follow it, without copying; false: it
// has none. The packet's header is not looked at.
func Split(frame []byte) (from Host, packet []byte, ok bool) {
	if len(frame) < ethernetLen {
		return from, nil, false
	}
	from.MAC = MAC(frame[6:12])
	if binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_IPV6 {
		return from, frame[ethernetLen:], true
	}
	if binary.BigEndian.Uint16(frame[12:]) != pppoe.Session {
		return from, nil, false
	}
	f, err := pppoe.Parse(frame)
	if err != nil || f.Session == 0 {
		return from, nil, false
	}
	proto, packet, err := ppp.SplitFrame(f.PPP)
	from.Session = f.Session
	return from, packet, err == nil && proto == ppp.IPv6
}

// Frame is the frame of an IPv6 packet to a host.
func Frame(to Host, from MAC, packet []byte) []byte {
	if to.Session != 0 {
		inner := append(binary.BigEndian.AppendUint16(nil, uint16(ppp.IPv6)), packet...)
		return (&pppoe.Frame{To: to.MAC, From: from, Session: to.Session, PPP: inner}).Append(nil)
	}
	frame := make([]byte, 0, ethernetLen+len(packet))
	frame = append(append(frame, to.MAC[:]...), from[:]...)
	return append(binary.BigEndian.AppendUint16(frame, unix.ETH_P_IPV6), packet...)
}

package routeradv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// errFrame is what all errors of parseFrame wrap.
var errFrame = errors.New("no valid router solicitation or advertisement")

// heard is a router solicitation, or the advertisement of another router.
type heard struct {
	from   Client // its sender
	src    netip.Addr
	advert bool
	prefix netip.Prefix // the first of an advertisement; zero: it has none
}

// parseFrame decodes an Ethernet frame and makes the checks that RFC 4861 asks for (sections 6.1.1 and 6.1.2). Frames
// come before the kernel's stack has looked at them. The message must follow the IPv6 header: with a fragment header it
// were to be ignored (RFC 6980), and no host puts another one there.
func parseFrame(frame []byte) (heard, error) {
	fault := func(text string) (heard, error) { return heard{}, fmt.Errorf("%w: %s", errFrame, text) }
	from, packet, is6 := framelink.Split(frame)
	h := heard{from: from}
	switch {
	case !is6 || len(packet) == 0 || packet[0]>>4 != 6:
		return fault("it is not IPv6")
	case len(packet) < ipv6Len+rsHeaderLen:
		return fault("it is too short")
	}
	end := ipv6Len + int(binary.BigEndian.Uint16(packet[4:]))
	switch {
	case from.MAC[0]&1 != 0 || from.MAC == MAC{}:
		return fault("its sender is no station")
	case packet[6] != unix.IPPROTO_ICMPV6:
		return fault("ICMPv6 does not follow the IPv6 header")
	case packet[7] != hopLimit:
		return fault("its hop limit is not 255")
	case end > len(packet):
		return fault("it is cut short")
	}
	message := packet[ipv6Len:end]
	if len(message) < rsHeaderLen || checksum(packet[8:ipv6Len], message) != 0xffff || message[1] != 0 {
		return fault("its checksum or its code is wrong")
	}
	h.src = netip.AddrFrom16([16]byte(packet[8:24]))
	if dst := netip.AddrFrom16([16]byte(packet[24:40])); !dst.IsMulticast() && !dst.IsLinkLocalUnicast() {
		return fault("it is not for this link")
	}
	if err := h.read(message); err != nil {
		return heard{}, fmt.Errorf("%w: %w", errFrame, err)
	}
	return h, nil
}

// read takes what is in the ICMPv6 message.
func (h *heard) read(message []byte) error {
	var list []byte
	switch {
	case message[0] == typeRS && (h.src.IsUnspecified() || h.src.IsLinkLocalUnicast()):
		list = message[rsHeaderLen:]
	case message[0] == typeRA && len(message) >= raHeaderLen && h.src.IsLinkLocalUnicast():
		h.advert, list = true, message[raHeaderLen:]
	default:
		return errors.New("its type, its length or its source address is wrong")
	}
	for kind, option := range options(list) {
		list = list[len(option):]
		switch {
		case kind == optSourceMAC && h.src.IsUnspecified():
			return errors.New("it has a source link-layer address without a source address")
		case kind == optPrefix && h.advert && len(option) == prefixOptionLen && !h.prefix.IsValid():
			h.prefix = netip.PrefixFrom(netip.AddrFrom16([16]byte(option[16:])), int(option[2])).Masked()
		}
	}
	if len(list) > 0 {
		return errors.New("an option does not fit")
	}
	return nil
}

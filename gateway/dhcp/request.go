package dhcp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
)

const (
	maxHostname = 63  // bytes, a DNS label
	minMessage  = 576 // bytes of IP datagram that every client accepts (RFC 2131, 2)
	maxMessage  = 1500
)

// Reasons for not answering a message.
var (
	errRelayed   = errors.New("it came through a relay")
	errSpoofed   = errors.New("it names another hardware address than its sender's")
	errMalformed = errors.New("it is no message to a server")
)

// request is a validated message of a client.
type request struct {
	kind     dhcpv4.MessageType
	client   client
	hostname string // sanitised

	xid        dhcpv4.TransactionID
	flags      uint16 // the top bit asks for broadcast replies
	ciaddr     netip.Addr
	wish       netip.Addr // requested address (option 50); the zero Addr: none
	server     netip.Addr // server identifier (option 54); the zero Addr: none
	wanted     []byte     // option codes, in the client's order (option 55)
	agent      []byte     // option 82, which a switch may add (RFC 3046)
	replyBytes int        // for the reply's DHCP message
}

// parseRequest reads a client's message. Errors wrap errMalformed, errRelayed or
// errSpoofed. The request does not refer to the datagram's memory.
func parseRequest(d datagram) (*request, error) {
	p, err := dhcpv4.FromBytes(d.payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	rq := &request{
		kind: p.MessageType(), xid: p.TransactionID, flags: p.Flags & 0x8000,
		hostname: plain(p.Options.Get(dhcpv4.OptionHostName)),
		wanted:   codes(p.Options.Get(dhcpv4.OptionParameterRequestList)),
		agent:    p.Options.Get(dhcpv4.OptionRelayAgentInformation),
	}
	id := p.Options.Get(dhcpv4.OptionClientIdentifier)
	switch {
	case p.OpCode != dhcpv4.OpcodeBootRequest || p.HWType != iana.HWTypeEthernet || len(p.ClientHWAddr) != len(MAC{}):
		return nil, fmt.Errorf("%w: no request of an Ethernet client", errMalformed)
	case len(id) > 255 || len(rq.agent) > 255:
		return nil, fmt.Errorf("%w: client identifier or relay information longer than an option", errMalformed)
	case !p.GatewayIPAddr.IsUnspecified():
		return nil, fmt.Errorf("%w at %s", errRelayed, p.GatewayIPAddr)
	}
	rq.client = client{mac: MAC(p.ClientHWAddr), id: string(id)}
	// The data path admits frames by their sender, and a client that could use any
	// hardware address would count as many clients.
	if rq.client.mac != d.srcMAC || rq.client.mac == (MAC{}) || rq.client.mac[0]&1 != 0 {
		return nil, errSpoofed
	}
	rq.ciaddr, _ = netip.AddrFromSlice(p.ClientIPAddr)
	if rq.wish, err = addrOption(p, dhcpv4.OptionRequestedIPAddress); err != nil {
		return nil, err
	}
	if rq.server, err = addrOption(p, dhcpv4.OptionServerIdentifier); err != nil {
		return nil, err
	}
	size, err := dhcpv4.GetUint16(dhcpv4.OptionMaximumDHCPMessageSize, p.Options)
	if err != nil {
		size = minMessage
	}
	rq.replyBytes = min(max(int(size), minMessage), maxMessage) - ipv4Len - udpLen
	return rq, nil
}

// addrOption returns an option with one address; the zero Addr if it is missing.
func addrOption(p *dhcpv4.DHCPv4, code dhcpv4.OptionCode) (netip.Addr, error) {
	if !p.Options.Has(code) {
		return netip.Addr{}, nil
	}
	addr, ok := netip.AddrFromSlice(p.Options.Get(code))
	if !ok || !addr.Is4() {
		return netip.Addr{}, fmt.Errorf("%w: option %d is no address", errMalformed, code.Code())
	}
	return addr, nil
}

// codes returns each option code once.
func codes(list []byte) []byte {
	var once []byte
	var seen [256]bool
	for _, c := range list {
		if !seen[c] {
			seen[c] = true
			once = append(once, c)
		}
	}
	return once
}

// plain sanitises a hostname: anything but letters, digits, '-', '_' and '.' becomes
// '-'.
func plain(name []byte) string {
	if i := slices.Index(name, 0); i >= 0 { // some clients end it with NUL
		name = name[:i]
	}
	out := make([]byte, 0, min(len(name), maxHostname))
	for _, c := range name[:min(len(name), maxHostname)] {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			out = append(out, c)
		default:
			out = append(out, '-')
		}
	}
	return string(out)
}

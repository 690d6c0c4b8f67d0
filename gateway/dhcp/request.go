package dhcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	maxHostname = 63  // bytes, a DNS label
	minMessage  = 576 // bytes of IP datagram that every client accepts (RFC 2131, 2)
	maxMessage  = 1500
)

// Reasons for not answering a message.
var (
	errRelayed   = errors.New("it came through an unknown relay")
	errSpoofed   = errors.New("it names another hardware address than its sender's")
	errMalformed = errors.New("it is no message to a server")
	errFlood     = errors.New("the device sends them without end")
)

// hardware is the client's hardware address in a message: chaddr with its length and type, which replies repeat.
type hardware struct {
	kind, length byte
	addr         [16]byte
}

// request is a validated message of a client.
type request struct {
	kind     dhcpv4.MessageType
	client   client
	id       string // client identifier (option 61), which replies repeat; empty: none
	behind   bool   // behind a repeater
	hardware hardware
	hostname string // sanitised

	sender   MAC        // of the frame
	relay    netip.Addr // giaddr; the zero Addr: none
	segment  *segment   // the client's link; this and the next are found by locate
	at       Attachment
	said     Attachment // its circuit and remote ID, whether they are believed or not
	unread   error      // why they could not be read
	informed bool       // they are believed

	xid         dhcpv4.TransactionID
	flags       uint16 // the top bit asks for broadcast replies
	source      netip.AddrPort
	ciaddr      netip.Addr
	requested   netip.Addr // requested address (option 50); the zero Addr: none
	server      netip.Addr // server identifier (option 54); the zero Addr: none
	optionCodes []byte     // option codes, in the client's order (option 55)
	agent       []byte     // option 82, which a relay or a switch may add (RFC 3046)
	vendorClass string     // option 60
	userClasses []string   // option 77
	machine     []byte     // option 97, which tells machines apart that boot from the network (RFC 4578, 2.3)
	replyBytes  int        // for the reply's DHCP message
}

// parseRequest reads a client's message. Errors wrap errMalformed. The request does not refer to the datagram's
// memory. Whose it is, on which link its client is, and whether it may be there, is for locate to say.
func parseRequest(d datagram) (*request, error) {
	m, ok := receive(d.payload)
	if !ok {
		return nil, fmt.Errorf("%w: %d bytes, or not of DHCP", errMalformed, len(d.payload))
	}
	rq := &request{
		kind: m.kind(), xid: dhcpv4.TransactionID(m.bytes[atXID:]),
		flags:    binary.BigEndian.Uint16(m.bytes[atFlags:]) & broadcastFlag,
		hardware: hardware{m.bytes[1], m.bytes[2], [16]byte(m.bytes[atHardware:])},
		source:   d.src, ciaddr: m.field(atCiaddr), sender: d.srcMAC,
		requested: m.address(dhcpv4.OptionRequestedIPAddress), server: m.address(dhcpv4.OptionServerIdentifier),
		hostname:    cleanHostname(m.joinedOption(dhcpv4.OptionHostName)),
		optionCodes: codes(m.joinedOption(dhcpv4.OptionParameterRequestList)),
		agent:       m.joinedOption(dhcpv4.OptionRelayAgentInformation),
		vendorClass: string(m.joinedOption(dhcpv4.OptionClassIdentifier)),
		userClasses: userClasses(m.joinedOption(dhcpv4.OptionUserClassInformation)),
		machine:     m.joinedOption(dhcpv4.OptionClientMachineIdentifier),
		replyBytes:  m.maxReply(),
	}
	length := int(rq.hardware.length)
	switch {
	case m.bytes[0] != byte(dhcpv4.OpcodeBootRequest):
		return nil, fmt.Errorf("%w: a reply", errMalformed)
	case length < len(MAC{}) || length > len(rq.hardware.addr):
		return nil, fmt.Errorf("%w: a hardware address of %d bytes", errMalformed, length)
	}
	if relay := m.field(atGiaddr); !relay.IsUnspecified() {
		rq.relay = relay
	}
	rq.said.Circuit, rq.said.Remote, rq.unread = m.agentIDs()
	rq.id = string(m.joinedOption(dhcpv4.OptionClientIdentifier))
	rq.dropContradictions()
	return rq, nil
}

// dropContradictions removes fields that contradict the rest of a message, as some clients send them.
func (rq *request) dropContradictions() {
	// Some name their former address in ciaddr too early: it is for clients that use one already.
	if rq.kind == dhcpv4.MessageTypeDiscover || rq.kind == dhcpv4.MessageTypeRequest && rq.requested.IsValid() {
		rq.ciaddr = netip.IPv4Unspecified()
	}
	// An INFORM comes from the address that it is about.
	if rq.kind == dhcpv4.MessageTypeInform && rq.ciaddr.IsUnspecified() {
		rq.ciaddr = rq.source.Addr()
	}
	if rq.server.IsValid() && rq.server.IsUnspecified() {
		rq.server = netip.Addr{}
	}
}

// wantsIPv6Only reports whether a client can do without IPv4 where the network has it so (RFC 8925, 3.2).
func (rq *request) wantsIPv6Only() bool { return slices.Contains(rq.optionCodes, codeIPv6Only) }

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

// cleanHostname sanitises a hostname: anything but letters, digits, '-', '_' and '.' becomes '-'.
func cleanHostname(name []byte) string {
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

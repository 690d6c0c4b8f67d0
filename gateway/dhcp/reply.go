package dhcp

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Codes of the options that the server sets itself.
var (
	codeMask      = dhcpv4.OptionSubnetMask.Code()
	codePortal    = dhcpv4.OptionURL.Code() // 114: of the captive portal API (RFC 8910)
	codeLease     = dhcpv4.OptionIPAddressLeaseTime.Code()
	codeKind      = dhcpv4.OptionDHCPMessageType.Code()
	codeServer    = dhcpv4.OptionServerIdentifier.Code()
	codeMessage   = dhcpv4.OptionMessage.Code()
	codeRenewal   = dhcpv4.OptionRenewTimeValue.Code()
	codeRebinding = dhcpv4.OptionRebindingTimeValue.Code()
	codeClientID  = dhcpv4.OptionClientIdentifier.Code()
	codeAgent     = dhcpv4.OptionRelayAgentInformation.Code()
)

const (
	headerBytes = 236 // length of the fields before the magic cookie (RFC 2131, figure 1)
	minReply    = 300 // bytes that old clients require (RFC 1542, 2.1)
)

// fixedOptions returns the options that have the same value for every client.
func fixedOptions(cfg Config) map[byte][]byte {
	mask := [4]byte{}
	binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-cfg.Subnet.Bits()))
	opts := map[byte][]byte{
		codeMask:                             mask[:],
		dhcpv4.OptionRouter.Code():           addresses(cfg.Routers),
		dhcpv4.OptionDomainNameServer.Code(): addresses(cfg.DNS),
		dhcpv4.OptionBroadcastAddress.Code(): broadcastOf(cfg.Subnet).AsSlice(),
		dhcpv4.OptionServerIdentifier.Code(): cfg.Server.AsSlice(),
	}
	if cfg.Domain != "" {
		opts[dhcpv4.OptionDomainName.Code()] = []byte(cfg.Domain)
	}
	if cfg.MTU != 0 {
		opts[dhcpv4.OptionInterfaceMTU.Code()] = binary.BigEndian.AppendUint16(nil, uint16(cfg.MTU))
	}
	if cfg.CaptivePortalURL != "" {
		opts[codePortal] = []byte(cfg.CaptivePortalURL)
	}
	for _, o := range cfg.Options {
		opts[o.Code] = o.Data
	}
	return opts
}

func addresses(list []netip.Addr) []byte {
	var b []byte
	for _, a := range list {
		b = append(b, a.AsSlice()...)
	}
	return b
}

// reply is an answer to a request.
type reply struct {
	kind   dhcpv4.MessageType
	addr   netip.Addr    // the client's (yiaddr); the zero Addr: none
	lease  time.Duration // 0: not said
	early  time.Duration // how much earlier T1 and T2 are than 1/2 and 7/8 of it
	reason string        // of a NAK
}

// options returns the options of a reply: first the required ones, then those that the
// client requested in its order (RFC 2132, 9.8), then those that are always sent. What
// does not fit is left out, the last first.
func (r reply) options(rq *request, fixed map[byte][]byte) []Option {
	kind, server := Option{codeKind, []byte{byte(r.kind)}}, Option{codeServer, fixed[codeServer]}
	if r.kind == dhcpv4.MessageTypeNak {
		return append([]Option{kind, server, {codeMessage, []byte(r.reason)}}, echoes(rq)...)
	}
	values, always := maps.Clone(fixed), []byte{codeMask, codePortal}
	delete(values, codeServer)
	if r.lease > 0 {
		values[codeLease] = seconds(r.lease)
		values[codeRenewal] = seconds(r.lease/2 - r.early)
		values[codeRebinding] = seconds(r.lease*7/8 - r.early)
		always = []byte{codeLease, codeMask, codePortal, codeRenewal, codeRebinding}
	}
	wanted := rq.wanted
	if wanted == nil {
		wanted = slices.Sorted(maps.Keys(values))
	}
	space := rq.replyBytes - headerBytes - 5 // cookie and end
	list := []Option{kind, server}
	must := 0 // bytes reserved for required options
	for _, o := range list {
		space -= 2 + len(o.Data)
	}
	for _, code := range always {
		must += optionBytes(values[code])
	}
	for _, code := range append(slices.Clone(wanted), always...) {
		data, size := values[code], optionBytes(values[code])
		delete(values, code)
		if slices.Contains(always, code) {
			must -= size
		}
		if data != nil && size <= space-must {
			list = append(list, Option{code, data})
			space -= size
		}
	}
	for _, o := range echoes(rq) {
		if size := optionBytes(o.Data); size <= space {
			list = append(list, o)
			space -= size
		}
	}
	return list
}

func seconds(d time.Duration) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(d/time.Second))
}

// optionBytes is the encoded length of an option; 0 for no data.
func optionBytes(data []byte) int {
	if data == nil {
		return 0
	}
	return 2 + len(data)
}

// echoes returns the options that are copied from the request: the client identifier (RFC
// 6842) and, last, relay information (RFC 3046, 2.2).
func echoes(rq *request) []Option {
	var list []Option
	if rq.client.id != "" {
		list = append(list, Option{codeClientID, []byte(rq.client.id)})
	}
	if len(rq.agent) > 0 {
		list = append(list, Option{codeAgent, rq.agent})
	}
	return list
}

// message encodes a reply as its DHCP message (RFC 2131, 2 and table 3).
func (r reply) message(rq *request, fixed map[byte][]byte) []byte {
	b := make([]byte, headerBytes, minReply)
	b[0], b[1], b[2] = byte(dhcpv4.OpcodeBootReply), 1, byte(len(MAC{}))
	copy(b[4:], rq.xid[:])
	binary.BigEndian.PutUint16(b[10:], rq.flags)
	if r.kind == dhcpv4.MessageTypeAck {
		copy(b[12:], rq.ciaddr.AsSlice())
	}
	copy(b[16:], r.addr.AsSlice())
	copy(b[28:], rq.client.mac[:])
	b = append(b, 99, 130, 83, 99)
	for _, o := range r.options(rq, fixed) {
		b = append(append(b, o.Code, byte(len(o.Data))), o.Data...)
	}
	b = append(b, dhcpv4.OptionEnd.Code())
	return append(b, make([]byte, max(0, minReply-len(b)))...)
}

// frame addresses a reply as in RFC 2131, 4.1: to a client without an address by its MAC,
// without ARP.
func (r reply) frame(rq *request, cfg Config, fixed map[byte][]byte, from MAC) []byte {
	to, mac := limitedBroadcast, broadcastMAC
	switch {
	case r.kind == dhcpv4.MessageTypeNak: // the client's address may be another's
	case !rq.ciaddr.IsUnspecified():
		to, mac = rq.ciaddr, rq.client.mac
	case rq.flags == 0:
		to, mac = r.addr, rq.client.mac
	}
	return datagram{
		srcMAC: from, dstMAC: mac,
		src: netip.AddrPortFrom(cfg.Server, serverPort), dst: netip.AddrPortFrom(to, clientPort),
		payload: r.message(rq, fixed),
	}.frame()
}

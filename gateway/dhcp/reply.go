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
	codeRouter    = dhcpv4.OptionRouter.Code()
	codePortal    = dhcpv4.OptionURL.Code() // 114: of the captive portal API (RFC 8910)
	codeLease     = dhcpv4.OptionIPAddressLeaseTime.Code()
	codeKind      = dhcpv4.OptionDHCPMessageType.Code()
	codeServer    = dhcpv4.OptionServerIdentifier.Code()
	codeMessage   = dhcpv4.OptionMessage.Code()
	codeRenewal   = dhcpv4.OptionRenewTimeValue.Code()
	codeRebinding = dhcpv4.OptionRebindingTimeValue.Code()
	codeClientID  = dhcpv4.OptionClientIdentifier.Code()
	codeAgent     = dhcpv4.OptionRelayAgentInformation.Code()
	codeIPv6Only  = dhcpv4.OptionIPv6OnlyPreferred.Code() // 108
)

const (
	broadcastFlag = 0x8000 // of flags: replies are to be broadcast

	headerBytes = atCookie
	minReply    = 300 // bytes that old clients require (RFC 1542, 2.1)
)

// fixedOptions returns the options that have the same value for every client.
func fixedOptions(cfg Config) map[byte][]byte {
	mask := [4]byte{}
	binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-cfg.Subnet.Bits()))
	opts := map[byte][]byte{
		codeMask:                             mask[:],
		codeRouter:                           addresses(cfg.Routers),
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
	if cfg.IPv6Only != 0 {
		opts[codeIPv6Only] = seconds(cfg.IPv6Only)
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
	kind      dhcpv4.MessageType
	addr      netip.Addr    // the client's (yiaddr); the zero Addr: none
	lease     time.Duration // 0: not said
	earlierBy time.Duration // how much earlier T1 and T2 are than 1/2 and 7/8 of it
	reason    string        // of a NAK
	boot      *Boot         // what the client loads; nil: nothing
}

// options returns the options of a reply: first the required ones, then those that the client requested in its order
// (RFC 2132, 9.8), but the mask before the router, then those that are always sent, and last what is copied from the
// request. What does not fit is left out: what was requested first, the last first.
func (r reply) options(rq *request, fixed map[byte][]byte) []Option {
	values, always := r.values(rq, fixed)
	wanted := rq.optionCodes
	if wanted == nil {
		wanted = slices.Sorted(maps.Keys(values))
	}
	list := []Option{{codeKind, []byte{byte(r.kind)}}, {codeServer, fixed[codeServer]}}
	space := rq.replyBytes - headerBytes - 5 // cookie and end
	for _, o := range list {
		space -= optionBytes(o.Data)
	}
	fits := func(data []byte) bool {
		ok := data != nil && optionBytes(data) <= space
		if ok {
			space -= optionBytes(data)
		}
		return ok
	}
	reserved := map[byte]bool{}
	for _, code := range always {
		reserved[code] = fits(values[code])
	}
	var put func(code byte)
	put = func(code byte) {
		if code == codeRouter { // the mask comes before it (RFC 2132, 3.3)
			put(codeMask)
		}
		if reserved[code] || !slices.Contains(always, code) && fits(values[code]) {
			list = append(list, Option{code, values[code]})
		}
		delete(values, code)
		delete(reserved, code)
	}
	for _, code := range wanted {
		if code != codeClientID && code != codeAgent {
			put(code)
		}
	}
	unasked := []byte{codeMessage, codeLease, codeMask, codePortal, codeRenewal, codeRebinding}
	copied := []byte{codeClientID, codeAgent}
	boot := slices.DeleteFunc(slices.Clone(always), func(code byte) bool { return slices.Contains(copied, code) })
	for _, code := range slices.Concat(unasked, boot, copied) {
		put(code)
	}
	return list
}

// values returns what a reply can contain by code, and the codes that it contains unasked, the most
// important first: relay information (RFC 3046, 2.2) is what a switch finds the client by.
func (r reply) values(rq *request, fixed map[byte][]byte) (values map[byte][]byte, always []byte) {
	if r.kind == dhcpv4.MessageTypeNak {
		values, always = map[byte][]byte{codeMessage: []byte(r.reason)}, []byte{codeAgent, codeMessage, codeClientID}
	} else {
		values, always = maps.Clone(fixed),
			[]byte{codeAgent, codeLease, codeMask, codeRenewal, codeRebinding, codeClientID, codePortal}
		delete(values, codeServer)
		if !rq.wantsIPv6Only() { // who asks for nothing gets all else
			delete(values, codeIPv6Only)
		}
		if r.boot != nil {
			always = append(always, r.boot.putOptions(values, rq)...)
		}
	}
	if r.lease > 0 {
		values[codeLease] = seconds(r.lease)
		values[codeRenewal] = seconds(r.lease/2 - r.earlierBy)
		values[codeRebinding] = seconds(r.lease*7/8 - r.earlierBy)
	}
	if rq.id != "" { // RFC 6842
		values[codeClientID] = []byte(rq.id)
	}
	if len(rq.agent) > 0 {
		values[codeAgent] = rq.agent
	}
	return values, always
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

// message encodes a reply as its DHCP message (RFC 2131, 2 and table 3).
func (r reply) message(rq *request, fixed map[byte][]byte) []byte {
	b := make([]byte, headerBytes, minReply)
	b[0], b[1], b[2] = byte(dhcpv4.OpcodeBootReply), rq.hardware.kind, rq.hardware.length
	copy(b[atXID:], rq.xid[:])
	flags := rq.flags
	if r.kind == dhcpv4.MessageTypeNak && rq.relay.IsValid() { // RFC 2131, 4.3.2: its address may be another's
		flags |= broadcastFlag
	}
	binary.BigEndian.PutUint16(b[atFlags:], flags)
	if r.kind == dhcpv4.MessageTypeAck {
		copy(b[atCiaddr:], rq.ciaddr.AsSlice())
	}
	copy(b[atYiaddr:], r.addr.AsSlice())
	copy(b[atGiaddr:], rq.relay.AsSlice())
	copy(b[atHardware:], rq.hardware.addr[:])
	if r.boot != nil {
		r.boot.putFields(b)
	}
	b = append(b, cookie...)
	for _, o := range r.options(rq, fixed) {
		b = append(append(b, o.Code, byte(len(o.Data))), o.Data...)
	}
	b = append(b, dhcpv4.OptionEnd.Code())
	return append(b, make([]byte, max(0, minReply-len(b)))...)
}

// frame addresses a reply as in RFC 2131, 4.1: to a client without an address by its MAC, without ARP. A client that
// sends from the address that it names may have another port. A relay gets the reply by the way that the request came.
func (r reply) frame(rq *request, cfg Config, fixed map[byte][]byte, from MAC) []byte {
	addr, port, mac := limitedBroadcast, uint16(clientPort), broadcastMAC
	r.boot = bootFor(cfg.Boot, rq)
	if r.kind == dhcpv4.MessageTypeNak {
		r.boot = nil
	}
	switch {
	case rq.relay.IsValid():
		addr, port, mac = rq.relay, serverPort, rq.sender
	case r.kind == dhcpv4.MessageTypeNak: // the client's address may be another's
	case !rq.ciaddr.IsUnspecified():
		addr, mac = rq.ciaddr, rq.sender
		if rq.source.Addr() == addr && rq.source.Port() != 0 {
			port = rq.source.Port()
		}
	case rq.behind: // it may not know yet which client has the address
	case rq.flags == 0 && r.addr.IsValid():
		addr, mac = r.addr, rq.sender
	}
	return datagram{
		srcMAC: from, dstMAC: mac,
		src: netip.AddrPortFrom(cfg.Server, serverPort), dst: netip.AddrPortFrom(addr, port),
		payload: r.message(rq, fixed),
	}.frame()
}

package bindings

import (
	"encoding/binary"
	"net/netip"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// The kernel's stack has no link to the client of a PPPoE session. So the Server answers what such a client asks the
// gateway's link-local address.

// The types of echo messages (RFC 4443, section 4).
const (
	echoRequest = 128
	echoReply   = 129
)

// answerSession answers a solicitation for the gateway's link-local address. PPP needs none, but some hosts verify
// their router so.
func (s *Server) answerSession(m Message) {
	if m.From.Session == 0 || m.Target != s.source || !s.isKnown(m.From) {
		return
	}
	dest := m.Source
	if dest.IsUnspecified() {
		dest = allNodes
	}
	s.stats.proxied.Add(1)
	s.sendFrame(sender{s.link.MAC(), s.source}.proxied(m.From, dest, m.Target))
}

// echo answers an echo request in a PPPoE session, and reports whether a frame is one.
func (s *Server) echo(frame []byte) bool {
	from, body, source, ok := echoIn(frame, s.source)
	if !ok {
		return false
	}
	known, now := s.isKnown(from), budget.Now()
	if !known || from.MAC == s.link.MAC() || !s.senders.Spend(from.MAC, true, now) || !s.all.Spend(everybody, now) {
		s.stats.throttled.Add(1)
		return true
	}
	body[0], body[2], body[3] = echoReply, 0, 0
	own, to := s.source.As16(), source.As16()
	sum := checksum(uint32(len(body))+icmpv6, own[:], to[:], body)
	binary.BigEndian.PutUint16(body[2:], sum)
	s.sendFrame(framelink.Frame(from, s.link.MAC(), sender{addr: s.source}.packet(source, body)), nil)
	return true
}

// echoIn returns a copy of an echo request in a PPPoE session to an address; false: a frame has none.
func echoIn(frame []byte, to netip.Addr) (from Anchor, body []byte, source netip.Addr, ok bool) {
	from, ip, is6 := framelink.Split(frame)
	if !is6 || from.Session == 0 || from.MAC[0]&1 != 0 || len(ip) < ipv6Len+8 || ip[0]>>4 != 6 || ip[6] != icmpv6 {
		return from, nil, source, false
	}
	size := int(binary.BigEndian.Uint16(ip[4:]))
	if size < 8 || size > len(ip)-ipv6Len || ip[ipv6Len] != echoRequest || ip[ipv6Len+1] != 0 ||
		netip.AddrFrom16([16]byte(ip[24:40])) != to {
		return from, nil, source, false
	}
	body, source = ip[ipv6Len:ipv6Len+size], netip.AddrFrom16([16]byte(ip[8:24]))
	if !isUnicast(source) || checksum(uint32(size)+icmpv6, ip[8:40], body) != 0 {
		return from, nil, source, false
	}
	return from, append([]byte(nil), body...), source, true
}

// isKnown reports whether an anchor is a client.
func (s *Server) isKnown(a Anchor) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.known(a)
}

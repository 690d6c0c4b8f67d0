package dhcp6

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/framelink"
)

// admits reports whether another message of a client is read. Clients with a lease have a budget apart from that of new
// ones.
func (s *Server) admits(c Client) bool {
	s.mu.Lock()
	known := s.table.owns(c)
	s.mu.Unlock()
	return s.senders.Spend(c.MAC, known, budget.Now())
}

// handle answers one frame. Only the receiving goroutine calls it. A device that sends more than it may costs little
// more than reading its frames, so that those of others do not wait in a full buffer.
func (s *Server) handle(frame []byte) {
	if len(frame) < ethernetLen {
		s.stats.malformed.Add(1)
		return
	}
	from, _, _ := framelink.Split(frame)
	mac := from.MAC
	if !s.admits(from) {
		s.note(mac, errFlood)
		return
	}
	rq, err := s.read(frame)
	if err == nil {
		err = s.serve(rq, time.Now())
	}
	if err != nil {
		s.refuse(mac, err)
	}
}

// serve answers a message: at once, or when the changes that it leads to are written.
func (s *Server) serve(rq *request, now time.Time) error {
	if rq.unread > 0 {
		s.stats.unread.Add(1)
		s.note(rq.mac, errUnread)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	result, err := s.answer(rq, now)
	if err != nil {
		return err
	}
	var frame []byte
	if result.payload != nil {
		frame = s.frame(rq, result.payload)
	}
	switch {
	case len(result.touched) > 0:
		s.push(rq.mac, result, frame)
	case frame != nil:
		s.send(frame)
	}
	return nil
}

// frame makes the frame of a reply, to the address and the MAC that the request came from; nil: the interface has no
// address to send from.
func (s *Server) frame(rq *request, payload []byte) []byte {
	if !s.source.IsValid() {
		s.source = s.findSource()
	}
	if s.source.IsValid() {
		return datagram{
			srcMAC: s.link.MAC(), dstMAC: rq.mac, session: rq.session,
			src: netip.AddrPortFrom(s.source, serverPort), dst: netip.AddrPortFrom(rq.source, clientPort), payload: payload,
		}.frame()
	}
	s.stats.noSource.Add(1)
	s.noSource.Do(func() { s.log.Warn("DHCPv6 clients get no answers: the interface has no link-local address") })
	return nil
}

// read returns the message in a frame.
func (s *Server) read(frame []byte) (*request, error) {
	from, err := parseFrame(frame)
	if err == nil && from.srcMAC[0]&1 != 0 {
		err = errGroup
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	rq, err := parseMessage(from.payload)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	rq.mac, rq.session, rq.source = from.srcMAC, from.session, from.src.Addr()
	switch rq.kind {
	case dhcpv6.MessageTypeAdvertise, dhcpv6.MessageTypeReply, dhcpv6.MessageTypeReconfigure,
		dhcpv6.MessageTypeRelayReply, dhcpv6.MessageTypeAddrRegReply:
		s.reportRogue(rq)
		return nil, errRogue
	case dhcpv6.MessageTypeRelayForward:
		return nil, errRelayed
	}
	switch source := rq.source; {
	case from.dst.Port() != serverPort || from.dst.Addr() != allServers && from.dst.Addr() != s.source:
		return nil, fmt.Errorf("%w here, but at %s", errMalformed, from.dst)
	case rq.session != 0 && (s.cfg.InSession == nil || !s.cfg.InSession(rq.client())):
		return nil, errEnded
	case rq.kind == dhcpv6.MessageTypeAddrRegInform && rq.session != 0:
		return nil, errSession
	case rq.kind == dhcpv6.MessageTypeAddrRegInform:
		if addr := rq.registered(); addr != source || !addr.IsGlobalUnicast() {
			return nil, errSource
		}
	case !source.IsLinkLocalUnicast():
		return nil, errSource
	}
	return rq, nil
}

// reportRogue reports a device that sends what only servers send.
func (s *Server) reportRogue(rq *request) {
	if s.rogues.Get(rq.mac) == nil {
		s.rogues.Add(rq.mac, maxRogues)
		s.events.Rogue(rq.mac, rq.source)
	}
}

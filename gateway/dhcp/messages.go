package dhcp

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/gateweigh/gateweigh/gateway/budget"
)

// repeatWindow is how soon a REQUEST after an ACK counts as a repetition, which is answered from memory, so that
// frequent requests cost no disk writes.
const repeatWindow = 5 * time.Second

// All methods here are called with s.mu held and return the frame to send.

// discover answers a DISCOVER with an OFFER (RFC 2131, 4.3.1). The server does not probe addresses: clients do, and
// DECLINE.
func (s *Server) discover(rq *request, now time.Time) []byte {
	if s.cfg.IPv6Only != 0 && rq.wantsIPv6Only() { // RFC 8925, 3.3
		s.stats.offers.Add(1)
		return s.compose(reply{kind: dhcpv4.MessageTypeOffer, lease: s.cfg.Lease}, rq)
	}
	if !s.keepLease(rq, rq.requested) {
		return nil
	}
	b, err := rq.segment.table.offer(rq.client, rq.hostname, rq.requested, now)
	if err != nil {
		s.refuse(rq, err)
		return nil
	}
	s.stats.offers.Add(1)
	term := rq.segment.table.term(rq.client, b.addr)
	return s.compose(reply{kind: dhcpv4.MessageTypeOffer, addr: b.addr, lease: term}, rq)
}

// refuse counts the reason why a client gets no address.
func (s *Server) refuse(rq *request, err error) {
	if errors.Is(err, errTooMany) {
		s.stats.tooMany.Add(1)
		s.logRefusal(rq.client.mac, err)
		return
	}
	s.stats.exhausted.Add(1)
	s.full.Do(func() {
		s.log.Warn("no address is free: enlarge the pool or shorten the lease time",
			"network", rq.segment.cfg.Subnet, "leased", rq.segment.table.leases(),
			"declined", rq.segment.table.queues[declined].count)
	})
}

// request answers a REQUEST in any client state (RFC 2131, 4.3.2, table 4): SELECTING names a server, INIT-REBOOT an
// address that the client wants, RENEWING and REBINDING the address that it has.
func (s *Server) request(rq *request, now time.Time) []byte {
	addr := rq.requested
	if addr.IsValid() && rq.server.IsValid() && rq.server != s.cfg.Server { // it accepted another server's offer
		rq.segment.table.withdraw(rq.client)
		return nil
	}
	if !addr.IsValid() { // then it names a server by mistake only
		addr = rq.ciaddr
	}
	if !s.keepLease(rq, addr) {
		return nil
	}
	if left := s.repeated(rq, addr, now); left > 0 {
		s.stats.acks.Add(1)
		return s.compose(reply{kind: dhcpv4.MessageTypeAck, addr: addr, lease: left}, rq)
	}
	// Checked before the table changes, so that nothing must be undone.
	if len(s.pending) >= maxPending {
		s.stats.overloaded.Add(1)
		return nil
	}
	b, err := rq.segment.table.confirm(rq.client, rq.hostname, addr, now)
	switch {
	case errors.Is(err, errNotYours):
		s.stats.naks.Add(1)
		if s.naks.Spend(rq.client.mac, false, budget.Now()) {
			mac := net.HardwareAddr(rq.client.mac[:])
			s.log.Info("a DHCP request gets a NAK", "mac", mac.String(), "asked_for", addr, "reason", err)
		}
		return s.compose(reply{kind: dhcpv4.MessageTypeNak, reason: err.Error()}, rq)
	case err != nil:
		s.refuse(rq, err)
		return nil
	}
	b.at = rq.attachment(b.at)
	ack := s.compose(reply{kind: dhcpv4.MessageTypeAck, addr: addr, lease: b.term(s.cfg)}, rq)
	s.push(change{record: b.record(), event: granted, ack: ack})
	return nil
}

// repeated returns the rest of a lease that was just ACKed; 0 if it was not.
func (s *Server) repeated(rq *request, addr netip.Addr, now time.Time) time.Duration {
	b := rq.segment.table.leaseOf(rq.client, addr)
	if b == nil || !b.acked.Equal(b.end) || b.at != rq.attachment(b.at) || !rq.segment.table.may(b.client, addr) {
		return 0
	}
	if left, term := b.acked.Sub(now), b.term(s.cfg); left >= time.Second && term-left < min(repeatWindow, term/8) {
		return left
	}
	return 0
}

// decline sets an address aside that its client found in use (RFC 2131, 4.3.3).
func (s *Server) decline(rq *request, now time.Time) {
	if rq.server.IsValid() && rq.server != s.cfg.Server {
		return
	}
	if b := rq.segment.table.leaseOf(rq.client, rq.requested); b != nil {
		s.releaseIfGone(b, pendingRelease{declines: true}, func(now time.Time) { s.setAside(rq, now) })
		return
	}
	s.setAside(rq, now)
}

func (s *Server) setAside(rq *request, now time.Time) {
	b, wasLeased, err := rq.segment.table.decline(rq.client, rq.requested, now)
	if err != nil {
		return
	}
	s.inUse.Do(func() {
		s.log.Warn("an address is in use by somebody who did not lease it", "addr", b.addr, "found_by",
			net.HardwareAddr(rq.client.mac[:]).String())
	})
	c := change{record: b.record()}
	if wasLeased {
		c.event = ended
	}
	s.push(c)
}

// release ends a lease (RFC 2131, 4.3.4).
func (s *Server) release(rq *request) {
	if rq.server.IsValid() && rq.server != s.cfg.Server {
		return
	}
	b := rq.segment.table.leaseOf(rq.client, rq.ciaddr)
	if b == nil {
		return
	}
	s.releaseIfGone(b, pendingRelease{}, func(now time.Time) {
		if b, err := rq.segment.table.release(rq.client, rq.ciaddr, now); err == nil {
			s.push(change{record: b.record(), event: ended})
		}
	})
}

// inform answers a client that has an address of its own (RFC 2131, 4.3.5), without address and lease times.
func (s *Server) inform(rq *request) []byte {
	s.stats.acks.Add(1)
	return s.compose(reply{kind: dhcpv4.MessageTypeAck}, rq)
}

package dhcp6

import (
	"sync/atomic"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

// Stats are a server's counts since New, and the present use of its pools.
type Stats struct {
	Solicits, Requests, Confirms, Renews, Rebinds, Releases, Declines uint64 // received
	InformationRequests, Registrations                                uint64 // received
	Replies                                                           uint64 // sent, ADVERTISEs among them

	Malformed   uint64 // not DHCPv6, or not for a server
	Unread      uint64 // messages of which some options could not be read
	Spoofed     uint64 // refused: the source is not the client's own
	Relayed     uint64 // refused: came through a relay
	Rogue       uint64 // servers' messages from devices of the LAN
	OtherServer uint64 // no answer: for another server
	Foreign     uint64 // asked for what another MAC has
	Exhausted   uint64 // nothing was free
	TooMany     uint64 // the MAC has its leases
	Overloaded  uint64 // no answer: the disk is behind
	Throttled   uint64 // not read: too many of one MAC

	StillThere    uint64 // RELEASE or DECLINE without effect: the client answers for its address
	Expired       uint64 // leases that ran out
	StoreErrors   uint64 // writes to the store that failed
	EventErrors   uint64
	SendErrors    uint64
	NoSourceDrops uint64 // no answer: the interface has no link-local address

	Addresses, Prefixes, Registered, DeclinedAddresses int // at the moment
}

// counters are the counters of a server, which Stats copies.
type counters struct {
	received                                                     [dhcpv6.MessageTypeAddrRegInform + 1]atomic.Uint64
	replies, malformed, unread, spoofed, relayed, rogue, other   atomic.Uint64
	foreign, exhausted, tooMany, overloaded, stillThere, expired atomic.Uint64
	storeErrors, eventErrors, sendErrors, noSource               atomic.Uint64
}

// Stats returns the present figures.
func (s *Server) Stats() Stats {
	c := &s.stats
	got := func(kind dhcpv6.MessageType) uint64 { return c.received[kind].Load() }
	now := Stats{
		Solicits: got(dhcpv6.MessageTypeSolicit), Requests: got(dhcpv6.MessageTypeRequest),
		Confirms: got(dhcpv6.MessageTypeConfirm), Renews: got(dhcpv6.MessageTypeRenew),
		Rebinds: got(dhcpv6.MessageTypeRebind), Releases: got(dhcpv6.MessageTypeRelease),
		Declines:            got(dhcpv6.MessageTypeDecline),
		InformationRequests: got(dhcpv6.MessageTypeInformationRequest),
		Registrations:       got(dhcpv6.MessageTypeAddrRegInform),
		Replies:             c.replies.Load(), Malformed: c.malformed.Load(), Unread: c.unread.Load(),
		Spoofed: c.spoofed.Load(), Relayed: c.relayed.Load(), Rogue: c.rogue.Load(), OtherServer: c.other.Load(),
		Foreign: c.foreign.Load(), Exhausted: c.exhausted.Load(), TooMany: c.tooMany.Load(),
		Overloaded: c.overloaded.Load(), Throttled: s.senders.Refused(), StillThere: c.stillThere.Load(),
		Expired: c.expired.Load(), StoreErrors: c.storeErrors.Load(), EventErrors: c.eventErrors.Load(),
		SendErrors: c.sendErrors.Load(), NoSourceDrops: c.noSource.Load(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now.Addresses, now.Prefixes = s.table.total[Address], s.table.total[Delegated]
	now.Registered, now.DeclinedAddresses = s.table.total[Registered], s.table.declined
	return now
}

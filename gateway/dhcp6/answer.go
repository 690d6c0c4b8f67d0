package dhcp6

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
)

// Reasons for not answering a message.
var (
	errMalformed  = errors.New("it is no message to a server")
	errSource     = errors.New("its source is not a link-local address, or not the address that it registers")
	errRelayed    = errors.New("it came through a relay")
	errRogue      = errors.New("it is a server's message, and the device is no server here")
	errOther      = errors.New("it is for another server")
	errFlood      = errors.New("the device sends them without end")
	errOverloaded = errors.New("the disk is behind")
	errLong       = errors.New("it has more identity associations than an answer has room for")
	errUnread     = errors.New("some of its options cannot be read; the others are answered")
	errSession    = errors.New("a PPPoE session leases given addresses only, and registers none")
	errEnded      = errors.New("it is of a PPPoE session that is not there")
	errElsewhere  = errors.New("the address that it registers is not of this network, or is leased")
)

// forThisServer reports whether a message may be answered by this server (RFC 8415, 16): one of these types names this
// server, one of the others none, and all name their client but the last.
func (s *Server) forThisServer(rq *request) error {
	named := rq.serverID != nil
	switch rq.kind {
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		if !named {
			return fmt.Errorf("%w: it names no server", errMalformed)
		}
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind,
		dhcpv6.MessageTypeAddrRegInform:
		if named {
			return fmt.Errorf("%w: it names a server, which its type may not", errMalformed)
		}
	case dhcpv6.MessageTypeInformationRequest:
		if len(rq.ias) > 0 {
			return fmt.Errorf("%w: an INFORMATION-REQUEST has no identity associations", errMalformed)
		}
	default:
		return fmt.Errorf("%w: its type is %d", errMalformed, rq.kind)
	}
	switch {
	case named && !bytes.Equal(rq.serverID, s.cfg.DUID):
		return errOther
	case rq.duid == "" && rq.kind != dhcpv6.MessageTypeInformationRequest:
		return fmt.Errorf("%w: it names no client", errMalformed)
	}
	return nil
}

// outcome is what a message leads to.
type outcome struct {
	payload []byte // the reply; nil: none
	granted []*item
	ended   []Lease
	touched []identity // whose records change
}

// answer carries out a message. s.mu is held.
func (s *Server) answer(rq *request, now time.Time) (result outcome, err error) {
	if err := s.forThisServer(rq); err != nil {
		return outcome{}, err
	}
	if len(s.pending) >= maxPending && rq.kind != dhcpv6.MessageTypeInformationRequest {
		return outcome{}, errOverloaded
	}
	s.stats.received[rq.kind].Add(1)
	present := s.present()
	out := reply{kind: dhcpv6.MessageTypeReply}
	switch rq.kind {
	case dhcpv6.MessageTypeInformationRequest:
		out.refresh = true
	case dhcpv6.MessageTypeSolicit:
		s.solicit(rq, present, &out, &result, now)
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		s.lease(rq, present, &out, &result, now)
	case dhcpv6.MessageTypeConfirm:
		verdict := confirm(rq, present)
		if verdict == nil {
			return outcome{}, nil
		}
		out.options.Add(verdict)
	case dhcpv6.MessageTypeRelease:
		s.giveUp(rq, &out, &result, false)
	case dhcpv6.MessageTypeDecline:
		s.giveUp(rq, &out, &result, true)
	case dhcpv6.MessageTypeAddrRegInform:
		if err := s.register(rq, present, &result, now); err != nil {
			return outcome{}, err
		}
		result.payload = registration(rq)
		return result, nil
	}
	result.payload = out.message(rq, s.cfg)
	return result, nil
}

// present returns the present prefixes.
func (s *Server) present() Prefixes {
	use, bad := s.cfg.Prefixes().usable(s.cfg.Lengths.Longest)
	if bad {
		s.badPools.Do(func() {
			s.log.Warn(fmt.Sprintf("pools are left out: they must be IPv6, /%d or larger for addresses, /%d or larger "+
				"for prefixes, and %d of each at most", maxPoolBits, s.cfg.Lengths.Longest, maxPools))
		})
	}
	return use
}

// eachIA calls f with each identity association for which the answer has room, and adds what it returns.
func (s *Server) eachIA(rq *request, out *reply, f func(association, identity) dhcpv6.Option) {
	room := maxPayload - len(reply{kind: out.kind, rapid: rq.rapid}.message(rq, s.cfg))
	for _, ia := range rq.ias {
		if room < maxIA {
			s.note(rq.mac, errLong)
			return
		}
		answer := f
		if rq.session != 0 && ia.kind == Address && s.table.wish(rq.client(), ia.kind).isZero() {
			// router advertisements tell its prefix
			answer = func(ia association, _ identity) dhcpv6.Option {
				return ia.answer(nil, verdict(ia.kind, granted{err: errSession}))
			}
		}
		if option := answer(ia, identity{ia.kind, rq.mac, rq.session, ia.iaid, rq.duid}); option != nil {
			out.options.Add(option)
			room -= 4 + len(option.ToBytes())
		}
	}
}

// solicit answers a SOLICIT (RFC 8415, 18.3.1): with an ADVERTISE, or with a REPLY if the client accepts one at once
// and gets something.
func (s *Server) solicit(rq *request, present Prefixes, out *reply, result *outcome, now time.Time) {
	out.kind = dhcpv6.MessageTypeAdvertise
	if rq.rapid {
		s.eachIA(rq, out, func(ia association, id identity) dhcpv6.Option {
			return s.grant(rq, ia, id, present, result, now)
		})
		if len(result.granted) > 0 {
			out.kind, out.rapid = dhcpv6.MessageTypeReply, true
		}
		return
	}
	s.eachIA(rq, out, func(ia association, id identity) dhcpv6.Option {
		got := s.table.propose(id, present, ia.hints)
		s.countRefusal(rq.mac, got.err)
		return ia.answer(got.given, verdict(ia.kind, got))
	})
}

// lease answers a REQUEST, RENEW or REBIND (RFC 8415, 18.3.2, 18.3.4, 18.3.5).
func (s *Server) lease(rq *request, present Prefixes, out *reply, result *outcome, now time.Time) {
	s.eachIA(rq, out, func(ia association, id identity) dhcpv6.Option {
		named := ia.names()
		s.noteForeign(rq, named)
		bound := s.table.byClient[id] != nil
		switch {
		case rq.kind == dhcpv6.MessageTypeRequest && ia.kind == Address && !bound && slices.ContainsFunc(named,
			func(prefix netip.Prefix) bool { return !present.onLink(prefix.Addr()) }):
			return ia.answer(nil, status(iana.StatusNotOnLink, "the address is not of this network"))
		case rq.kind != dhcpv6.MessageTypeRequest && !bound && len(named) > 0:
			return ia.answer(nil, status(iana.StatusNoBinding, "there is no such lease"))
		}
		return s.grant(rq, ia, id, present, result, now)
	})
}

// grant leases what an identity association asks for, and answers it. What the client names and does not have is taken
// from it by lifetimes of 0.
func (s *Server) grant(
	rq *request, ia association, id identity, present Prefixes, result *outcome, now time.Time,
) dhcpv6.Option {
	got := s.table.grant(id, present, ia.hints, now)
	s.countRefusal(rq.mac, got.err)
	result.granted = append(result.granted, got.items...)
	result.ended = append(result.ended, got.ended...)
	if len(got.items)+len(got.ended) > 0 {
		result.touched = append(result.touched, id)
	}
	if b := s.table.byClient[id]; b != nil {
		b.via = rq.source
	}
	list := got.given
	if rq.kind != dhcpv6.MessageTypeSolicit {
		for _, prefix := range ia.names() {
			if !slices.ContainsFunc(list, func(one given) bool { return one.prefix == prefix }) {
				list = append(list, given{prefix: prefix})
			}
		}
	}
	return ia.answer(list, verdict(ia.kind, got))
}

// verdict is the status of an identity association that gets nothing; nil: it gets something.
func verdict(kind Kind, got granted) dhcpv6.Option {
	switch {
	case got.err == nil || slices.ContainsFunc(got.given, func(one given) bool { return one.valid > 0 }):
		return nil
	case kind == Delegated:
		return status(iana.StatusNoPrefixAvail, got.err.Error())
	}
	return status(iana.StatusNoAddrsAvail, got.err.Error())
}

// confirm answers a CONFIRM (RFC 8415, 18.3.3): whether all addresses are of this network; nil: there are none.
func confirm(rq *request, present Prefixes) dhcpv6.Option {
	some := false
	for _, ia := range rq.ias {
		for _, prefix := range ia.names() {
			if ia.kind != Address {
				continue
			}
			if some = true; !present.onLink(prefix.Addr()) {
				return status(iana.StatusNotOnLink, "an address is not of this network")
			}
		}
	}
	if !some {
		return nil
	}
	return status(iana.StatusSuccess, "")
}

// countRefusal counts and logs why a client gets nothing.
func (s *Server) countRefusal(mac MAC, err error) {
	switch {
	case err == nil:
		return
	case errors.Is(err, errTooMany):
		s.stats.tooMany.Add(1)
		s.note(mac, err)
		return
	}
	s.stats.exhausted.Add(1)
	s.full.Do(func() { s.log.Warn("a client gets no lease", "mac", hardware(mac), "reason", err) })
}

// noteForeign notes that a device asks for what another has. It gets its own, or nothing.
func (s *Server) noteForeign(rq *request, named []netip.Prefix) {
	for _, prefix := range named {
		if it := s.table.taken[prefix]; it != nil && it.owner != nil && it.owner.mac != rq.mac {
			s.stats.foreign.Add(1)
			s.note(rq.mac, fmt.Errorf("%w: %s of %s", errNotYours, prefix, hardware(it.owner.mac)))
			return
		}
	}
}

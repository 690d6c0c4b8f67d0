package dhcp6

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// register carries out an ADDR-REG-INFORM (RFC 9686, 4.2.1): a client tells an address that it made itself, from which
// it sends. An address of another MAC stays that MAC's, although the RFC would have the new one follow: here an address
// is bound to the MAC that came first.
func (s *Server) register(rq *request, present Prefixes, result *outcome, now time.Time) error {
	switch {
	case !s.cfg.Register:
		return fmt.Errorf("%w: registration is off", errMalformed)
	case rq.asksCodes:
		return fmt.Errorf("%w: a registration asks for no options", errMalformed)
	}
	addr := rq.registered()
	prefix := netip.PrefixFrom(addr, 128)
	id := identity{kind: Registered, mac: rq.mac, duid: rq.duid}
	it := s.table.taken[prefix]
	switch {
	case !present.onLink(addr) && !s.table.delegatedTo(rq.mac, addr):
		return fmt.Errorf("%w: %s", errElsewhere, addr)
	case it != nil && it.owner != nil && it.owner.mac != rq.mac:
		s.stats.foreign.Add(1)
		return fmt.Errorf("%w: %s of %s", errNotYours, addr, hardware(it.owner.mac))
	case it != nil && (it.owner == nil || it.owner.kind != Registered):
		return fmt.Errorf("%w: %s", errElsewhere, addr)
	}
	valid := time.Duration(binary.BigEndian.Uint32(rq.registers[20:])) * time.Second
	if it != nil && (valid == 0 || it.owner.identity != id) { // the client gives it up, or has another DUID now
		s.end(it, false, result, now)
		it = nil
	}
	if valid == 0 {
		return nil
	}
	if it == nil {
		if err := s.table.room(id, 0); err != nil {
			s.countRefusal(rq.mac, err)
			return err
		}
		it = s.table.add(id, prefix, now)
	}
	s.table.extend(it, now.Add(min(valid, maxRegistration)))
	result.granted = append(result.granted, it)
	result.touched = append(result.touched, id)
	return nil
}

// registered returns the address that a message registers; the zero Addr: none.
func (rq *request) registered() netip.Addr {
	if rq.registers == nil {
		return netip.Addr{}
	}
	return netip.AddrFrom16([16]byte(rq.registers))
}

// delegatedTo reports whether an address is in a prefix that a MAC has.
func (t *table) delegatedTo(mac MAC, addr netip.Addr) bool {
	for length := t.cfg.Lengths.Shortest; length <= t.cfg.Lengths.Longest; length++ {
		prefix := netip.PrefixFrom(addr, length).Masked()
		if it := t.taken[prefix]; it != nil && it.owner != nil && it.owner.kind == Delegated &&
			it.owner.client() == (Client{MAC: mac}) {
			return true
		}
	}
	return false
}

package session

import (
	"encoding/binary"
	"net/netip"
)

// Grant6 is what a server gives a client by IPv6 (RFC 3162, 4818, 6911). It is never changed in place. The table keeps
// what is needed after a restart: not the names of pools.
type Grant6 struct {
	Prefixes    []netip.Prefix // of the client's link, its own (Framed-IPv6-Prefix)
	Addrs       []netip.Addr   // Framed-IPv6-Address
	Delegated   []netip.Prefix // Delegated-IPv6-Prefix
	Routes      []netip.Prefix // networks behind the client (Framed-IPv6-Route)
	Told        []netip.Prefix // networks that the client reaches by the gateway (Route-IPv6-Information)
	DNS         []netip.Addr   // DNS-Server-IPv6-Address
	InterfaceID uint64         // Framed-Interface-Id, its first byte the highest; 0: none
	// Names of pools: of Prefixes (Framed-IPv6-Pool), Delegated (Delegated-IPv6-Prefix-Pool) and Addrs
	// (Stateful-IPv6-Address-Pool); empty: none.
	Pool, DelegatedPool, AddressPool string
	// Networks out of which the client gets a delegated prefix, and an address, in place of those of others: those of
	// DelegatedPool and AddressPool. Zero: none.
	DelegatedOf, AddressOf netip.Prefix
}

// Revoked has f called with each session that has ended and had a Grant6, for whatever reason. f must not call the
// table. It must be called before the table is used.
func (t *Table) Revoked(f func(Session)) { t.revoked = f }

// OnEnd has f called with each session that has ended. f must not call the table, and must return soon. OnEnd must be
// called before the table is used.
func (t *Table) OnEnd(f func(Session, Cause)) { t.ended = f }

// Ends calls visit with the ends of sessions that are not accounted yet, in their order.
func (t *Table) Ends(visit func(Event)) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	return t.journal.store.Events(0, func(number uint64, record []byte) (bool, error) {
		e, err := eventOf(number, record)
		if err == nil && e.Kind == Ended {
			visit(e)
		}
		return true, err
	})
}

// tellEnded calls the functions that were given to Follow, Revoked and OnEnd, if a session that has ended concerns
// them.
func (t *Table) tellEnded(before *entry, ended Session, cause Cause) {
	if before.state == Authenticated && t.ended != nil {
		t.ended(ended, cause)
	}
	if before.extraOrZero().pppoe.Session != 0 && t.hungUp != nil {
		t.hungUp(before.key, before.extraOrZero().pppoe)
	}
	if ended.IPv6 != nil && t.revoked != nil {
		t.revoked(ended)
	}
}

// The bytes before a prefix of a Grant6 in a record. New ones are only added at the end.
const (
	grantedLink = iota + 1
	grantedAddr
	grantedDelegated
	grantedRoute
	grantedTold
	grantedDNS
	grantedInterfaceID // the last 8 bytes of the address
	grantedDelegatedOf
	grantedAddressOf
)

// each calls f with all prefixes that are kept, addresses as those of their full length.
func (g *Grant6) each(f func(kind byte, p netip.Prefix)) {
	if g == nil {
		return
	}
	prefixes := func(kind byte, all []netip.Prefix) {
		for _, p := range all {
			f(kind, p)
		}
	}
	addrs := func(kind byte, all []netip.Addr) {
		for _, a := range all {
			f(kind, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	prefixes(grantedLink, g.Prefixes)
	addrs(grantedAddr, g.Addrs)
	prefixes(grantedDelegated, g.Delegated)
	prefixes(grantedRoute, g.Routes)
	prefixes(grantedTold, g.Told)
	addrs(grantedDNS, g.DNS)
	if g.InterfaceID != 0 {
		var a [16]byte
		binary.BigEndian.PutUint64(a[8:], g.InterfaceID)
		addrs(grantedInterfaceID, []netip.Addr{netip.AddrFrom16(a)})
	}
	if g.DelegatedOf.IsValid() {
		f(grantedDelegatedOf, g.DelegatedOf)
	}
	if g.AddressOf.IsValid() {
		f(grantedAddressOf, g.AddressOf)
	}
}

// appendGrant6 appends the fields of a Grant6, and returns how many they are.
func appendGrant6(b []byte, g *Grant6) (out []byte, n int) {
	g.each(func(kind byte, p netip.Prefix) {
		addr := p.Addr().As16()
		b = append(appendNumbers(append(b, tagGrant6), 2+uint64(len(addr))), kind, byte(p.Bits()))
		b, n = append(b, addr[:]...), n+1
	})
	return b, n
}

// granted6 decodes one field of a Grant6. Kinds of later versions are left out.
func (d *decoder) granted6(s *Session, text []byte) {
	if len(text) != 2+16 {
		d.damaged = true
		return
	}
	p := netip.PrefixFrom(netip.AddrFrom16([16]byte(text[2:])), int(text[1]))
	if d.damaged = d.damaged || !p.IsValid(); d.damaged {
		return
	}
	if s.IPv6 == nil {
		s.IPv6 = &Grant6{}
	}
	switch g := s.IPv6; text[0] {
	case grantedLink:
		g.Prefixes = append(g.Prefixes, p)
	case grantedAddr:
		g.Addrs = append(g.Addrs, p.Addr())
	case grantedDelegated:
		g.Delegated = append(g.Delegated, p)
	case grantedRoute:
		g.Routes = append(g.Routes, p)
	case grantedTold:
		g.Told = append(g.Told, p)
	case grantedDNS:
		g.DNS = append(g.DNS, p.Addr())
	case grantedInterfaceID:
		g.InterfaceID = binary.BigEndian.Uint64(text[2+8:])
	case grantedDelegatedOf:
		g.DelegatedOf = p
	case grantedAddressOf:
		g.AddressOf = p
	}
}

package persona

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/mdlayher/ndp"

	"github.com/gateweigh/gateweigh/ppp"
	"github.com/gateweigh/gateweigh/ppp/pppoe"
)

// A client of a PPPoE session makes its IPv6 address as RFC 5072 has it:
//
//	IPV6CP ──► interface identifiers, which make the two link-local addresses
//	router solicitation ──► router advertisement: a /64 of the client's own
//	address: that /64 and the identifier, without duplicate address detection (section 5): nobody else is on the link

// agreeTime is how long a client waits for IPV6CP once IPCP is open. The negotiation repeats its messages every 3 s.
const agreeTime = 12 * time.Second

// errNo6 is why a client has no IPv6.
var errNo6 = errors.New("the concentrator agrees on no IPv6 (IPV6CP, RFC 5072)")

// autoconfigure waits for IPV6CP and solicits advertisements in the session, repeatedly, until the router tells the
// client's /64.
func (s *Session) autoconfigure(ctx context.Context, tries *Tries) error {
	if err := s.await(ctx, s.opened6, time.After(agreeTime)); err != nil {
		if errors.Is(err, errLate) {
			err = fmt.Errorf("%w within %s", errNo6, agreeTime)
		}
		return err
	}
	for n := 1; ; n++ {
		if err := s.solicit(); err != nil {
			return err
		}
		err := s.await(ctx, s.advertised, time.After(solicitInterval))
		if !errors.Is(err, errLate) {
			return err
		}
		err = fmt.Errorf("no advertisement of a /64 of %s within %s", s.sessions.net6, solicitInterval)
		if n == maxSends {
			return fmt.Errorf("soliciting routers: sent %d times: %w", n, err)
		}
		tries.Add(Tries{1, err})
	}
}

// solicit sends a router solicitation from the client's link-local address.
func (s *Session) solicit() error {
	id := s.Terms().LocalID
	local := addressIn(linkLocalNet, binary.BigEndian.Uint64(id[:]))
	frame := binary.BigEndian.AppendUint16(nil, uint16(ppp.IPv6))
	frame, err := appendNeighbour(frame, local, netip.IPv6LinkLocalAllRouters(), &ndp.RouterSolicitation{})
	if err != nil {
		return err
	}
	return s.sessions.send(
		&pppoe.Frame{To: s.concentrator.Concentrator, From: s.mac, Session: s.concentrator.ID, PPP: frame})
}

// hear6 takes the client's /64 from a PPP frame, where that is a router advertisement. The caller holds mu.
func (s *Session) hear6(frame []byte) {
	proto, packet, err := ppp.SplitFrame(frame)
	if err != nil || proto != ppp.IPv6 || isClosed(s.advertised) {
		return
	}
	router, prefixes := parseAdvertised(packet)
	own := slices.IndexFunc(prefixes, func(p netip.Prefix) bool {
		return p.Bits() == 64 && s.sessions.net6.IsValid() && s.sessions.net6.Contains(p.Addr())
	})
	if own < 0 {
		return
	}
	s.prefix, s.router6 = prefixes[own], router
	close(s.advertised)
}

// Address6 returns the client's IPv6 address and its router's link-local one; invalid: the session has no IPv6.
func (s *Session) Address6() (ip, router netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.prefix.IsValid() {
		return ip, router
	}
	return addressIn(s.prefix, binary.BigEndian.Uint64(s.terms.LocalID[:])), s.router6
}

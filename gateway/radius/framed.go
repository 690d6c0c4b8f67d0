package radius

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2869"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// maxRoutes bounds the networks of a client, so that accounting has room for them.
const maxRoutes = 16

// framed reads the addresses that a server gives a PPPoE client: an address, or the name of a pool, and networks.
func framed(login *session.Login, p *radius.Packet) (err error) {
	login.Framed = framedAddress(p)
	login.Pool = string(p.Get(rfc2869.FramedPool_Type)) // RFC 2869, 5.18
	login.Routes, err = framedRoutes(p)
	return err
}

// framedAddress is the address that the server gives the client; invalid: the gateway chooses (RFC 2865, 5.8).
func framedAddress(p *radius.Packet) netip.Addr {
	v, found := numericAttr(p, rfc2865.FramedIPAddress_Type)
	if !found || v >= 0xfffffffe {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, v)))
}

// framedRoutes are the networks behind the client (RFC 2865, 5.22). A route that cannot be read is an
// error: its subscriber would have less than it was given.
func framedRoutes(p *radius.Packet) (all []netip.Prefix, err error) {
	for _, a := range p.Attributes {
		if a.Type != rfc2865.FramedRoute_Type {
			continue
		}
		network, err := parseRoute(string(a.Attribute))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, network) {
			all = append(all, network)
		}
	}
	if len(all) > maxRoutes {
		return nil, fmt.Errorf("the server sent %d of Framed-Route: at most %d", len(all), maxRoutes)
	}
	return all, nil
}

// parseRoute reads "192.0.2.0/28 0.0.0.0 1": a network, a next hop and metrics. All of a PPPoE session's networks
// have the PPPoE session as next hop and no metric, so the rest is not used. A network without a length has that
// of its class.
func parseRoute(text string) (netip.Prefix, error) {
	fields := strings.Fields(text)
	bad := func(reason string) (netip.Prefix, error) {
		return netip.Prefix{}, fmt.Errorf("the server sent the Framed-Route %.60q, which %s", text, reason)
	}
	if len(fields) == 0 {
		return bad("is empty")
	}
	word := fields[0]
	if addr, err := netip.ParseAddr(word); err == nil && addr.Is4() {
		word += fmt.Sprintf("/%d", class(addr))
	}
	network, err := netip.ParsePrefix(word)
	switch {
	case err != nil || !network.Addr().Is4():
		return bad("does not begin with an IPv4 network")
	case network != network.Masked():
		return bad("has bits beyond its length")
	case network.Bits() < 8:
		return bad("is shorter than /8")
	}
	return network, nil
}

// class is the length of an address's class (RFC 791, 2.3).
func class(a netip.Addr) int {
	switch first := a.As4()[0]; {
	case first < 128:
		return 8
	case first < 192:
		return 16
	}
	return 24
}

// routes adds the networks of a client.
func (b builder) routes(networks []netip.Prefix) {
	for _, n := range networks {
		b.text(rfc2865.FramedRoute_Type, n.String()+" 0.0.0.0 1")
	}
}

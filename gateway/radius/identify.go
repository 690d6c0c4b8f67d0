// Which sessions a Disconnect- or CoA-Request names, and whether its changes are understood.

package radius

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2866"
	"layeh.com/radius/rfc2869"
	"layeh.com/radius/rfc3162"
	"layeh.com/radius/rfc3576"
	"layeh.com/radius/rfc4818"
	"layeh.com/radius/rfc6911"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// addressed reports whether a request is for this gateway: all that it says of the gateway is right. Where no
// NAS-IP-Address is configured, it must be an address of this machine.
func (d *Dynamic) addressed(p *radius.Packet) bool {
	for _, a := range p.Attributes {
		switch a.Type {
		case rfc2865.NASIPAddress_Type:
			addr, ok := netip.AddrFromSlice(a.Attribute)
			if !ok || d.cfg.NASAddress.IsValid() && addr != d.cfg.NASAddress.Unmap() ||
				!d.cfg.NASAddress.IsValid() && !isOwnAddress(addr) {
				return false
			}
		case rfc2865.NASIdentifier_Type:
			if string(a.Attribute) != d.cfg.NASIdentifier {
				return false
			}
		}
	}
	return true
}

// isOwnAddress reports whether an address is this machine's.
func isOwnAddress(addr netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == addr
	})
}

// identified returns the sessions that a request names: all of its attributes must be a session's (RFC 5176, 3).
func (d *Dynamic) identified(p *radius.Packet) (found []session.Session, cause rfc3576.ErrorCause) {
	named := false
	for _, a := range p.Attributes {
		switch a.Type {
		case rfc2865.UserName_Type, rfc2866.AcctSessionID_Type, rfc2865.FramedIPAddress_Type, rfc2865.CallingStationID_Type,
			rfc2865.NASPort_Type, rfc6911.FramedIPv6Address_Type, rfc3162.FramedIPv6Prefix_Type,
			rfc4818.DelegatedIPv6Prefix_Type, rfc3162.FramedInterfaceID_Type:
			named = true
		}
	}
	if !named {
		return nil, rfc3576.ErrorCause_Value_MissingAttribute
	}
	visit := func(s session.Session) bool {
		if s.State == session.Authenticated && d.matches(s, p) {
			found = append(found, s)
		}
		return true
	}
	addr := framedAddress(p)
	if !addr.IsValid() {
		addr = framedAddress6(p)
	}
	if addr.IsValid() {
		if s, present := d.sessions.Get(addr); present {
			visit(s)
		}
	} else {
		d.sessions.Each(visit)
	}
	if len(found) == 0 {
		return nil, rfc3576.ErrorCause_Value_SessionContextNotFound
	}
	return found, 0
}

// matches reports whether a request's attributes are a session's.
func (d *Dynamic) matches(s session.Session, p *radius.Packet) bool {
	prefixes := d.cfg.prefixesOf(s)
	for _, a := range p.Attributes {
		same := true
		switch a.Type {
		case rfc2865.UserName_Type:
			same = session.SameUser(string(a.Attribute), s.User)
		case rfc2866.AcctSessionID_Type:
			same = string(a.Attribute) == s.ID
		case rfc2865.FramedIPAddress_Type:
			addr, ok := netip.AddrFromSlice(a.Attribute)
			same = ok && addr == s.Addr
		case rfc6911.FramedIPv6Address_Type:
			same = hasAddress6(s, a.Attribute)
		case rfc3162.FramedIPv6Prefix_Type:
			same = hasPrefix6(prefixes.Own, a.Attribute)
		case rfc4818.DelegatedIPv6Prefix_Type:
			same = hasPrefix6(prefixes.Delegated, a.Attribute)
		case rfc3162.FramedInterfaceID_Type:
			same = hasInterfaceID(s, a.Attribute)
		case rfc2865.CallingStationID_Type:
			same = strings.EqualFold(string(a.Attribute), stationID(s.Key))
		case rfc2865.NASPort_Type:
			port := d.cfg.port(s.Attachment.VLANs, s.PPPoE.Session)
			same = len(a.Attribute) == 4 && port != 0 && binary.BigEndian.Uint32(a.Attribute) == port
		case rfc2865.NASPortType_Type:
			same = len(a.Attribute) == 4 &&
				binary.BigEndian.Uint32(a.Attribute) == uint32(d.cfg.portType(s.PPPoE.Session != 0))
		case rfc2869.NASPortID_Type:
			same = string(a.Attribute) == d.cfg.portID(s.Attachment.VLANs)
		case rfc2865.CalledStationID_Type:
			same = string(a.Attribute) == d.cfg.CalledStationID
		case rfc2865.Class_Type:
			same = slices.ContainsFunc(s.Class, func(c []byte) bool { return bytes.Equal(c, a.Attribute) })
		}
		if !same {
			return false
		}
	}
	return true
}

// parseChange returns the limits that a request changes. A request with an attribute that is not understood is refused
// (RFC 5176, 3).
func (d *Dynamic) parseChange(p *radius.Packet) (l packetLimits, cause rfc3576.ErrorCause) {
	coa := p.Code == radius.CodeCoARequest
	for _, a := range p.Attributes {
		if identifying[a.Type] {
			continue
		}
		if a.Type == rfc2865.ServiceType_Type { // "Authorize Only" asks for an Access-Request
			return l, rfc3576.ErrorCause_Value_UnsupportedService
		}
		if !coa || !changes(a) || a.Type == rfc2865.FilterID_Type && len(d.cfg.Profiles) == 0 {
			return l, rfc3576.ErrorCause_Value_UnsupportedAttribute
		}
	}
	uncounted := !d.cfg.Connections && vendorBytes(p, vendorHuawei, huaweiConnections) != nil
	l, err := d.cfg.limits(p)
	if err != nil || uncounted {
		return l, rfc3576.ErrorCause_Value_UnsupportedAttribute
	}
	if coa && l.empty() {
		return l, rfc3576.ErrorCause_Value_MissingAttribute
	}
	return l, 0
}

// changes reports whether a CoA-Request may have an attribute to change something, and whether it has its form.
func changes(a *radius.AVP) bool {
	if a.Type != rfc2865.VendorSpecific_Type {
		return understood(0, a.Type, a.Attribute)
	}
	if len(a.Attribute) < 4+2 {
		return false
	}
	vendor := binary.BigEndian.Uint32(a.Attribute)
	for rest := a.Attribute[4:]; len(rest) > 0; {
		if len(rest) < 2 || int(rest[1]) < 2 || len(rest) < int(rest[1]) ||
			!understood(vendor, radius.Type(rest[0]), rest[2:rest[1]]) {
			return false
		}
		rest = rest[rest[1]:]
	}
	return true
}

// understood does so for one attribute, by the table of attributes: numbers have four bytes.
func understood(vendor uint32, kind radius.Type, value []byte) bool {
	return slices.ContainsFunc(attributes, func(a avp) bool {
		return a.in&changing != 0 && a.vendor == vendor && a.kind == kind && (isText(vendor, kind) || len(value) == 4)
	})
}

// isText reports whether an attribute that changes something is a text.
func isText(vendor uint32, kind radius.Type) bool {
	switch vendor {
	case 0:
		return kind == rfc2865.FilterID_Type
	case vendorWISPr:
		return kind == wisprTerminate
	case vendorMikrotik:
		return kind == mikrotikRate
	}
	return false
}

// Which sessions a Disconnect- or CoA-Request names, and which limits it changes.

package radius

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

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
			same = len(a.Attribute) == 4 && s.PPPoE.Session != 0 &&
				binary.BigEndian.Uint32(a.Attribute) == uint32(s.PPPoE.Session)
		case rfc2865.NASPortType_Type:
			same = len(a.Attribute) == 4 &&
				binary.BigEndian.Uint32(a.Attribute) == uint32(d.cfg.portType(s.PPPoE.Session != 0))
		case rfc2869.NASPortID_Type:
			same = string(a.Attribute) == d.cfg.NASPortID
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

// limitChange is the change of a session's limits that a CoA-Request asks for. Limits that the request does not name
// stay.
type limitChange struct {
	changes []func(*session.Limits)
	timed   bool      // Session-Timeout is one of them
	end     time.Time // WISPr-Session-Terminate-Time; zero: not given
}

// apply returns the change for a session. The earlier of two ends counts, and one that is over is now.
func (w *limitChange) apply(s session.Session) func(*session.Limits) {
	return func(l *session.Limits) {
		for _, c := range w.changes {
			c(l)
		}
		if w.end.IsZero() {
			return
		}
		length := max(w.end.Sub(s.Began), time.Second)
		if !w.timed || l.SessionTimeout == 0 || length < l.SessionTimeout {
			l.SessionTimeout = length
		}
	}
}

// parseChange returns the change that a request asks for. A request with an attribute that is not understood is refused
// (RFC 5176, 3).
func (d *Dynamic) parseChange(p *radius.Packet) (w limitChange, cause rfc3576.ErrorCause) {
	coa := p.Code == radius.CodeCoARequest
	for _, a := range p.Attributes {
		if identifying[a.Type] {
			continue
		}
		if a.Type == rfc2865.ServiceType_Type { // "Authorize Only" asks for an Access-Request
			return w, rfc3576.ErrorCause_Value_UnsupportedService
		}
		if !coa || !d.add(&w, a) {
			return w, rfc3576.ErrorCause_Value_UnsupportedAttribute
		}
	}
	if coa && len(w.changes) == 0 && w.end.IsZero() {
		return w, rfc3576.ErrorCause_Value_MissingAttribute
	}
	return w, 0
}

// add adds the change of one attribute; false: it is not understood.
func (d *Dynamic) add(w *limitChange, a *radius.AVP) bool {
	seconds := func(set func(*session.Limits, time.Duration)) bool {
		if len(a.Attribute) != 4 {
			return false
		}
		v := time.Duration(binary.BigEndian.Uint32(a.Attribute)) * time.Second
		w.changes = append(w.changes, func(l *session.Limits) { set(l, v) })
		return true
	}
	switch a.Type {
	case rfc2865.SessionTimeout_Type:
		w.timed = true
		return seconds(func(l *session.Limits, v time.Duration) { l.SessionTimeout = v })
	case rfc2865.IdleTimeout_Type:
		return seconds(func(l *session.Limits, v time.Duration) { l.IdleTimeout = v })
	case rfc2869.AcctInterimInterval_Type:
		return seconds(func(l *session.Limits, v time.Duration) { l.Interim = d.cfg.interim(v) })
	case rfc2865.VendorSpecific_Type:
		return d.addVendor(w, a.Attribute)
	}
	return false
}

// addVendor adds the changes of a vendor's attributes. Halves of a 64-bit quota are changed one by one.
func (d *Dynamic) addVendor(w *limitChange, b []byte) bool {
	if len(b) < 4+2 {
		return false
	}
	vendor := binary.BigEndian.Uint32(b)
	for rest := b[4:]; len(rest) > 0; {
		if len(rest) < 2 || int(rest[1]) < 2 || len(rest) < int(rest[1]) {
			return false
		}
		kind, value := rest[0], rest[2:rest[1]]
		rest = rest[rest[1]:]
		if vendor == vendorWISPr && kind == wisprTerminate {
			end, err := terminateTime(string(value))
			if err != nil {
				return false
			}
			w.end = end
			continue
		}
		if len(value) != 4 {
			return false
		}
		set := d.vendorChange(vendor, kind, uint64(binary.BigEndian.Uint32(value)))
		if set == nil {
			return false
		}
		w.changes = append(w.changes, set)
	}
	return true
}

func (d *Dynamic) vendorChange(vendor uint32, kind byte, v uint64) func(*session.Limits) {
	low := func(n *uint64) { *n = *n>>32<<32 | v }
	high := func(n *uint64) { *n = v<<32 | *n&0xffffffff }
	up := func(l *session.Limits) *uint64 { return &l.UpBytes }
	down := func(l *session.Limits) *uint64 { return &l.DownBytes }
	if d.cfg.SwapOctets {
		up, down = down, up
	}
	switch {
	case vendor == vendorWISPr && kind == wisprMaxUp:
		return func(l *session.Limits) { l.UpBps = v }
	case vendor == vendorWISPr && kind == wisprMaxDown:
		return func(l *session.Limits) { l.DownBps = v }
	case vendor != vendorChilliSpot:
		return nil
	}
	switch kind {
	case chilliMaxInput:
		return func(l *session.Limits) { low(up(l)) }
	case chilliMaxInputHigh:
		return func(l *session.Limits) { high(up(l)) }
	case chilliMaxOutput:
		return func(l *session.Limits) { low(down(l)) }
	case chilliMaxOutputHigh:
		return func(l *session.Limits) { high(down(l)) }
	case chilliMaxTotal:
		return func(l *session.Limits) { low(&l.TotalBytes) }
	case chilliMaxTotalHigh:
		return func(l *session.Limits) { high(&l.TotalBytes) }
	}
	return nil
}

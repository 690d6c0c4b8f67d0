// Limits of sessions, as an Access-Accept or a CoA-Request has them: RFC 2865, and the attributes of WISPr, ChilliSpot
// and MikroTik.

package radius

import (
	"cmp"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"layeh.com/radius"
	"layeh.com/radius/rfc2865"
	"layeh.com/radius/rfc2869"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Vendors and their attributes. The numbers of ChilliSpot's gigawords are from CoovaChilli's dictionary, which
// FreeRADIUS does not ship.
const (
	vendorWISPr      = 14122
	vendorChilliSpot = 14559
	vendorMikrotik   = 14988
	vendorHuawei     = 2011

	wisprMaxUp, wisprMaxDown, wisprTerminate = 7, 8, 9

	chilliMaxInput, chilliMaxOutput, chilliMaxTotal             = 1, 2, 3
	chilliMaxUp, chilliMaxDown                                  = 4, 5 // 1000 bits a second
	chilliMaxInputHigh, chilliMaxOutputHigh, chilliMaxTotalHigh = 21, 22, 23

	mikrotikRecv, mikrotikXmit, mikrotikRate, mikrotikRecvHigh, mikrotikXmitHigh = 1, 2, 8, 14, 15
	mikrotikTotal, mikrotikTotalHigh                                             = 17, 18

	huaweiConnections = 92 // Huawei-Layer4-Session-Limit
)

// limit is a limit that a packet may have in several attributes. The zero value is one that it has not.
type limit[T cmp.Ordered] struct {
	value T
	given bool
}

// and adds what another attribute says: the lower value holds. 0 does not limit.
func (l limit[T]) and(value T, given bool) limit[T] {
	var none T
	switch {
	case !given:
		return l
	case !l.given || l.value == none || value != none && value < l.value:
		return limit[T]{value, true}
	}
	return l
}

// Profile is limits that a server gives by their name. Zero: the profile has no such limit.
type Profile struct {
	session.Limits     // without Interim
	Sessions       int // of the user at once
}

// packetLimits are the limits that an Access-Accept or a CoA-Request has.
type packetLimits struct {
	session.Limits
	given   session.ExplicitLimits // those that it has, be they 0
	interim bool                   // it has Interim
	end     time.Time              // WISPr-Session-Terminate-Time; zero: none
	// sessions is how many a user may have at once; 0: it does not say.
	sessions int
}

// limits returns the limits of a packet.
func (c *Config) limits(p *radius.Packet) (l packetLimits, err error) {
	if err := l.addRates(p); err != nil {
		return l, err
	}
	l.addQuotas(p, c.SwapOctets)
	if c.Connections {
		l.Connections, l.given.Connections = vendorNumber(p, vendorHuawei, huaweiConnections)
	}
	var every time.Duration
	every, l.interim = duration(p, rfc2869.AcctInterimInterval_Type)
	l.Interim = c.interim(every)
	l.IdleTimeout, l.given.IdleTimeout = duration(p, rfc2865.IdleTimeout_Type)
	l.SessionTimeout, l.given.SessionTimeout = duration(p, rfc2865.SessionTimeout_Type)
	if text := vendorBytes(p, vendorWISPr, wisprTerminate); text != nil {
		if l.end, err = terminateTime(string(text)); err != nil {
			return l, err
		}
	}
	if most, found := numericAttr(p, rfc2865.PortLimit_Type); found { // RFC 2865, 5.42
		l.sessions = int(most)
	}
	return l, l.addProfile(p, c.Profiles)
}

// addProfile adds the limits of the profile that the packet names by Filter-Id, where it has none of its own. A packet
// may have names for other devices too (RFC 2865, 5.11), but one must be a profile where there are any.
func (l *packetLimits) addProfile(p *radius.Packet, profiles map[string]Profile) error {
	var names []string
	if len(profiles) == 0 {
		return nil
	}
	for _, a := range p.Attributes {
		if a.Type != rfc2865.FilterID_Type {
			continue
		}
		names = append(names, string(a.Attribute))
		if profile, found := profiles[string(a.Attribute)]; found {
			l.fill(profile)
			return nil
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("the profile (Filter-Id), %.100q, is not configured: add a table [[limits.profile]] with this name",
			strings.Join(names, ", "))
	}
	return nil
}

// fill adds the limits of a profile where the packet has none.
func (l *packetLimits) fill(p Profile) {
	orProfile(&l.SessionTimeout, &l.given.SessionTimeout, p.SessionTimeout)
	orProfile(&l.IdleTimeout, &l.given.IdleTimeout, p.IdleTimeout)
	orProfile(&l.UpBytes, &l.given.UpBytes, p.UpBytes)
	orProfile(&l.DownBytes, &l.given.DownBytes, p.DownBytes)
	orProfile(&l.TotalBytes, &l.given.TotalBytes, p.TotalBytes)
	orProfile(&l.UpBps, &l.given.UpBps, p.UpBps)
	orProfile(&l.DownBps, &l.given.DownBps, p.DownBps)
	orProfile(&l.Connections, &l.given.Connections, p.Connections)
	l.sessions = cmp.Or(l.sessions, p.Sessions)
}

// orProfile sets a limit that is not given to that of a profile, if the profile has it.
func orProfile[T comparable](to *T, given *bool, value T) {
	var none T
	if !*given && value != none {
		*to, *given = value, true
	}
}

// duration returns an attribute's time; false when the packet has none.
func duration(p *radius.Packet, t radius.Type) (time.Duration, bool) {
	v, found := numericAttr(p, t)
	return time.Duration(v) * time.Second, found
}

// endAfter limits the session's time, unless it ends earlier already.
func (l *packetLimits) endAfter(length time.Duration) {
	timeout := limit[time.Duration]{l.SessionTimeout, l.given.SessionTimeout}.and(length, true)
	l.SessionTimeout, l.given.SessionTimeout = timeout.value, true
}

// ofLogin returns the limits of a login at a time, and which of them it has.
func (l packetLimits) ofLogin(now time.Time) (session.Limits, session.ExplicitLimits, error) {
	if !l.end.IsZero() {
		left := l.end.Sub(now)
		if left <= 0 {
			return l.Limits, l.given, fmt.Errorf("the session's end (WISPr-Session-Terminate-Time), %s, is over: is the clock "+
				"of this machine right?", l.end.Format(time.RFC3339))
		}
		l.endAfter(left)
	}
	return l.Limits, l.given, nil
}

// empty reports whether there is no limit.
func (l *packetLimits) empty() bool {
	return l.given == session.ExplicitLimits{} && !l.interim && l.end.IsZero()
}

// change returns the change of a session that began at a time. What the packet does not have stays. An end that is over
// is now.
func (l packetLimits) change(began time.Time) func(*session.Limits) {
	if !l.end.IsZero() {
		l.endAfter(max(l.end.Sub(began), time.Second))
	}
	return func(to *session.Limits) {
		replace(&to.SessionTimeout, l.SessionTimeout, l.given.SessionTimeout)
		replace(&to.IdleTimeout, l.IdleTimeout, l.given.IdleTimeout)
		replace(&to.UpBytes, l.UpBytes, l.given.UpBytes)
		replace(&to.DownBytes, l.DownBytes, l.given.DownBytes)
		replace(&to.TotalBytes, l.TotalBytes, l.given.TotalBytes)
		replace(&to.UpBps, l.UpBps, l.given.UpBps)
		replace(&to.DownBps, l.DownBps, l.given.DownBps)
		replace(&to.Connections, l.Connections, l.given.Connections)
		replace(&to.Interim, l.Interim, l.interim)
	}
}

// replace sets a value if a new one is given.
func replace[T any](to *T, value T, given bool) {
	if given {
		*to = value
	}
}

// addRates adds the rates of a packet, bits a second.
func (l *packetLimits) addRates(p *radius.Packet) error {
	of := func(vendor uint32, kind byte, unit uint64) (uint64, bool) {
		v, found := vendorNumber(p, vendor, kind)
		return uint64(v) * unit, found
	}
	up := limit[uint64]{}.and(of(vendorWISPr, wisprMaxUp, 1)).and(of(vendorChilliSpot, chilliMaxUp, 1000))
	down := limit[uint64]{}.and(of(vendorWISPr, wisprMaxDown, 1)).and(of(vendorChilliSpot, chilliMaxDown, 1000))
	if text := vendorBytes(p, vendorMikrotik, mikrotikRate); text != nil {
		received, sent, err := rateLimit(string(text))
		if err != nil {
			return err
		}
		up, down = up.and(received, true), down.and(sent, true)
	}
	l.UpBps, l.given.UpBps = up.value, up.given
	l.DownBps, l.given.DownBps = down.value, down.given
	return nil
}

// addQuotas adds the quotas of a packet, bytes. swap: the server counts from the other side.
func (l *packetLimits) addQuotas(p *radius.Packet, swap bool) {
	of := func(vendor uint32, low, high byte) (uint64, bool) {
		l, found := vendorNumber(p, vendor, low)
		h, hasToo := vendorNumber(p, vendor, high)
		return uint64(h)<<32 | uint64(l), found || hasToo
	}
	up := limit[uint64]{}.and(of(vendorChilliSpot, chilliMaxInput, chilliMaxInputHigh)).
		and(of(vendorMikrotik, mikrotikRecv, mikrotikRecvHigh))
	down := limit[uint64]{}.and(of(vendorChilliSpot, chilliMaxOutput, chilliMaxOutputHigh)).
		and(of(vendorMikrotik, mikrotikXmit, mikrotikXmitHigh))
	total := limit[uint64]{}.and(of(vendorChilliSpot, chilliMaxTotal, chilliMaxTotalHigh)).
		and(of(vendorMikrotik, mikrotikTotal, mikrotikTotalHigh))
	if swap {
		up, down = down, up
	}
	l.UpBytes, l.given.UpBytes = up.value, up.given
	l.DownBytes, l.given.DownBytes = down.value, down.given
	l.TotalBytes, l.given.TotalBytes = total.value, total.given
}

// rateLimit reads Mikrotik-Rate-Limit, bits a second: "1M/4M" is what the router receives of the client and what it
// sends to it, one number is both. Bursts, priority and the guaranteed rates behind them are not carried out.
func rateLimit(text string) (received, sent uint64, err error) {
	fields := strings.Fields(text)
	if len(fields) > 0 {
		one, other, both := strings.Cut(fields[0], "/")
		if !both {
			other = one
		}
		var ok, okToo bool
		received, ok = mikrotikBps(one)
		sent, okToo = mikrotikBps(other)
		if ok && okToo {
			return received, sent, nil
		}
	}
	return 0, 0, fmt.Errorf("the rates (Mikrotik-Rate-Limit), %.60q, do not begin with rates such as 512k/4M", text)
}

// mikrotikBps reads a number with the unit k, M or G, which are powers of 1000.
func mikrotikBps(text string) (uint64, bool) {
	unit := uint64(1)
	for suffix, of := range map[string]uint64{"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9} {
		if number, found := strings.CutSuffix(text, suffix); found {
			text, unit = number, of
		}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	high, bps := bits.Mul64(n, unit)
	return bps, err == nil && high == 0
}

// terminateTime reads WISPr-Session-Terminate-Time: a date and time, with a time zone or in the gateway's.
func terminateTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07",
		"2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, strings.TrimSpace(text), time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf(
		"the session's end (WISPr-Session-Terminate-Time), %.60q, is no time such as 2026-12-31T23:59:59+01:00", text)
}

// interim returns the time between the interim updates of a session. every is the time that the server asks for; 0: it
// asks for none.
func (c *Config) interim(every time.Duration) time.Duration {
	if every == 0 {
		return c.InterimDefault
	}
	return max(every, minInterim)
}

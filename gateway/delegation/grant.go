package delegation

import (
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/iana"
)

const (
	// maxPrefixes is how many prefixes are kept of one number: a provider that gives another one every minute, valid for
	// a day, leaves hundreds of deprecated ones. Those that end first are forgotten.
	maxPrefixes = 8
	// leastRenewal is the shortest time until lifetimes are renewed: a server may not keep the client busy.
	leastRenewal = time.Second
)

// replied takes a REPLY to a SOLICIT, REQUEST, RENEW or REBIND (RFC 8415 18.2.10).
func (m *machine) replied(now time.Time, a *answer) {
	if s := a.status.code; s != iana.StatusSuccess && s != iana.StatusNoBinding {
		m.failed(now, a)
		return
	}
	before := m.phase
	unbound, granted, gone := false, 0, len(m.leases) > 0
	var t1, t2 time.Duration
	for number := range m.wanted {
		ia := a.find(m.iaid(number))
		if a.status.code == iana.StatusNoBinding {
			ia = &association{status: a.status}
		}
		switch {
		case ia == nil:
		case ia.status.code == iana.StatusNoBinding && before != soliciting && before != requesting:
			m.unbound[number], unbound = true, true
		case ia.status.code == iana.StatusSuccess:
			n := m.grant(now, number, ia)
			if n == 0 {
				continue
			}
			granted += n
			if own1, own2 := renewal(ia); t1 == 0 || own1 < t1 {
				t1, t2 = own1, own2
			}
		}
	}
	switch {
	case unbound:
		m.problem = m.refusal(a)
		m.request(now, a.server, slices.Clone(m.leases))
	case granted > 0:
		m.phase, m.server, m.failures, m.problem = bound, a.server, 0, ""
		if a.refused != nil {
			m.problem = a.refused.Error()
		}
		m.t1, m.t2 = now.Add(t1), now.Add(t2)
		m.renewBeforeEnd(now)
	case gone && len(m.leases) == 0:
		m.retry(now, "the provider's server has withdrawn the prefix")
	default:
		m.failed(now, a)
	}
}

// failed goes on after a REPLY that delegates nothing. A RENEW, a REBIND and a SOLICIT are sent again, with the
// pauses of RFC 8415 15; so is a REQUEST of which the server said UnspecFail (18.2.10). After another refusal of a
// REQUEST all servers are asked.
func (m *machine) failed(now time.Time, a *answer) {
	m.problem = m.refusal(a)
	if m.phase == requesting && a.status.code != iana.StatusUnspecFail {
		m.retry(now, m.problem)
	}
}

// grant takes the prefixes of an association into the leases, and returns how many are valid. One with the lifetime 0
// ends. Where the server gives another one, those that it does not name are deprecated; they end with their lifetimes,
// or at once if it has no binding for them any more.
func (m *machine) grant(now time.Time, number int, ia *association) (granted int) {
	var named []Prefix
	fresh := false
	for _, o := range ia.prefixes[:min(len(ia.prefixes), maxPrefixes)] {
		p := Prefix{Prefix: o.prefix, Number: number, PreferredUntil: now.Add(o.preferred), ValidUntil: now.Add(o.valid)}
		place := slices.IndexFunc(m.leases, func(l Prefix) bool { return l.Number == number && l.Prefix == p.Prefix })
		switch {
		case o.valid == 0 && place >= 0:
			m.leases = slices.Delete(m.leases, place, place+1)
		case o.valid == 0:
		case place >= 0:
			m.leases[place] = p
			named = append(named, p)
		default:
			fresh = true
			m.leases = append(m.leases, p)
			named = append(named, p)
		}
	}
	if len(named) == 0 {
		return 0
	}
	unnamed := func(l Prefix) bool { return l.Number == number && !slices.Contains(named, l) }
	if m.unbound[number] {
		m.leases = slices.DeleteFunc(m.leases, unnamed)
		delete(m.unbound, number)
	}
	for i, l := range m.leases {
		if fresh && unnamed(l) && !l.Deprecated(now) {
			m.leases[i].PreferredUntil = now
		}
	}
	m.forget(number, unnamed)
	return len(named)
}

// forget drops prefixes that the server has not named where there are too many of a number.
func (m *machine) forget(number int, unnamed func(Prefix) bool) {
	for {
		count, first := 0, -1
		for i, l := range m.leases {
			if l.Number != number {
				continue
			}
			count++
			if unnamed(l) && (first < 0 || l.ValidUntil.Before(m.leases[first].ValidUntil)) {
				first = i
			}
		}
		if count <= maxPrefixes || first < 0 {
			return
		}
		m.leases = slices.Delete(m.leases, first, first+1)
	}
}

// renewal returns T1 and T2 of an association with prefixes. The client chooses them where the server leaves that to
// it (0), or says a time at which the prefix has ended (RFC 8415 14.2: half, and four fifths of the shortest time for
// which a prefix is preferred).
func renewal(ia *association) (t1, t2 time.Duration) {
	var base, end time.Duration // the shortest times
	for _, o := range ia.prefixes {
		if o.valid == 0 {
			continue
		}
		lasts := o.preferred
		if lasts == 0 { // deprecated by the provider, and to be renewed all the same
			lasts = o.valid
		}
		if end == 0 || o.valid < end {
			end = o.valid
		}
		if base == 0 || lasts < base {
			base = lasts
		}
	}
	t1, t2 = ia.t1, ia.t2
	if t2 == 0 || t2 >= end {
		t2 = max(base/5*4, t1)
	}
	if t2 >= end { // T1 is nonsense, too
		t1, t2 = 0, base/5*4
	}
	if t1 == 0 {
		t1 = min(base/2, t2)
	}
	t1 = max(t1, leastRenewal)
	return t1, max(t2, t1)
}

// renewBeforeEnd has a prefix that this answer did not name renewed before it ends.
func (m *machine) renewBeforeEnd(now time.Time) {
	for _, l := range m.leases {
		if latest := now.Add(l.ValidUntil.Sub(now) / 2); !l.Deprecated(now) && latest.Before(m.t1) {
			m.t1 = later(latest, now.Add(leastRenewal))
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

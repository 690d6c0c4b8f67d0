package routeradv

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// withdrawnValid is how long addresses of a withdrawn prefix stay valid at most. A host does not accept less from an
	// advertisement (RFC 4862, 5.5.3 e), and RFC 9096 asks routers to advertise that.
	withdrawnValid = 2 * time.Hour
	// maxWithdrawn bounds the withdrawn prefixes that hosts are told of. With a prefix that changes every minute, each is
	// advertised for eight minutes.
	maxWithdrawn = 8
)

// history is what hosts have been told of prefixes, so that one that is no longer advertised is withdrawn. Its size is
// bounded by what a message has room for and by maxWithdrawn.
type history struct {
	told      []toldPrefix
	withdrawn []toldPrefix // the oldest first
}

// toldPrefix is a prefix as hosts know it.
type toldPrefix struct {
	prefix     netip.Prefix
	validUntil time.Time // the hosts' addresses of it
	onLink     bool
	autonomous bool
}

// advertise returns the advertisement with the withdrawn prefixes added, as it is to be sent now, and notes what it
// says.
func (h *history) advertise(a Advertisement, now time.Time) Advertisement {
	current := func(t toldPrefix) bool {
		return slices.ContainsFunc(a.Prefixes, func(p Prefix) bool { return p.Prefix == t.prefix })
	}
	over := func(t toldPrefix) bool { return current(t) || !t.validUntil.After(now) }
	known := slices.Concat(h.withdrawn, h.told)
	for _, t := range h.told {
		if !current(t) {
			t.validUntil = earlier(t.validUntil, now.Add(withdrawnValid))
			h.withdrawn = append(h.withdrawn, t)
		}
	}
	h.withdrawn = slices.DeleteFunc(h.withdrawn, over)
	if more := len(h.withdrawn) - maxWithdrawn; more > 0 {
		h.withdrawn = slices.Delete(h.withdrawn, 0, more)
	}
	h.told = h.told[:0]
	for _, p := range a.Prefixes {
		t := toldPrefix{prefix: p.Prefix, onLink: p.OnLink, autonomous: p.Autonomous}
		if i := slices.IndexFunc(known, func(k toldPrefix) bool { return k.prefix == p.Prefix }); i >= 0 {
			t.validUntil = known[i].validUntil
		}
		_, valid := p.lifetimes(now)
		t.validUntil = asHostsTake(t.validUntil, seconds(valid), now)
		h.told = append(h.told, t)
	}
	a.Prefixes = slices.Clone(a.Prefixes)
	for _, t := range h.withdrawn {
		a.Prefixes = append(a.Prefixes, Prefix{Prefix: t.prefix, Valid: withdrawnValid, ValidUntil: t.validUntil,
			OnLink: t.onLink, Autonomous: t.autonomous})
	}
	return a
}

// empty reports whether hosts have no prefix.
func (h *history) empty() bool { return len(h.told) == 0 && len(h.withdrawn) == 0 }

// asHostsTake is until when a host takes its addresses to be valid that has heard a valid lifetime (RFC 4862, 5.5.3 e).
func asHostsTake(before time.Time, valid time.Duration, now time.Time) time.Time {
	remaining := before.Sub(now)
	switch {
	case valid > withdrawnValid || valid > remaining:
		return now.Add(valid)
	case remaining <= withdrawnValid:
		return before
	}
	return now.Add(withdrawnValid)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

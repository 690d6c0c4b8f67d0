package session

import (
	"net/netip"
	"slices"
	"time"
)

// entry is the state of a client, as the store has it; it is empty until the client is stored. There may be 100,000
// entries, so fields that few clients need are in extraFields, and limits that many clients share are stored once.
type entry struct {
	key                Key // with the first address
	state              State
	hostname           string
	leasedAt, leaseEnd tableTime
	extra              *extraFields // never changed in place; nil: nothing of it

	// The rest is zero unless Authenticated.
	user        string
	class       [][]byte
	shared      *Limits // those of several clients, never changed in place; nil: none
	id          string
	began, seen tableTime
	counts      Counts
	read        reading // of the counters, that counts include
}

// extraFields has the fields that few clients need.
type extraFields struct {
	furtherAddrs []netip.Addr // further addresses
	pppoe        PPPoESession // zero unless Authenticated
	lastEnding   Ending       // of the session before; zero while Authenticated
}

// extraOrZero returns the entry's extraFields, or zero ones where it has none.
func (e *entry) extraOrZero() extraFields {
	if e.extra == nil {
		return extraFields{}
	}
	return *e.extra
}

// change has edit change a copy of the entry's extraFields.
func (e *entry) change(edit func(*extraFields)) {
	r := e.extraOrZero()
	if edit(&r); len(r.furtherAddrs) == 0 && r.pppoe.Session == 0 && r.lastEnding == (Ending{}) {
		e.extra = nil
		return
	}
	e.extra = &r
}

// unlimited are the limits of a client without a session.
var unlimited = &Limits{}

// limits are those of the session, not to be changed.
func (e *entry) limits() *Limits {
	if e.shared == nil {
		return unlimited
	}
	return e.shared
}

// profilesMax bounds the limits of which the table knows that sessions share them.
const profilesMax = 256

// limit sets an entry's limits.
func (t *Table) limit(e *entry, l Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.shared = t.limits[l]; e.shared == nil {
		if len(t.limits) >= profilesMax {
			clear(t.limits)
		}
		e.shared = &l
		t.limits[l] = &l
	}
}

// goesWith reports whether a client has no address without its session: on PPPoE, or logged in by an operator
// without a lease. If that failed, the operator's command tidies up. IPv6 addresses are not leased.
func (e *entry) goesWith(cause Cause) bool {
	return e.extraOrZero().pppoe.Session != 0 ||
		e.state == Authenticated && e.leaseEnd == zeroTime && !e.only6() && cause != NASError
}

// only6 reports whether a client has no IPv4 address.
func (e *entry) only6() bool { return e.key.Addr.Is6() }

// withoutSession returns the entry without its session, if it had one.
func (e entry) withoutSession() entry {
	next := entry{key: e.key, state: PreAuth, hostname: e.hostname, leasedAt: e.leasedAt, leaseEnd: e.leaseEnd}
	next.change(func(r *extraFields) { r.furtherAddrs = e.extraOrZero().furtherAddrs })
	return next
}

// snapshot copies an entry for callers of the package.
func (t *Table) snapshot(e *entry) Session {
	s := t.view(e, t.clock.time)
	s.Class = cloneClass(s.Class)
	return s
}

// view returns an entry that shares memory with the table and must not leave the package. by converts its times.
func (t *Table) view(e *entry, by func(tableTime) time.Time) Session {
	extra := e.extraOrZero()
	s := Session{
		Key: e.key, FurtherAddrs: extra.furtherAddrs, Owner: t.owner, State: e.state, Hostname: e.hostname,
		LeasedAt: by(e.leasedAt), LeaseEnd: by(e.leaseEnd), LastEnding: extra.lastEnding,
	}
	if e.state == Authenticated {
		s.Login = Login{User: e.user, Class: e.class, Limits: *e.limits(), PPPoE: extra.pppoe}
		s.ID, s.Counts = e.id, e.counts
		s.Began, s.Seen = by(e.began), by(e.seen)
	}
	return s
}

// record returns an entry in the file's format.
func (t *Table) record(e *entry) []byte {
	s := t.view(e, t.clock.inFile)
	return encodeClient(&s, e.read)
}

// event returns an event of an entry's session at a moment, in the file's format.
func (t *Table) event(kind Kind, e *entry, cause Cause, instant tableTime) []byte {
	return encodeEvent(&Event{Kind: kind, Session: t.view(e, t.clock.inFile), Cause: cause, At: t.clock.inFile(instant)})
}

func cloneClass(class [][]byte) [][]byte {
	cloned := slices.Clone(class)
	for i := range cloned {
		cloned[i] = slices.Clone(cloned[i])
	}
	return cloned
}

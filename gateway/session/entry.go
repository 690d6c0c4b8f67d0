package session

import (
	"net/netip"
	"slices"
	"time"
)

// entry is the state of a client, as the file has it. It is empty until the client is stored there. There may be
// 100,000 entries, so fields that few clients need are in extraFields, and equal limits of many clients are in memory
// once.
type entry struct {
	key                Key // with the first address
	state              State
	hostname           string
	leasedAt, leaseEnd tableTime
	extra              *extraFields // never changed in place; nil: all of its fields are zero

	// The fields below are zero unless state is Authenticated.
	user        string
	most        int32 // sessions that the login allowed the user; 0: any number, -1: not known. It is not in the file
	class       [][]byte
	shared      *Limits // limits, perhaps also of other clients, never changed in place; nil: none
	id          string
	began, seen tableTime
	counts      Counts
	read        reading // the last reading of the data path's counters; counts include it
}

// extraFields has the fields that few clients need.
type extraFields struct {
	furtherAddrs []netip.Addr // further addresses
	delegated    []netip.Prefix
	pppoe        PPPoESession // zero unless the state is Authenticated
	lastEnding   Ending       // of the client's last session; zero while the state is Authenticated
	way          Way          // empty unless the state is Authenticated
	guest        *Guest       // nil unless the state is Authenticated
	ipv6         *Grant6      // nil unless the state is Authenticated
	attachment   *Attachment  // never changed in place; nil: not known
}

// extraOrZero returns the entry's extraFields, or zero ones where it has none.
func (e *entry) extraOrZero() extraFields {
	if e.extra == nil {
		return extraFields{}
	}
	return *e.extra
}

// change replaces the entry's extraFields by a copy that edit has changed.
func (e *entry) change(edit func(*extraFields)) {
	r := e.extraOrZero()
	if edit(&r); len(r.furtherAddrs) == 0 && len(r.delegated) == 0 && r.pppoe.Session == 0 &&
		r.lastEnding == (Ending{}) && r.ipv6 == nil && r.way == "" && r.guest == nil &&
		r.attachment == nil {
		e.extra = nil
		return
	}
	e.extra = &r
}

// unlimited is what limits returns for a client without a session.
var unlimited = &Limits{}

// limits returns the session's limits. The caller must not change them.
func (e *entry) limits() *Limits {
	if e.shared == nil {
		return unlimited
	}
	return e.shared
}

// profilesMax bounds the different limits that the table keeps for sharing.
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

// goesWith reports whether a client loses its address when its session ends with a cause. A client on PPPoE does, and
// so does a client that an operator logged in without a lease, unless the data path failed to admit it (NASError): then
// the operator's command removes it. A client without IPv4 does not, because IPv6 addresses are not leased.
func (e *entry) goesWith(cause Cause) bool {
	return e.extraOrZero().pppoe.Session != 0 ||
		e.state == Authenticated && e.leaseEnd == zeroTime && !e.only6() && cause != NASError
}

// only6 reports whether a client has no IPv4 address.
func (e *entry) only6() bool { return e.key.Addr.Is6() }

// withoutSession returns the entry without its session, if it had one, and without the networks of its login.
func (e entry) withoutSession() entry {
	next := entry{key: e.key, state: PreAuth, hostname: e.hostname, leasedAt: e.leasedAt, leaseEnd: e.leaseEnd}
	before := e.extraOrZero()
	next.change(func(r *extraFields) {
		r.furtherAddrs, r.delegated, r.attachment = before.furtherAddrs, before.delegated, before.attachment
		if before.ipv6 != nil && len(before.ipv6.Routes) > 0 {
			r.delegated = slices.DeleteFunc(slices.Clone(before.delegated),
				func(p netip.Prefix) bool { return slices.Contains(before.ipv6.Routes, p) })
		}
	})
	return next
}

// snapshot copies an entry for callers of the package.
func (t *Table) snapshot(e *entry) Session {
	s := t.view(e, t.clock.time)
	s.Class = cloneClass(s.Class)
	return s
}

// view returns an entry that shares memory with the table and must not leave the package. The function by converts its
// times.
func (t *Table) view(e *entry, by func(tableTime) time.Time) Session {
	extra := e.extraOrZero()
	s := Session{
		Key: e.key, FurtherAddrs: extra.furtherAddrs, Delegated: extra.delegated, Owner: t.owner,
		Attachment: e.attachment(), State: e.state, Hostname: e.hostname,
		LeasedAt: by(e.leasedAt), LeaseEnd: by(e.leaseEnd), LastEnding: extra.lastEnding,
	}
	if e.state == Authenticated {
		s.Login = Login{User: e.user, Class: e.class, Limits: *e.limits(), PPPoE: extra.pppoe, IPv6: extra.ipv6,
			Way: extra.way, Guest: extra.guest}
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

// entryOf returns the entry of a record whose times are of the file, without a reading of the counters.
func (t *Table) entryOf(s *Session) entry {
	e := entry{
		key: s.Key, state: s.State, hostname: s.Hostname,
		leasedAt: t.clock.ofFile(s.LeasedAt), leaseEnd: t.clock.ofFile(s.LeaseEnd),
	}
	e.change(func(r *extraFields) {
		r.furtherAddrs, r.delegated, r.pppoe, r.ipv6 = s.FurtherAddrs, s.Delegated, s.PPPoE, s.IPv6
		r.way, r.guest = s.Way, s.Guest
		if at := s.Attachment; at != (Attachment{}) {
			r.attachment = &at // not a part of s, which would stay in memory with it
		}
	})
	if s.State == Authenticated {
		e.user, e.class, e.id, e.most = s.User, s.Class, s.ID, -1
		t.limit(&e, s.Limits)
		e.began, e.seen, e.counts = t.clock.ofFile(s.Began), t.clock.ofFile(s.Seen), s.Counts
	}
	return e
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

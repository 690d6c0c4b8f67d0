package session

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// replaces calls begin, which begins the session of a login. If begin fails because the user has as many sessions as
// allowed, replaces ends sessions of the same MAC address and calls begin again: a device that comes with another
// address, or with a new PPPoE session after a power cut, replaces its former session. If that would not make enough
// room, no session ends.
func (t *Table) replaces(mac datapath.MAC, login Login, begin func() (Session, error)) (Session, error) {
	s, err := begin()
	for range 3 { // others may log in meanwhile
		if !errors.Is(err, ErrSessions) {
			break
		}
		over := t.surplusSessions(mac, login)
		if len(over) == 0 {
			break
		}
		for _, former := range over {
			if end := t.displace(former); end != nil {
				return Session{}, errors.Join(err, end)
			}
		}
		s, err = begin()
	}
	return s, err
}

// surplusSessions returns the sessions of a user and MAC address that must end before one more may begin, the oldest
// first. It returns none if ending them all would not be enough.
func (t *Table) surplusSessions(mac datapath.MAC, login Login) []Session {
	sessions := t.Of(mac, login.User)
	t.mu.Lock()
	excess := t.users[FoldUser(login.User)] + t.othersOf(mac, login) + 1 - login.Sessions
	t.mu.Unlock()
	if excess < 1 || excess > len(sessions) {
		return nil
	}
	return sessions[:excess]
}

// Of returns a user's sessions with a MAC address, the oldest first.
func (t *Table) Of(mac datapath.MAC, user string) (list []Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := t.macs[mac]; c != nil; c = c.nextOfMAC {
		if c.state == Authenticated && c.key.MAC == mac && SameUser(c.user, user) {
			list = append(list, t.snapshot(&c.entry))
		}
	}
	slices.SortFunc(list, func(a, b Session) int { return cmp.Or(a.Began.Compare(b.Began), a.Addr.Compare(b.Addr)) })
	return list
}

// ClientsOf returns the clients of a MAC address that have no PPPoE session, with the counts of their last reading.
func (t *Table) ClientsOf(mac datapath.MAC) (list []Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := t.macs[mac]; c != nil; c = c.nextOfMAC {
		if c.state != "" && c.key.MAC == mac && c.extraOrZero().pppoe.Session == 0 {
			list = append(list, t.snapshot(&c.entry))
		}
	}
	return list
}

// displace ends a session, if it still exists, for the one that replaces it.
func (t *Table) displace(s Session) error {
	if s.PPPoE.Session != 0 {
		return t.Disconnect(s.Key, s.PPPoE.Session, LostCarrier)
	}
	c := t.lockClient(s.Addr)
	if c == nil {
		return nil
	}
	defer t.release(c)
	if c.state != Authenticated || c.id != s.ID {
		return nil
	}
	next := c.withoutSession()
	_, err := t.replace(c, &next, UserRequest, t.clock.now())
	return err
}

// Find returns the client that has a MAC address and is in a PPPoE session; 0: it is in none, and if there are several,
// it is the one with the oldest lease.
func (t *Table) Find(mac datapath.MAC, pppoe uint16) (key Key, found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var oldest tableTime
	for c := t.macs[mac]; c != nil; c = c.nextOfMAC {
		if c.state == "" || c.extraOrZero().pppoe.Session != pppoe {
			continue
		}
		if !found || c.leasedAt < oldest {
			key, oldest, found = c.key, c.leasedAt, true
		}
	}
	return key, found
}

package session

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// replaces calls begin, which begins the session of a login. Where the user has as many sessions as
// allowed, those of the same device that the new one replaces are ended first, and begin is called again: a
// device that comes with another address, or in another PPPoE session after a power cut, is the same one. It ends no
// session where that would not do.
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

// surplusSessions returns which of a user's sessions with a MAC address must end so that one more may begin, the oldest
// first. It returns none where ending them would not be enough.
func (t *Table) surplusSessions(mac datapath.MAC, login Login) []Session {
	sessions := t.Of(mac, login.User)
	t.mu.Lock()
	excess := t.users[FoldUser(login.User)] + 1 - login.Sessions
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

// displace ends a session that another one replaces, if it is still there.
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

// Keys returns the clients that have a MAC address, the one with the oldest lease first.
func (t *Table) Keys(mac datapath.MAC) (keys []Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var oldest tableTime
	for c := t.macs[mac]; c != nil; c = c.nextOfMAC {
		if c.state == "" {
			continue
		}
		keys = append(keys, c.key)
		if len(keys) == 1 || c.leasedAt < oldest {
			oldest = c.leasedAt
			keys[0], keys[len(keys)-1] = keys[len(keys)-1], keys[0]
		}
	}
	return keys
}

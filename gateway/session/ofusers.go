// Sessions of users that have some at other gateways too.

package session

import (
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// UserSession is a session of a user that OfUsers was asked for.
type UserSession struct {
	Key
	ID    string
	Began time.Time // on the line of times in records
	// Most is how many sessions the login allowed the user; 0: any number. It is negative for a session of before a
	// restart: its login is not known any more.
	Most int
}

// CountOthers has f asked at a login how many sessions the user has at other gateways, those of a MAC address left out:
// they are the same device's, which is here now. f must not call the table. CountOthers must be called before anybody
// logs in.
func (t *Table) CountOthers(f func(user string, mac datapath.MAC) int) { t.others = f }

// othersOf returns how many sessions at other gateways count at a login.
func (t *Table) othersOf(mac datapath.MAC, login Login) int {
	if t.others == nil || login.Sessions <= 0 || login.Shared || login.User == "" {
		return 0
	}
	return t.others(FoldUser(login.User), mac)
}

// OfUsers returns the sessions here of users, whose names are as FoldUser returns them, and of which users a session
// is just beginning, or has just ended: their lists may lack some. It looks at every client once, unless none of the
// users has a session here.
func (t *Table) OfUsers(users []string) (list map[string][]UserSession, changing map[string]bool) {
	list, changing = map[string][]UserSession{}, map[string]bool{}
	t.mu.Lock()
	for _, user := range users {
		if t.users[user] > 0 {
			list[user] = nil
		}
	}
	t.mu.Unlock()
	if len(list) == 0 {
		return list, changing
	}
	var ids []datapath.ID
	for from := Position(0); from == 0 || len(ids) == visitedAtOnce; from = ids[len(ids)-1] + 1 {
		t.mu.Lock()
		if ids = t.order.from(ids[:0], from, visitedAtOnce); len(ids) == 0 {
			t.mu.Unlock()
			break
		}
		for _, id := range ids {
			c := t.clients[id]
			if c == nil || c.state != Authenticated {
				continue
			}
			user := FoldUser(c.user)
			if known, asked := list[user]; asked {
				list[user] = append(known, UserSession{c.key, c.id, t.clock.inFile(c.began), int(c.most)})
			}
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for user, known := range list {
		if t.users[user] != len(known) {
			changing[user] = true
		}
	}
	return list, changing
}

// Allowed returns how many sessions the login of a client's session allowed its user, as UserSession.Most.
func (t *Table) Allowed(s Session) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.clientAt(s.Addr); c != nil && c.id == s.ID {
		return int(c.most)
	}
	return -1
}

package guesses

import (
	"container/list"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Guessing one user's password from many clients is slowed down as well. The delay is
// short and does not apply to the device with which the user last logged in: an attacker can
// keep a user from logging in with other devices only while the guessing continues, and
// for longestNameWait after it.
const (
	freeNameFailures = 10               // before there is a wait
	firstNameWait    = time.Second      // doubled by each further failure
	longestNameWait  = 10 * time.Second // from mostNameFailures on
	mostNameFailures = freeNameFailures + 4
	maxNames         = 16_384 // that are remembered: of users, and the same number of other names
)

// names remembers for which names wrong passwords were sent, by any client. Names can
// be made up, so names that have logged in are kept separately. Other names displace
// only each other, and the name with the most failures goes last. The zero value is
// ready to use.
type names struct {
	mu     sync.Mutex // guards what follows
	users  map[string]*guessed
	logins list.List // of users, by their last login

	others map[string]*guessed
	failed [mostNameFailures + 1]list.List // of other names: by failures, each list by the last failure
}

// guessed is the state of one name.
type guessed struct {
	failures // at most mostNameFailures
	name     string
	home     MAC           // of the client of the last login; zero: none
	place    *list.Element // in logins, or in failed
}

// wait is how long a client must wait before it may try a user's password; 0: now.
// Undecided attempts do not count, because many clients may share an account.
func (g *names) wait(user string, client MAC) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.find(canonical(user))
	if at == nil || at.home == client {
		return 0
	}
	return at.wait(freeNameFailures, firstNameWait, longestNameWait)
}

// isHome reports whether a client is that of the user's last login.
func (g *names) isHome(user string, client MAC) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.users[canonical(user)]
	return at != nil && at.home == client
}

// recent is the number of wrong passwords for a name that still count, but for those of the
// client of its last login.
func (g *names) recent(user string, client MAC) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.find(canonical(user))
	if at == nil || at.home == client || at.over() {
		return 0
	}
	return at.count
}

// wrong counts a failed attempt.
func (g *names) wrong(user string, client MAC) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := canonical(user)
	at := g.find(name)
	if at == nil {
		at = g.add(name)
	}
	if at.home == client {
		return // the client's own failures slow it down
	}
	other := at.home == MAC{}
	if other {
		g.failed[at.count].Remove(at.place)
	}
	at.add(mostNameFailures)
	if other {
		at.place = g.failed[at.count].PushBack(at)
	}
}

// right clears a name's failures after a login.
func (g *names) right(user string, client MAC) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := canonical(user)
	if at := g.others[name]; at != nil {
		g.drop(at)
	}
	at := g.users[name]
	if at == nil {
		if g.users == nil {
			g.users = map[string]*guessed{}
		}
		if oldest := g.logins.Front(); len(g.users) >= maxNames {
			delete(g.users, g.logins.Remove(oldest).(*guessed).name)
		}
		at = &guessed{name: name}
		at.place = g.logins.PushBack(at)
		g.users[name] = at
	}
	g.logins.MoveToBack(at.place)
	at.count, at.home = 0, client
}

// canonical is the form in which names are compared: RADIUS servers may ignore case.
func canonical(user string) string { return session.FoldUser(user[:min(len(user), maxUser)]) }

// maxUser is the longest name that can be right, bytes (RFC 2865, 5.1).
const maxUser = 253

// find returns a name's entry or nil. mu is held.
func (g *names) find(name string) *guessed {
	if at := g.users[name]; at != nil {
		return at
	}
	return g.others[name]
}

// add adds an entry for a name that has not logged in. It replaces an expired entry, or
// else the oldest of those with the fewest failures. mu is held.
func (g *names) add(name string) *guessed {
	if g.others == nil {
		g.others = map[string]*guessed{}
	}
	if len(g.others) >= maxNames {
		g.drop(g.least())
	}
	at := &guessed{name: name}
	at.place = g.failed[0].PushBack(at) // until its failure is counted
	g.others[name] = at
	return at
}

// least returns the entry to replace first; there is one. mu is held.
func (g *names) least() *guessed {
	var least *guessed
	for i := range g.failed {
		first := g.failed[i].Front()
		if first == nil {
			continue
		}
		at := first.Value.(*guessed)
		if at.over() {
			return at
		}
		if least == nil {
			least = at
		}
	}
	return least
}

// drop removes an entry of a name that has not logged in; mu is held.
func (g *names) drop(at *guessed) {
	g.failed[at.count].Remove(at.place)
	delete(g.others, at.name)
}

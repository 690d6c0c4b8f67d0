package guesses

import (
	"container/list"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// Guessing one user's password from many clients is slowed down as well. The delay is short and does not apply to the
// device with which the user last logged in: an attacker can keep a user from logging in with other devices only while
// the guessing continues, and for longestNameWait after it.
const (
	freeNameFailures = 10               // before there is a wait
	firstNameWait    = time.Second      // doubled by each further failure
	longestNameWait  = 10 * time.Second // from mostNameFailures on
	mostNameFailures = freeNameFailures + 4
	maxNames         = 16_384 // that are remembered: of users, and the same number of other names
)

// names counts wrong passwords by user's name, from any client. An attacker can make up names, so names that have
// logged in are kept separately. Other names displace only each other, and the name with the most failures is kept
// longest. The zero value is ready to use.
type names struct {
	shown shown // its keys

	mu     sync.Mutex // guards what follows
	users  map[string]*guessedName
	logins list.List // of users, by their last login

	others map[string]*guessedName
	failed [mostNameFailures + 1]list.List // of other names: by failures, each list by the last failure
}

// guessedName is the failures of one name.
type guessedName struct {
	failures                 // at most mostNameFailures
	name       string        // its key
	lastClient MAC           // of the client of the last login; zero: none
	element    *list.Element // in logins, or in failed
}

// wait is how long a client must wait before it may try a user's password; 0: now. Undecided attempts do not count,
// because many clients may share an account.
func (g *names) wait(user string, client MAC) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.entryOf(g.key(user))
	if entry == nil || entry.lastClient == client {
		return 0
	}
	return entry.wait(freeNameFailures, firstNameWait, longestNameWait)
}

// isHome reports whether a client is that of the user's last login.
func (g *names) isHome(user string, client MAC) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.users[g.key(user)]
	return entry != nil && entry.lastClient == client
}

// recent is the number of wrong passwords for a name that still count, but for those of the client of its last login.
func (g *names) recent(user string, client MAC) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.entryOf(g.key(user))
	if entry == nil || entry.lastClient == client || entry.expired() {
		return 0
	}
	return entry.count
}

// countWrong counts a failed attempt, and returns the name's key; "": it does not count.
func (g *names) countWrong(user string, client MAC) (name string) {
	if g.isHome(user, client) {
		return "" // the client's own failures slow it down
	}
	name = g.key(user)
	g.told(name, 1, time.Now())
	return name
}

// told counts failures for the name with a key, of which the last was at a time.
func (g *names) told(name string, more int, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.entryOf(name)
	if entry == nil {
		entry = g.add(name)
	}
	other := g.others[name] == entry
	if other {
		g.failed[entry.count].Remove(entry.element)
	}
	entry.add(more, mostNameFailures, at)
	if other {
		entry.element = g.failed[entry.count].PushBack(entry)
	}
}

// cleared clears the failures of the name with a key, unless there were some after a time.
func (g *names) cleared(name string, until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.entryOf(name)
	if entry == nil || entry.last.After(until) {
		return
	}
	if g.others[name] == entry {
		g.drop(entry)
	}
	entry.count = 0
}

// clearFailures clears a name's failures after a login, and returns the name's key; "": it had none.
func (g *names) clearFailures(user string, client MAC) (cleared string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := g.key(user)
	if entry := g.entryOf(name); entry != nil && entry.count > 0 {
		cleared = name
	}
	if entry := g.others[name]; entry != nil {
		g.drop(entry)
	}
	entry := g.users[name]
	if entry == nil {
		if g.users == nil {
			g.users = map[string]*guessedName{}
		}
		if oldest := g.logins.Front(); len(g.users) >= maxNames {
			delete(g.users, g.logins.Remove(oldest).(*guessedName).name)
		}
		entry = &guessedName{name: name}
		entry.element = g.logins.PushBack(entry)
		g.users[name] = entry
	}
	g.logins.MoveToBack(entry.element)
	entry.count, entry.lastClient = 0, client
	return cleared
}

// key is what stands for a name here.
func (g *names) key(user string) string { return g.shown.key(canonical(user)) }

// canonical is the form in which names are compared: RADIUS servers may ignore case. Longer names cannot be right.
func canonical(user string) string { return session.FoldUser(user[:min(len(user), session.MaxUser)]) }

// entryOf returns a name's entry or nil. mu is held.
func (g *names) entryOf(name string) *guessedName {
	if entry := g.users[name]; entry != nil {
		return entry
	}
	return g.others[name]
}

// add adds an entry for a name that has not logged in. It replaces an expired entry, or else the oldest of those with
// the fewest failures. mu is held.
func (g *names) add(name string) *guessedName {
	if g.others == nil {
		g.others = map[string]*guessedName{}
	}
	if len(g.others) >= maxNames {
		g.drop(g.least())
	}
	entry := &guessedName{name: name}
	entry.element = g.failed[0].PushBack(entry) // until its failure is counted
	g.others[name] = entry
	return entry
}

// least returns the entry to replace first; there is one. mu is held.
func (g *names) least() *guessedName {
	var least *guessedName
	for i := range g.failed {
		first := g.failed[i].Front()
		if first == nil {
			continue
		}
		entry := first.Value.(*guessedName)
		if entry.expired() {
			return entry
		}
		if least == nil {
			least = entry
		}
	}
	return least
}

// drop removes an entry of a name that has not logged in; mu is held.
func (g *names) drop(entry *guessedName) {
	g.failed[entry.count].Remove(entry.element)
	delete(g.others, entry.name)
}

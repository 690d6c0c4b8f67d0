package portal

import (
	"container/list"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Guessing one user's password from ever new addresses is slowed down as well. The
// wait is short, and does not hold where the user logged in last: a stranger can
// keep a user from other devices for as long as it goes on guessing, and no longer
// than longestNameWait after.
const (
	freeNameFailures = 10               // before there is a wait
	firstNameWait    = time.Second      // doubled by each further failure
	longestNameWait  = 10 * time.Second // from mostNameFailures on
	mostNameFailures = freeNameFailures + 4
	maxNames         = 16_384 // of users, and as many others, that are remembered
)

// guesses remember which users' passwords were guessed at, whoever did. Names can be
// made up, so those that have logged in are apart from the others, which make room
// for each other only, and whom most failed to be goes last. The zero value is ready
// to use.
type guesses struct {
	mu     sync.Mutex // guards what follows
	users  map[string]*guessed
	logins list.List // of users, by their last log-in

	others map[string]*guessed
	failed [mostNameFailures + 1]list.List // of others: by failures, each by the last one
}

// guessed is one name's.
type guessed struct {
	failures // at most mostNameFailures
	name     string
	home     netip.Addr    // where it last succeeded; the zero Addr: nowhere yet
	place    *list.Element // in logins, or in failed
}

// wait is how long a client must wait before it may try to be a user; 0: it may.
// Tries that are being decided do not count: many may share an account.
func (g *guesses) wait(user string, client netip.Addr) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.find(canonical(user))
	if at == nil || at.home == client {
		return 0
	}
	return at.wait(freeNameFailures, firstNameWait, longestNameWait)
}

// wrong counts a try that failed.
func (g *guesses) wrong(user string, client netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := canonical(user)
	at := g.find(name)
	if at == nil {
		at = g.add(name)
	}
	if at.home == client {
		return // whom its own failures slow down
	}
	other := !at.home.IsValid()
	if other {
		g.failed[at.count].Remove(at.place)
	}
	at.add(mostNameFailures)
	if other {
		at.place = g.failed[at.count].PushBack(at)
	}
}

// right ends the failures.
func (g *guesses) right(user string, client netip.Addr) {
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

// canonical is what names are told apart by: RADIUS servers may take upper and lower
// case for one.
func canonical(user string) string { return strings.ToLower(user[:min(len(user), maxUser)]) }

// find finds a name's entry; nil: it has none. mu is held.
func (g *guesses) find(name string) *guessed {
	if at := g.users[name]; at != nil {
		return at
	}
	return g.others[name]
}

// add makes an entry of a name that nobody has logged in by. It goes for one whose
// time is over, or else for the one with the fewest failures, of these the oldest.
// mu is held.
func (g *guesses) add(name string) *guessed {
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

// least is the entry of others that goes first; there is one. mu is held.
func (g *guesses) least() *guessed {
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

// drop forgets an entry of others; mu is held.
func (g *guesses) drop(at *guessed) {
	g.failed[at.count].Remove(at.place)
	delete(g.others, at.name)
}

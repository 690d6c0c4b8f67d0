package portal

import (
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
	longestNameWait  = 10 * time.Second //
	maxNames         = 16_384           // that are remembered; beyond it some are forgotten
)

// guesses remember which users' passwords were guessed at, whoever did. The zero value
// is ready to use.
type guesses struct {
	mu    sync.Mutex
	names map[string]*guessed // guarded by mu
}

// guessed is one user name's.
type guessed struct {
	failures int // in a row
	last     time.Time
	home     netip.Addr // where it last succeeded; the zero Addr: nowhere yet
}

// wait is how long a client must wait before it may try to be a user; 0: it may.
// Tries that are being decided do not count: many may share an account.
func (g *guesses) wait(user string, client netip.Addr) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.at(user)
	since := time.Since(at.last)
	if at.home == client || at.failures < freeNameFailures || since >= forgetAfter {
		return 0
	}
	return max(0, min(longestNameWait, firstNameWait<<min(at.failures-freeNameFailures, 10))-since)
}

// wrong counts a try that failed.
func (g *guesses) wrong(user string, client netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.at(user)
	if at.home == client {
		return // whom its own failures slow down
	}
	if time.Since(at.last) >= forgetAfter {
		at.failures = 0
	}
	at.failures++
	at.last = time.Now()
}

// right ends the failures.
func (g *guesses) right(user string, client netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.at(user)
	at.failures, at.home = 0, client
}

// at finds a name's entry, or makes one; mu is held. Which one goes for it is chance.
func (g *guesses) at(user string) *guessed {
	user = strings.ToLower(user[:min(len(user), maxUser)]) // RADIUS servers may take both for one
	if at, ok := g.names[user]; ok {
		return at
	}
	if g.names == nil {
		g.names = map[string]*guessed{}
	}
	if len(g.names) >= maxNames {
		for other := range g.names {
			delete(g.names, other)
			break
		}
	}
	at := &guessed{}
	g.names[user] = at
	return at
}

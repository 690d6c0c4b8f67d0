package uam

import (
	"container/list"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/gateweigh/gateweigh/gateway/session"
)

const (
	// challengeBytes is a challenge's length.
	challengeBytes = 16
	// goodFor is how long a challenge may be answered once a client was given it, for the last time: a person needs time
	// to type.
	goodFor = 20 * time.Minute
	// maxChallenges bounds those kept, some 1 KiB each with a long link. Clients are in the table of sessions, so that
	// nobody without a lease takes a place.
	maxChallenges = 16_384
)

// challenge is what a client's next login must answer.
type challenge struct {
	Value     [challengeBytes]byte
	SessionID string // of the session that the login begins, so that the portal, RADIUS and accounting have the same
	link      string // what the client asked for first
	given     time.Time
	key       session.Key
}

// Hex is the form in redirects.
func (c challenge) Hex() string { return hex.EncodeToString(c.Value[:]) }

// challenges has the challenge of each client that was redirected. A login takes it away, right or wrong, so that no
// answer serves twice. The zero value is ready to use.
type challenges struct {
	mu     sync.Mutex
	byKey  map[session.Key]*list.Element // guarded by mu
	oldest list.List                     // guarded by mu: of challenge, those given longest ago in front
}

// issue returns a client's challenge, the same one until a login takes it: devices send requests of their own while
// somebody types, and the page that is being read has the challenge of an earlier one. A link that is not empty
// replaces the former one.
func (c *challenges) issue(key session.Key, link string, now time.Time) challenge {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.byKey[key]; at != nil {
		one := at.Value.(challenge)
		if one.given = now; link != "" {
			one.link = link
		}
		at.Value = one
		c.oldest.MoveToBack(at)
		return one
	}
	one := challenge{SessionID: session.NewID(), link: link, given: now, key: key}
	rand.Read(one.Value[:]) // never fails
	if c.byKey == nil {
		c.byKey = map[session.Key]*list.Element{}
	}
	if len(c.byKey) >= maxChallenges {
		c.remove(c.oldest.Front())
	}
	c.byKey[key] = c.oldest.PushBack(one)
	return one
}

// take returns a client's challenge and forgets it. ok is false if it has none that may still be answered; its link is
// returned anyway.
func (c *challenges) take(key session.Key, now time.Time) (one challenge, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.byKey[key]
	if at == nil {
		return challenge{}, false
	}
	c.remove(at)
	one = at.Value.(challenge)
	return one, now.Sub(one.given) < goodFor
}

// keep stores what a client asked for first once its challenge is taken: the answer, and a further try, have it again.
func (c *challenges) keep(key session.Key, link string) {
	if link != "" {
		c.issue(key, link, time.Now())
	}
}

// link returns what a client asked for first.
func (c *challenges) link(key session.Key) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.byKey[key]; at != nil {
		return at.Value.(challenge).link
	}
	return ""
}

// remove forgets a challenge. mu is held.
func (c *challenges) remove(at *list.Element) {
	delete(c.byKey, c.oldest.Remove(at).(challenge).key)
}

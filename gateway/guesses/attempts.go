package guesses

import (
	"context"
	"math"
	"sync"
	"time"
)

// What a client has to wait.
const (
	freeFailures = 3                // before there is a wait
	firstWait    = time.Second      // doubled by each further failure
	longestWait  = 30 * time.Second //
	forgetAfter  = 15 * time.Minute // without a failure
	// maxFailing bounds the clients whose failures are remembered; beyond it some are forgotten.
	maxFailing = 16_384
)

// failures counts consecutive failures of a client or of a name.
type failures struct {
	count int
	last  time.Time
}

// add counts further failures, up to most, of which the last was at a time. Failures older than forgetAfter no longer
// count. more may be negative.
func (f *failures) add(more, most int, at time.Time) {
	if f.expired() {
		f.count = 0
	}
	f.count = max(min(f.count+more, most), 0)
	if at.After(f.last) {
		f.last = at
	}
}

// expired reports whether the last failure is old enough to be forgotten.
func (f *failures) expired() bool { return time.Since(f.last) >= forgetAfter }

// wait is the remaining delay: none after the first free failures, then doubled by each further one.
func (f *failures) wait(free int, first, longest time.Duration) time.Duration {
	if f.count < free || f.expired() {
		return 0
	}
	wait := longest
	if doublings := f.count - free; doublings < 32 {
		wait = min(longest, first<<doublings)
	}
	return max(0, wait-time.Since(f.last))
}

// attempts counts wrong passwords by client, and lets each client try one password at a time: parallel guesses would be
// decided before they are counted. The zero value is ready to use.
type attempts struct {
	mu      sync.Mutex
	clients map[MAC]*attempt // guarded by mu
}

// attempt is the state of one client.
type attempt struct {
	busy chan struct{} // holds an element while a request has the turn

	users  int      // guarded by attempts.mu: requests that have the turn or wait for it
	failed failures // guarded by attempts.mu

	room   string // the last one that was wrong; read and written with the turn
	ofRoom int    // its failures in a row; read and written with the turn
}

// turn is a client's right to try a password, until end.
type turn struct {
	attempts *attempts
	client   MAC
	*attempt
}

// waitTurn waits for a client's turn. The error is ctx's.
func (a *attempts) waitTurn(ctx context.Context, client MAC) (*turn, error) {
	a.mu.Lock()
	entry, ok := a.clients[client]
	if !ok {
		entry = &attempt{busy: make(chan struct{}, 1)}
		a.add(client, entry)
	}
	entry.users++
	a.mu.Unlock()

	// Few requests wait here: connLimiter bounds a client's connections.
	t := &turn{a, client, entry}
	select {
	case entry.busy <- struct{}{}:
		return t, nil
	case <-ctx.Done():
		t.drop()
		return nil, ctx.Err()
	}
}

// add adds a client's entry; mu is held. A full table drops a random entry, so that a client that fills the table drops
// its own entries as likely as others'.
func (a *attempts) add(client MAC, entry *attempt) {
	if a.clients == nil {
		a.clients = map[MAC]*attempt{}
	}
	if len(a.clients) >= maxFailing {
		for other, old := range a.clients {
			if old.users == 0 {
				delete(a.clients, other)
				break
			}
		}
	}
	a.clients[client] = entry
}

// end ends the turn.
func (t *turn) end() {
	<-t.busy
	t.drop()
}

// drop ends a request.
func (t *turn) drop() {
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	t.users--
	t.attempts.forgetIdle(t.client, t.attempt)
}

// wait is how long the client must wait before it may try; 0: now.
func (t *turn) wait() time.Duration {
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	return t.failed.wait(freeFailures, firstWait, longestWait)
}

// recent is the number of wrong passwords that still count.
func (t *turn) recent() int {
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	if t.failed.expired() {
		return 0
	}
	return t.failed.count
}

// succeeded forgets the failures, and reports whether there were any.
func (t *turn) succeeded() (had bool) {
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	had = t.failed.count > 0
	t.failed.count = 0
	return had
}

// forgive forgets so many failures.
func (t *turn) forgive(n int) {
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	t.failed.count = max(t.failed.count-n, 0)
}

func (t *turn) fail() {
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	t.failed.add(1, math.MaxInt, time.Now())
}

// told counts failures at another gateway, of which the last was at a time; below 0: it has forgiven some.
func (a *attempts) told(client MAC, more int, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entry := a.clients[client]
	if entry == nil {
		if more <= 0 {
			return
		}
		entry = &attempt{busy: make(chan struct{}, 1)}
		a.add(client, entry)
	}
	entry.failed.add(more, math.MaxInt, at)
	a.forgetIdle(client, entry)
}

// cleared forgets failures, unless there were some after a time.
func (a *attempts) cleared(client MAC, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if entry := a.clients[client]; entry != nil && !entry.failed.last.After(until) {
		entry.failed.count = 0
		a.forgetIdle(client, entry)
	}
}

// forgetIdle forgets a client unless a request waits or it has failures to remember; mu is held.
func (a *attempts) forgetIdle(client MAC, entry *attempt) {
	if entry.users == 0 && entry.failed.count == 0 {
		delete(a.clients, client)
	}
}

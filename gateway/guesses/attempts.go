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

// add counts another failure, up to most. Failures older than forgetAfter no longer count.
func (f *failures) add(most int) {
	if f.expired() {
		f.count = 0
	}
	f.count, f.last = min(f.count+1, most), time.Now()
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
	failed failures // written with the turn and attempts.mu

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

// drop forgets the client unless a request waits or it has failures to remember.
func (t *turn) drop() {
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	t.users--
	if t.users == 0 && t.failed.count == 0 {
		delete(t.attempts.clients, t.client)
	}
}

// wait is how long the client must wait before it may try; 0: now.
func (t *turn) wait() time.Duration {
	return t.failed.wait(freeFailures, firstWait, longestWait)
}

// recent is the number of wrong passwords that still count.
func (t *turn) recent() int {
	if t.failed.expired() {
		return 0
	}
	return t.failed.count
}

func (t *turn) succeeded() {
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	t.failed.count = 0
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
	t.failed.add(math.MaxInt)
}

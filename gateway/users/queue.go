package users

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// queue has one password hashed at a time, a turn, and decides who goes first.
//
// Logins stand in a line: those with fewer wrong passwords before them first, then those whose name and device fewer
// others in the line have, then the older ones. A turn hashes the password of the first in the line that has an account
// and was not hashed yet: made-up names delay no right password. Right passwords are answered at once. All others are
// answered in the order of the line, one a turn, hashed or not, so the time of an answer does not reveal which names
// have an account. Where nothing is left to hash, a turn hashes for nobody, as costly.
type queue struct {
	maxLogins int // logins in the line
	maxTurns  int // turns that a login waits at most: longer where a turn takes longer
	matches   func(hash, string) bool

	mu          sync.Mutex // guards what follows
	line        []*waiting
	turnsBegun  uint64 // that have begun
	turnRunning bool   // a turn is in progress
}

// waiting is a login in the line.
type waiting struct {
	failures, rivals int
	name             string
	device           session.Key
	joinedAt         uint64 // turns that had begun
	account          bool
	hash             hash
	password         string
	hashed           bool
	answer           chan error // with space for one
}

// check returns nil for the right password of an account, ErrRejected for a wrong one, ErrBusy where too many are
// ahead, or ctx's error.
func (q *queue) check(ctx context.Context, credentials session.Credentials, account bool, h hash) error {
	w := &waiting{
		failures: credentials.Failures, name: credentials.User, device: credentials.Key, account: account, hash: h,
		password: credentials.Password,
		answer:   make(chan error, 1),
	}
	if !q.add(w) {
		return session.ErrBusy
	}
	select {
	case err := <-w.answer:
		return err
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		q.remove(w)
		return ctx.Err()
	}
}

// add puts a login into the line, in place of the last one if the line is full, and begins with the turns if there are
// none. It returns false where the line is full of better ones.
func (q *queue) add(w *waiting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, other := range q.line {
		if other.name == w.name || other.device.MAC == w.device.MAC && w.device != (session.Key{}) {
			w.rivals++
		}
	}
	if n := len(q.line); n >= q.maxLogins {
		if n == 0 || order(w, q.line[n-1]) >= 0 {
			return false
		}
		q.dismiss(n-1, session.ErrBusy)
	}
	w.joinedAt = q.turnsBegun
	// behind its equals
	index, _ := slices.BinarySearchFunc(q.line, w, func(other, w *waiting) int { return cmp.Or(order(other, w), -1) })
	q.line = slices.Insert(q.line, index, w)
	if !q.turnRunning {
		q.turnRunning = true
		go q.runTurns()
	}
	return true
}

// order is negative if a is before b.
func order(a, b *waiting) int {
	return cmp.Or(cmp.Compare(a.failures, b.failures), cmp.Compare(a.rivals, b.rivals))
}

// runTurns carries out turns until the line is empty.
func (q *queue) runTurns() {
	for {
		w, h, password := q.beginTurn()
		if w == nil {
			return
		}
		right := q.matches(h, password)
		q.mu.Lock()
		w.hashed = w.account
		q.answerTurn(w, right && w.account)
		q.mu.Unlock()
	}
}

// beginTurn begins a turn, and returns the login, the hash and the password to hash; nil: no login waits.
func (q *queue) beginTurn() (w *waiting, h hash, password string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.line) == 0 {
		q.turnRunning = false
		return nil, hash{}, ""
	}
	q.turnsBegun++
	for _, w := range q.line {
		if w.account && !w.hashed {
			return w, w.hash, w.password
		}
	}
	return &waiting{}, nobodyHash, q.line[0].password
}

// answerTurn answers one login: that of the turn if its password was right, or else the first of those that were there
// when the turn began. mu is held.
func (q *queue) answerTurn(w *waiting, right bool) {
	if right {
		if q.remove(w) { // otherwise it has its answer, or waits no more
			w.answer <- nil
		}
		return
	}
	if first := slices.IndexFunc(q.line, func(w *waiting) bool { return w.joinedAt < q.turnsBegun }); first >= 0 {
		q.dismiss(first, session.Reject(""))
	}
	for i := len(q.line) - 1; i >= 0; i-- {
		if q.turnsBegun-q.line[i].joinedAt >= uint64(q.maxTurns) {
			q.dismiss(i, session.ErrBusy)
		}
	}
}

// dismiss answers a login of the line. mu is held.
func (q *queue) dismiss(i int, reason error) {
	q.line[i].answer <- reason
	q.line = slices.Delete(q.line, i, i+1)
}

// remove takes a login out of the line, and reports whether it was there. mu is held.
func (q *queue) remove(w *waiting) bool {
	i := slices.Index(q.line, w)
	if i >= 0 {
		q.line = slices.Delete(q.line, i, i+1)
	}
	return i >= 0
}

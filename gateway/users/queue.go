package users

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/gateweigh/gateweigh/gateway/session"
)

// queue hashes one password at a time and decides about the order of logins. One hashing is a turn.
//
// Waiting logins are sorted: first those with fewer wrong passwords before them, then those whose name or device fewer
// other waiting logins have, then older ones. A turn hashes the password of the first login that has an account and was
// not hashed yet, so made-up names do not delay right passwords. A right password is answered at once. All other logins
// are answered in their order, one in each turn, whether their password was hashed or not, so the time of an answer
// does not reveal which names have an account. When no password is left to hash, a turn checks one against nobodyHash,
// which costs as much.
type queue struct {
	maxLogins int // most waiting logins
	maxTurns  int // most turns that a login waits
	matches   func(hash, string) bool

	mu          sync.Mutex // guards the fields below
	line        []*waiting // waiting logins in their order
	turnsBegun  uint64     // number of turns that have begun
	turnRunning bool       // a turn is in progress
}

// waiting is a waiting login.
type waiting struct {
	failures int // wrong passwords before it
	rivals   int // waiting logins with its name or device when it came
	name     string
	device   session.Key
	joinedAt uint64 // queue.turnsBegun when it came
	account  bool   // its name has an account
	hash     hash
	password string
	hashed   bool       // a turn has hashed its password
	answer   chan error // has room for the one answer
}

// check returns nil for the right password of an account, ErrRejected for a wrong one, ErrBusy when too many logins are
// before it, or ctx's error.
func (q *queue) check(ctx context.Context, credentials session.Credentials, account bool, h hash) error {
	login := &waiting{
		failures: credentials.Failures, name: credentials.User, device: credentials.Key, account: account, hash: h,
		password: credentials.Password,
		answer:   make(chan error, 1),
	}
	if !q.add(login) {
		return session.ErrBusy
	}
	select {
	case err := <-login.answer:
		return err
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		q.remove(login)
		return ctx.Err()
	}
}

// add inserts a login and starts the turns if none runs. If the queue is full, the last login loses its place, or add
// returns false if the new login would be the last.
func (q *queue) add(login *waiting) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, other := range q.line {
		if other.name == login.name || other.device.MAC == login.device.MAC && login.device != (session.Key{}) {
			login.rivals++
		}
	}
	if n := len(q.line); n >= q.maxLogins {
		if n == 0 || compareRank(login, q.line[n-1]) >= 0 {
			return false
		}
		q.answerLogin(n-1, session.ErrBusy)
	}
	login.joinedAt = q.turnsBegun
	// Insert it after the logins of the same rank.
	index, _ := slices.BinarySearchFunc(q.line, login,
		func(other, login *waiting) int { return cmp.Or(compareRank(other, login), -1) })
	q.line = slices.Insert(q.line, index, login)
	if !q.turnRunning {
		q.turnRunning = true
		go q.runTurns()
	}
	return true
}

// compareRank is negative if a is before b.
func compareRank(a, b *waiting) int {
	return cmp.Or(cmp.Compare(a.failures, b.failures), cmp.Compare(a.rivals, b.rivals))
}

// runTurns carries out turns until no login waits.
func (q *queue) runTurns() {
	for {
		login, hash, password := q.beginTurn()
		if login == nil {
			return
		}
		right := q.matches(hash, password)
		q.mu.Lock()
		login.hashed = login.account
		q.answerTurn(login, right && login.account)
		q.mu.Unlock()
	}
}

// beginTurn begins a turn. It returns the login, the hash and the password to check; a nil login if none waits.
func (q *queue) beginTurn() (login *waiting, h hash, password string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.line) == 0 {
		q.turnRunning = false
		return nil, hash{}, ""
	}
	q.turnsBegun++
	for _, login := range q.line {
		if login.account && !login.hashed {
			return login, login.hash, login.password
		}
	}
	return &waiting{}, nobodyHash, q.line[0].password
}

// answerTurn answers the login of the turn if its password was right, or else the first login that came before the turn
// began. It also answers logins that have waited maxTurns. The caller holds mu.
func (q *queue) answerTurn(login *waiting, right bool) {
	if right {
		if q.remove(login) { // otherwise it has an answer, or its client has given up
			login.answer <- nil
		}
		return
	}
	if first := slices.IndexFunc(q.line, func(login *waiting) bool { return login.joinedAt < q.turnsBegun }); first >= 0 {
		q.answerLogin(first, session.Reject(""))
	}
	for i := len(q.line) - 1; i >= 0; i-- {
		if q.turnsBegun-q.line[i].joinedAt >= uint64(q.maxTurns) {
			q.answerLogin(i, session.ErrBusy)
		}
	}
}

// answerLogin answers the i-th login and removes it. The caller holds mu.
func (q *queue) answerLogin(i int, reason error) {
	q.line[i].answer <- reason
	q.line = slices.Delete(q.line, i, i+1)
}

// remove removes a login and reports whether it was waiting. The caller holds mu.
func (q *queue) remove(login *waiting) bool {
	i := slices.Index(q.line, login)
	if i >= 0 {
		q.line = slices.Delete(q.line, i, i+1)
	}
	return i >= 0
}

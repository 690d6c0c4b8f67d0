// Answers that come when nobody waits for them any more. They are counted, and logged.

package radius

import (
	"fmt"
	"time"
)

// An answer that comes too late is noticed until lateFor after the end of its exchange, for at most lingerMost
// exchanges of a server at a time.
const (
	lateFor    = 30 * time.Second
	lingerMost = 64
)

// keepIDs keeps the identifiers of an exchange that is over for lateFor. It returns false where too many are kept.
func (e *endpoint) keepIDs(x *exchange) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.lingering >= lingerMost {
		return false
	}
	e.lingering++
	x.abandoned.Store(true)
	time.AfterFunc(lateFor, func() {
		e.mu.Lock()
		e.lingering--
		e.mu.Unlock()
		x.release()
	})
	return true
}

// cameLate counts and logs an authentic answer that nobody waits for any more. The server stays dead if it is.
func (e *endpoint) cameLate(x *exchange) {
	after := time.Since(x.began)
	e.mu.Lock()
	e.lateBy = after
	if e.lastFailure != nil {
		e.lastFailure = &noAnswerError{server: e.addr.String(), lateBy: after}
	}
	e.mu.Unlock()
	e.counts.late.Add(1)
	e.slow.Do(func() {
		e.log.Warn(fmt.Sprintf("radius: %s answered after %s: %s", e.addr, inSeconds(after), tooLate))
	})
}

// lateness is how long the server took for its last answer, if that was too late.
func (e *endpoint) lateness() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lateBy
}

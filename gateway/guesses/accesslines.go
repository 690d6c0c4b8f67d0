package guesses

import (
	"sync"
	"time"
)

// A line has as many free failures as a name (names.go), because several devices may be behind it.
const maxLines = 16_384 // that are remembered; beyond it some are forgotten

// accessLines counts wrong passwords by the access line (Agent-Circuit-Id) that they came from. The zero value is ready
// to use.
type accessLines struct {
	shown shown // its keys

	mu     sync.Mutex
	failed map[string]*failures // guarded by mu
}

// wait is how long clients behind a line must wait; 0: not.
func (l *accessLines) wait(line string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.failed[l.shown.key(line)]; f != nil {
		return f.wait(freeNameFailures, firstNameWait, longestNameWait)
	}
	return 0
}

// countWrong counts a wrong password; "" is no line. It returns the line's key.
func (l *accessLines) countWrong(line string) (key string) {
	if line == "" {
		return ""
	}
	key = l.shown.key(line)
	l.told(key, 1, time.Now())
	return key
}

// told counts failures behind the line with a key, of which the last was at a time.
func (l *accessLines) told(key string, more int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failed[key]
	if f == nil {
		if l.failed == nil {
			l.failed = map[string]*failures{}
		}
		for other := range l.failed {
			if len(l.failed) < maxLines {
				break
			}
			delete(l.failed, other)
		}
		f = &failures{}
		l.failed[key] = f
	}
	f.add(more, mostNameFailures, at)
}

// forgetFailures forgets a line's failures, and returns its key; "": it had none.
func (l *accessLines) forgetFailures(line string) (key string) {
	key = l.shown.key(line)
	if !l.cleared(key, time.Now()) {
		return ""
	}
	return key
}

// cleared forgets the failures of the line with a key, unless there were some after a time, and reports whether it did.
func (l *accessLines) cleared(key string, until time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failed[key]
	if f == nil || f.last.After(until) {
		return false
	}
	delete(l.failed, key)
	return true
}

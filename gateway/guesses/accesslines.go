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
	mu     sync.Mutex
	failed map[string]*failures // guarded by mu
}

// wait is how long clients behind a line must wait; 0: not.
func (l *accessLines) wait(line string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.failed[line]; f != nil {
		return f.wait(freeNameFailures, firstNameWait, longestNameWait)
	}
	return 0
}

// countWrong counts a wrong password; "" is no line.
func (l *accessLines) countWrong(line string) {
	if line == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.failed[line]
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
		l.failed[line] = f
	}
	f.add(mostNameFailures)
}

// forgetFailures forgets a line's failures.
func (l *accessLines) forgetFailures(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.failed, line)
}

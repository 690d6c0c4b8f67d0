package radius

import "fmt"

// logServers logs, once, the servers that do not answer while another one does, and the one that answers again. Where
// none answers, the caller logs that.
func (s *service) logServers(answers *endpoint) {
	for _, e := range s.endpoints {
		if e == answers {
			e.logReturn()
		} else {
			e.logTrouble(answers)
		}
	}
}

func (e *endpoint) logReturn() {
	e.mu.Lock()
	before := e.logged
	e.logged = false
	e.mu.Unlock()
	if before {
		e.log.Info(fmt.Sprintf("radius: %s answers again", e.addr))
	}
}

// logTrouble logs at most once a minute: a server may leave the requests of one realm unanswered.
func (e *endpoint) logTrouble(other *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lastFailure == nil || e.logged {
		return
	}
	e.failureLog.Do(func() {
		e.logged = true
		e.log.Warn(fmt.Sprintf("radius: %s does not answer, %s is asked: %s", e.addr, other.addr, e.lastFailure.advice()))
	})
}

package radius

import "fmt"

// tell logs, once, which servers do not answer while another one does, and which one answers again. Where none answers,
// who asks says so.
func (s *service) tell(answers *endpoint) {
	for _, e := range s.endpoints {
		if e == answers {
			e.tellReturn()
		} else {
			e.tellTrouble(answers)
		}
	}
}

func (e *endpoint) tellReturn() {
	e.mu.Lock()
	was := e.told
	e.told = false
	e.mu.Unlock()
	if was {
		e.log.Info(fmt.Sprintf("radius: %s answers again", e.addr))
	}
}

// tellTrouble logs at most once a minute: a server may leave the requests of one realm unanswered.
func (e *endpoint) tellTrouble(other *endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.trouble == nil || e.told {
		return
	}
	e.fell.Do(func() {
		e.told = true
		e.log.Warn(fmt.Sprintf("radius: %s does not answer, %s is asked: %s", e.addr, other.addr, e.trouble.why()))
	})
}

package radius

import (
	"fmt"
	"time"
)

// noAnswerError is the error for a server that gave no valid answer. Its fields are what is known about the reason,
// from which it makes advice.
type noAnswerError struct {
	server           string
	refused          bool // its port is closed
	unsigned, forged uint32
	cause            error         // the error of sending
	lateBy           time.Duration // after which it answered another request, too late; 0: it did not
	logins           bool          // it is for accounting, and answers logins meanwhile
}

func (s *noAnswerError) Error() string { return s.server + ": " + s.advice() }

// advice includes advice where the user can act.
func (s *noAnswerError) advice() string {
	switch {
	case s.unsigned > 0:
		return fmt.Sprintf("answers without Message-Authenticator were dropped (%d): "+
			"upgrade that server, or make it sign its answers", s.unsigned)
	case s.forged > 0:
		return fmt.Sprintf("answers with a wrong authenticator were dropped (%d): is the secret the same there?", s.forged)
	case s.cause != nil:
		return s.cause.Error()
	case s.refused && s.logins:
		return "nothing listens there, and " + noAccounting
	case s.refused:
		return "nothing listens there"
	case s.lateBy != 0:
		return fmt.Sprintf("answered after %s: %s", inSeconds(s.lateBy), tooLate)
	}
	if s.logins {
		return "no answer, and " + noAccounting
	}
	return "no answer: does it know this gateway's address and secret?"
}

// tooLate is what the user can do about answers that nobody waits for any more.
const tooLate = "radius.timeout is too short for that server, or it is too slow"

// noAccounting is what the user can do where a server's accounting alone is silent.
const noAccounting = "log-ins are answered: look at the server's accounting"

// inSeconds is a time as the log has it: "6 s", and "0.4 s" below one second.
func inSeconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// loginsAnswered reports whether the server answers logins though its accounting has been silent since then, or longer.
// A login shortly before counts, as that of the session of which the accounting is.
func (e *endpoint) loginsAnswered(since time.Time) bool {
	if e.logins == nil {
		return false
	}
	e.mu.Lock()
	if !e.silentSince.IsZero() {
		since = e.silentSince
	}
	e.mu.Unlock()
	e.logins.mu.Lock()
	defer e.logins.mu.Unlock()
	return e.logins.lastFailure == nil && e.logins.lastHeard.After(since.Add(-time.Minute))
}

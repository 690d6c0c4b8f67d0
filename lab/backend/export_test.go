// Access for the tests, which are in package backend_test, to unexported parts of this package.

package backend

import "time"

// ShortenPatience makes agents that start before restore end after a shorter silence of their lab, and the lab wait
// shorter for the logs of an agent that does not answer.
func ShortenPatience(silence, logs time.Duration) (restore func()) {
	silenceBefore, logsBefore := silenceLimit, logsTimeout
	silenceLimit, logsTimeout = silence, logs
	return func() { silenceLimit, logsTimeout = silenceBefore, logsBefore }
}

package backend

import "time"

// ShortenPatience has agents end after a shorter silence of their lab, and the lab wait shorter for the logs of an
// agent that does not answer, until restore.
func ShortenPatience(to, forLogs time.Duration) (restore func()) {
	before, logsBefore := patience, logsWithin
	patience, logsWithin = to, forLogs
	return func() { patience, logsWithin = before, logsBefore }
}

package backend

import "time"

// ShortenPatience has agents end after a shorter silence of their lab, until restore.
func ShortenPatience(to time.Duration) (restore func()) {
	before := patience
	patience = to
	return func() { patience = before }
}

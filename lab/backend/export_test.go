package backend

import "time"

// ShortenPatience makes agents that start before restore end after a shorter silence of their lab.
func ShortenPatience(to time.Duration) (restore func()) {
	before := patience
	patience = to
	return func() { patience = before }
}

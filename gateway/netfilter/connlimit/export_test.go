package connlimit

// Look does what Run does each second.
func (l *Limiter) Look() { l.look(func() bool { return false }) }

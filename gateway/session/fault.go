package session

// storeFault records that the store cannot be written. The fault is over when a change that had failed is
// written, or other changes of at least its size: a full disk still takes small writes.
type storeFault struct {
	err     error // of the first write that failed; nil: there is no fault
	size    int   // bytes of the largest change that failed
	written bool  // since the last failure such a change, or as many bytes, were written
}

// add adds a portion that could not be written.
func (f *storeFault) add(b portion, err error) {
	if f.err == nil {
		*f = storeFault{err: err}
	}
	f.written = false
	for _, c := range b.changes {
		f.size = max(f.size, c.size())
	}
	for _, r := range b.saves {
		f.size = max(f.size, len(r.Data))
	}
}

// portionWritten notes a portion that was written; more: another one waits.
func (f *storeFault) portionWritten(b portion, more bool) {
	if f.err == nil {
		return
	}
	size := 0
	for _, c := range b.changes {
		size += c.size()
		f.written = f.written || c.refused
	}
	for _, r := range b.saves {
		size += len(r.Data)
	}
	if f.written = f.written || size >= f.size; f.written && !more {
		*f = storeFault{}
	}
}

// size is the bytes of a change's records.
func (c *change) size() int {
	n := len(c.record)
	for _, e := range c.events {
		n += len(e)
	}
	return n
}

// Unkept returns why sessions cannot be stored, such as a full disk; nil if they can. It returns nil again once as many
// bytes could be written as the largest change had that failed.
func (t *Table) Unkept() error {
	t.journal.mu.Lock()
	defer t.journal.mu.Unlock()
	return t.journal.fault.err
}

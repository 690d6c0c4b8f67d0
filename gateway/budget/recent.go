package budget

// Recent is a cache of the senders that came last, with a value for each. It is for one goroutine at a time. The zero
// value is empty.
type Recent[K comparable, V any] struct {
	byKey          map[K]*entry[K, V]
	newest, oldest *entry[K, V]
}

// entry is a sender in the list of Recent, which is ordered by when senders came last.
type entry[K comparable, V any] struct {
	key          K
	value        V
	newer, older *entry[K, V]
}

// Get returns a sender's value, nil if it has none, and notes that the sender came.
func (r *Recent[K, V]) Get(k K) *V {
	e := r.byKey[k]
	if e == nil {
		return nil
	}
	if e != r.newest {
		r.remove(e)
		r.push(e)
	}
	return &e.value
}

// Add gives a sender that has none a zero value. If there are size values, it takes the place of the sender that has
// been silent longest.
func (r *Recent[K, V]) Add(k K, size int) *V {
	if r.byKey == nil {
		r.byKey = map[K]*entry[K, V]{}
	}
	if len(r.byKey) >= size {
		delete(r.byKey, r.oldest.key)
		r.remove(r.oldest)
	}
	e := &entry[K, V]{key: k}
	r.byKey[k] = e
	r.push(e)
	return &e.value
}

// Len is the number of values.
func (r *Recent[K, V]) Len() int { return len(r.byKey) }

func (r *Recent[K, V]) push(e *entry[K, V]) {
	e.older, e.newer = r.newest, nil
	if r.newest != nil {
		r.newest.newer = e
	} else {
		r.oldest = e
	}
	r.newest = e
}

func (r *Recent[K, V]) remove(e *entry[K, V]) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		r.newest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		r.oldest = e.newer
	}
}

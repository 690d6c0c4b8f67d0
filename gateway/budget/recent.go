package budget

// Recent keeps a value for each of the senders that came last. It is for one goroutine at a
// time. The zero value is empty.
type Recent[K comparable, V any] struct {
	of             map[K]*entry[K, V]
	latest, oldest *entry[K, V]
}

type entry[K comparable, V any] struct {
	key          K
	value        V
	newer, older *entry[K, V]
}

// Get returns a sender's value, nil if it has none, and notes that the sender came.
func (r *Recent[K, V]) Get(k K) *V {
	e := r.of[k]
	if e == nil {
		return nil
	}
	if e != r.latest {
		r.remove(e)
		r.push(e)
	}
	return &e.value
}

// Add gives a sender that has none a zero value. If there are size values, it takes the place
// of the sender that has been silent longest.
func (r *Recent[K, V]) Add(k K, size int) *V {
	if r.of == nil {
		r.of = map[K]*entry[K, V]{}
	}
	if len(r.of) >= size {
		delete(r.of, r.oldest.key)
		r.remove(r.oldest)
	}
	e := &entry[K, V]{key: k}
	r.of[k] = e
	r.push(e)
	return &e.value
}

// Len is the number of values.
func (r *Recent[K, V]) Len() int { return len(r.of) }

func (r *Recent[K, V]) push(e *entry[K, V]) {
	e.older, e.newer = r.latest, nil
	if r.latest != nil {
		r.latest.newer = e
	} else {
		r.oldest = e
	}
	r.latest = e
}

func (r *Recent[K, V]) remove(e *entry[K, V]) {
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		r.latest = e.older
	}
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		r.oldest = e.newer
	}
}

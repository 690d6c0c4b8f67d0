// Package due keeps what is to be done in the order of its times.
package due

import "container/heap"

// Place is an item's index in its Queue, from 1 on; 0: it is in none. It is embedded in items.
type Place int

// Queued reports whether the value is in a Queue.
func (p Place) Queued() bool { return p > 0 }

func (p *Place) place() *Place { return p }

// Item is a pointer to a struct that can wait in a Queue: it has a Place embedded, and tells which of two is earlier.
type Item[T any] interface {
	comparable
	Before(other T) bool // is due sooner
	place() *Place
}

// Queue is a priority queue of items that wait for their time, the earliest first. The zero Queue is empty. An item is
// in one queue at most.
type Queue[T Item[T]] struct{ items items[T] }

// Len is the number of items.
func (q *Queue[T]) Len() int { return len(q.items) }

// First is the item that is due next; nil: there is none.
func (q *Queue[T]) First() (first T) {
	if len(q.items) > 0 {
		first = q.items[0]
	}
	return first
}

// Put has an item wait where its time belongs, also one that waits already. It reports whether that is the first place.
func (q *Queue[T]) Put(x T) bool {
	if p := *x.place(); p.Queued() {
		heap.Fix(&q.items, int(p)-1)
	} else {
		heap.Push(&q.items, x)
	}
	return q.items[0] == x
}

// Remove takes an item out, if it waits.
func (q *Queue[T]) Remove(x T) {
	if p := *x.place(); p.Queued() {
		heap.Remove(&q.items, int(p)-1)
	}
}

// items implements heap.Interface.
type items[T Item[T]] []T

func (s items[T]) Len() int           { return len(s) }
func (s items[T]) Less(i, j int) bool { return s[i].Before(s[j]) }
func (s items[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	*s[i].place(), *s[j].place() = Place(i+1), Place(j+1)
}

func (s *items[T]) Push(x any) {
	*s = append(*s, x.(T))
	*x.(T).place() = Place(len(*s))
}

func (s *items[T]) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	clear((*s)[last:])
	*s, *x.place() = (*s)[:last], 0
	return x
}

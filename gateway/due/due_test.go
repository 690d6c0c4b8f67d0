package due

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// testItem is an item with a time.
type testItem struct {
	Place
	at int
}

func (a *testItem) Before(b *testItem) bool { return a.at < b.at }

// TestQueue: after any sequence of adding, moving and removing, the queue returns the item that is due first, and each
// item knows whether it is in the queue.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[*testItem]
		all := make([]*testItem, 12)
		for i := range all {
			all[i] = &testItem{}
		}
		var in []*testItem
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			x := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
			before := slices.Index(in, x)
			if rapid.Bool().Draw(t, "put") {
				x.at = rapid.IntRange(0, 9).Draw(t, "at")
				if q.Put(x) != (q.First() == x) {
					t.Fatal("Put does not know whether it is the first")
				}
				if before < 0 {
					in = append(in, x)
				}
			} else if q.Remove(x); before >= 0 {
				in = slices.Delete(in, before, before+1)
			}
			soonest := slices.MinFunc(append(in, &testItem{at: 10}), func(a, b *testItem) int { return a.at - b.at }).at
			if first := q.First(); q.Len() != len(in) || (first == nil) != (len(in) == 0) ||
				first != nil && first.at != soonest {
				t.Fatalf("%d wait, the first is %+v; want %d, due at %d", q.Len(), first, len(in), soonest)
			}
			for _, x := range all {
				if x.Queued() != slices.Contains(in, x) {
					t.Fatalf("%+v", x)
				}
			}
		}
		for last := -1; q.Len() > 0; {
			x := q.First()
			q.Remove(x)
			if x.at < last || x.Queued() {
				t.Fatalf("%+v after %d", x, last)
			}
			last = x.at
		}
	})
}

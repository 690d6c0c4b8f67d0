package session

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// scanMax bounds how many events are scanned for each one wanted.
const scanMax = 16

// Next returns the oldest event that is not Done, and waits for one when there is
// none. It returns the same event until Done. Events must be consumed even where
// nothing is accounted: when too many are left, no client is admitted.
func (t *Table) Next(ctx context.Context) (Event, error) {
	events, err := t.NextFew(ctx, 1)
	if err != nil {
		return Event{}, err
	}
	return events[0], nil
}

// NextFew returns up to n of the oldest events that are not Done, all of different
// sessions, so that they can be accounted concurrently and each session's events
// still arrive in order. It waits for at least one until ctx ends or the table is
// closed. Events are on the disk before they are returned.
func (t *Table) NextFew(ctx context.Context, n int) ([]Event, error) {
	for {
		if err := t.enter(); err != nil {
			return nil, err
		}
		events, arrived, err := t.store.oldest(max(n, 1))
		t.life.RUnlock()
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-arrived:
		case <-t.store.closed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Done records that an event has been accounted; it is then not returned again.
// Calling it twice does no harm. It does not wait for the disk: after a crash in the
// few milliseconds until a start or an end is written, or in the next second for an
// update, the same event is returned once more.
func (t *Table) Done(e Event) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.life.RUnlock()
	if e.number == 0 {
		return errors.New("accounted an event that Next never returned")
	}
	return t.store.accounted(e.number, e.Kind != Updated)
}

// oldest returns up to n events as NextFew does, or none, and a channel that is closed
// when new ones arrive.
func (s *store) oldest(n int) (events []Event, arrived <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Read the file with mu held: an event stays in done until no later view of the file
	// can contain it.
	err = s.db.View(func(tx *bbolt.Tx) error {
		events, err = s.collect(tx.Bucket(eventsBucket).Cursor(), n)
		return err
	})
	if err != nil {
		err = fmt.Errorf("read the outbox of sessions: %w", err)
	}
	return events, s.arrived, err
}

func (s *store) collect(c *bbolt.Cursor, n int) ([]Event, error) {
	var events []Event
	known := map[string]bool{} // sessions that have an older event that is not done
	scan := n * scanMax
	for key, value := c.Seek(eventKey(s.first)); key != nil && len(events) < n && scan > 0; key, value = c.Next() {
		e, err := eventOf(key, value)
		if err != nil {
			return nil, err
		}
		if _, done := s.done[e.number]; done {
			if len(known) == 0 {
				s.first = e.number + 1
			}
			continue
		}
		scan--
		if !known[e.ID] {
			events = append(events, e)
		}
		known[e.ID] = true
	}
	return events, nil
}

// accounted has an event deleted from the file, if it is there: at once, or soon.
func (s *store) accounted(number uint64, urgent bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(eventsBucket).Get(eventKey(number)) == nil {
			return nil
		}
		s.done[number] = struct{}{}
		if urgent || len(s.done) >= doneMax {
			s.signal()
		}
		s.arm()
		return nil
	})
}

// Pending returns the number of events that are not Done, including those not yet
// written.
func (t *Table) Pending() int { return t.store.behind() }

// The table of a standby: it has the clients of another gateway, as that one's records say, until it takes over.
// Nothing of it ends or is accounted meanwhile, because Run does not run.

package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// Copy has a client be as another gateway's record says, in the data path and, within a second, on the disk: after a
// crash before that, the next daemon's data path has no more than the disk. What is to be added to the record's times
// is shift. The counts are the record's; what this data path counts from now on is added. No event is reported. A
// client that the data path cannot have is left out (datapath.ErrForeign).
func (t *Table) Copy(id datapath.ID, record []byte, shift time.Duration) error {
	s, _, err := clientOf(id, record)
	if err != nil {
		return err
	}
	for _, moment := range []*time.Time{&s.LeasedAt, &s.LeaseEnd, &s.Began, &s.Seen} {
		if !moment.IsZero() {
			*moment = moment.Add(shift)
		}
	}
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	counters, err := t.dp.Counters(id)
	if err != nil {
		return fmt.Errorf("read the counters of %s: %w", s.Key, err)
	}
	c, err := t.holdOrAddID(id, s.Addr)
	if err != nil {
		return fmt.Errorf("copy %s: %w", s.Key, err)
	}
	defer t.release(c)
	next := t.entryOf(&s)
	next.read = readingOf(counters)
	return t.copyTo(c, &next)
}

// copyTo makes next a client's entry: it closes the data path where next does not admit the client, and opens it where
// next does. op must be held.
func (t *Table) copyTo(c *client, next *entry) error {
	before := c.entry
	if before.state == Authenticated && (next.state != Authenticated || next.id != before.id) {
		if err := t.closePath(c, &before, false); err != nil {
			return err
		}
	}
	t.journal.save(c.identity, t.record(next))
	t.cutter.Schedule(before.droppedPrefixes(next)...)
	t.arm(c, next, t.clock.now())
	t.publish(c, *next)
	return t.setDatapath(c, next)
}

// Drop removes a client that another gateway no longer has, and reports no event. A missing client is no error.
func (t *Table) Drop(id datapath.ID) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	c := t.holdID(id)
	if c == nil {
		return nil
	}
	defer t.release(c)
	before := c.entry
	if err := t.closePath(c, &before, true); err != nil {
		return err
	}
	t.journal.writeLater(change{id: id})
	t.cutter.Schedule(before.droppedPrefixes(nil)...)
	t.remove(c)
	return nil
}

// Identities lists all clients.
func (t *Table) Identities() (all []datapath.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range t.clients {
		if c.state != "" {
			all = append(all, id)
		}
	}
	return all
}

// TakeOver prepares copied clients for Run. The other gateway may not have told packets of the last stale: an idle
// client's time counts from so much later. Where accounting is updated at all, an update of each session is due within
// spread.
func (t *Table) TakeOver(stale, spread time.Duration) {
	ids := t.sessions()
	for n, id := range ids {
		c := t.holdID(id)
		if c == nil {
			continue
		}
		if c.state == Authenticated {
			now, e := t.clock.now(), c.entry
			e.seen = max(e.seen, min(now, e.seen.after(stale)))
			if e.limits().Interim > 0 {
				c.tell = now.after(spread * time.Duration(n) / time.Duration(len(ids)))
			}
			t.publish(c, e)
		}
		t.release(c)
	}
}

// Renew ends each session that began before a time, and begins another in its place with what is left of its limits,
// while its client's packets pass. Both are accounted. After an error or a crash it may be called again with the same
// time.
func (t *Table) Renew(before time.Time, cause Cause) error {
	var failed error
	for _, id := range t.sessions() {
		if err := t.renew(id, before, cause); errors.Is(err, ErrClosed) {
			return err
		} else if err != nil {
			failed = err
		}
	}
	return errors.Join(failed, t.awaitSaves())
}

func (t *Table) renew(id datapath.ID, before time.Time, cause Cause) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	c := t.holdID(id)
	if c == nil {
		return nil
	}
	defer t.release(c)
	now := t.clock.now()
	if c.state != Authenticated || !t.clock.time(c.began).Before(before) {
		return nil
	}
	counters, err := t.dp.Counters(id)
	if err != nil {
		return fmt.Errorf("read the counters of %s: %w", c.key, err)
	}
	former := c.entry
	t.count(&former, counters)
	if former.bytesLeft() == 0 || now >= former.sessionEnd() { // it ends by itself
		return nil
	}
	next := former
	next.id, next.began, next.counts = NewID(), now, Counts{}
	t.limit(&next, former.rest(now))
	t.journal.writeLater(change{id: id, record: t.record(&next), events: [][]byte{
		t.event(Ended, &former, cause, now), t.event(Started, &next, "", now)}})
	t.arm(c, &next, now)
	t.publish(c, next)
	return t.setDatapath(c, &next)
}

// rest returns a session's limits without what it has used.
func (e *entry) rest(now tableTime) Limits {
	l, used := *e.limits(), e.counts
	if l.SessionTimeout > 0 {
		l.SessionTimeout = time.Duration(e.sessionEnd() - now)
	}
	for _, q := range []struct {
		limit *uint64
		used  uint64
	}{{&l.UpBytes, used.UpBytes}, {&l.DownBytes, used.DownBytes}, {&l.TotalBytes, used.UpBytes + used.DownBytes}} {
		if *q.limit > 0 {
			*q.limit -= min(*q.limit, q.used)
		}
	}
	return l
}

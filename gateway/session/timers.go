package session

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// tick is the resolution of the timers; rounding lets clients share a wakeup.
	tick = tableTime(100 * time.Millisecond)
	// saveEvery is Options.SaveEvery where that is not set. All counts are saved one after the other:
	// records share pages, and each page is then written once.
	saveEvery = tableTime(time.Minute)
	// checkMin and checkMax bound how often a quota is checked. The data path enforces the quota to the packet; the check
	// only determines how soon the end is reported.
	checkMin, checkMax = time.Second, 10 * time.Second
	checkRare          = time.Hour // for clients whose rates keep them from using the quota up before
	// interimMin bounds the rate of updates that a misconfigured server can request.
	interimMin = time.Second
	// changeSettle is how long an update about changed addresses waits for further changes, and changeEvery how long
	// after the last one it comes at the earliest.
	changeSettle, changeEvery = time.Second, 10 * time.Second
	// retryAfter is the delay before a failed action is repeated.
	retryAfter = 5 * time.Second
	// tickers is the number of clients handled concurrently: they share a write to the disk.
	tickers = 64
)

// Before implements due.Item.
func (c *client) Before(other *client) bool { return c.due < other.due }

// Run carries out timed actions: ends of leases and sessions, used up quotas, interim updates, and writing counts to
// disk. It returns nil when ctx ends, after completing what it began, and ErrClosed when the table is closed. Without
// Run the data path still enforces session times and quotas.
func (t *Table) Run(ctx context.Context) error {
	work := make(chan *client)
	var workers sync.WaitGroup
	for range tickers {
		workers.Go(func() {
			for c := range work {
				t.tick(c)
			}
		})
	}
	defer workers.Wait()
	defer close(work)
	workers.Go(func() { t.saveRegularly(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.journal.closed:
			return ErrClosed
		case <-t.duesChanged:
		case <-timer.C:
		}
		for c := t.pop(); c != nil; c = t.pop() {
			select {
			case work <- c:
			case <-ctx.Done():
				t.putBack(c)
				return nil
			}
		}
		timer.Reset(t.untilNext())
	}
}

// pop removes a due client from the heap.
func (t *Table) pop() *client {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.dues.First()
	if c == nil || c.due > t.clock.now() {
		return nil
	}
	t.dues.Remove(c)
	return c
}

// putBack undoes a pop, for the next Run.
func (t *Table) putBack(c *client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.removed {
		t.dues.Put(c)
	}
}

func (t *Table) untilNext() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.dues.First()
	if c == nil {
		return time.Hour
	}
	return time.Duration(max(c.due-t.clock.now(), 0))
}

// schedule moves a client to its place in dues. mu must be held.
func (t *Table) schedule(c *client, due tableTime) {
	if due == zeroTime {
		t.dues.Remove(c)
		return
	}
	c.due = due
	if t.dues.Put(c) {
		select {
		case t.duesChanged <- struct{}{}:
		default:
		}
	}
}

// nextDue is the next moment at which a timer of the client is due, rounded up to a tick.
func (c *client) nextDue() tableTime {
	due := c.leaseEnd
	if c.state == Authenticated {
		due = min(due, c.sessionEnd(), c.idleEnd(), c.interim, c.tell, c.check)
	}
	if due > zeroTime-tick {
		return zeroTime
	}
	return (due + tick - 1) / tick * tick
}

// arm sets the timers for a client's new or present entry e. op must be held.
func (t *Table) arm(c *client, e *entry, now tableTime) {
	c.interim, c.check = zeroTime, zeroTime
	if e.state != Authenticated || e.id != c.id {
		c.tell, c.told = zeroTime, -zeroTime
	}
	if e.state != Authenticated {
		return
	}
	c.setInterim(e, now)
	c.saved = e.counts.packets()
	if l := e.limits(); l.UpBytes > 0 || l.DownBytes > 0 || l.TotalBytes > 0 {
		c.check = now.after(checkMin)
		c.checked, c.quotaLeft, c.highest = now, e.bytesLeft(), 0
	}
}

// setInterim sets the next whole number of intervals since the session began, so that a restart does not shift updates.
func (c *client) setInterim(e *entry, now tableTime) {
	c.interim = zeroTime
	if e.limits().Interim > 0 {
		every := tableTime(max(e.limits().Interim, interimMin))
		c.interim = e.began.after(time.Duration(((now-e.began)/every + 1) * every))
	}
}

// tellSoon sets when servers are told of a session's changed addresses, where they are told updates at all.
func (c *client) tellSoon(e *entry, now tableTime) {
	if e.state == Authenticated && e.limits().Interim > 0 {
		c.tell = min(c.tell, max(now.after(changeSettle), c.told.after(changeEvery)))
	}
}

// setCheck sets the next check to when the quota is used up: at the rates that the data path enforces, or without these
// at the highest rate seen.
func (c *client) setCheck(e *entry, now tableTime) {
	left := e.bytesLeft()
	if passed := time.Duration(now - c.checked).Seconds(); passed > 0 && c.quotaLeft > left {
		c.highest = max(c.highest, float64(c.quotaLeft-left)/passed)
	}
	wait := checkMax
	if c.highest > 0 {
		seconds := min(float64(left)/c.highest, checkMax.Seconds())
		wait = max(time.Duration(seconds*float64(time.Second)), checkMin)
	}
	if up, down := e.limits().UpBps, e.limits().DownBps; up > 0 && down > 0 {
		// Unused rate is kept for a second.
		seconds := min(float64(left)*8/(float64(up)+float64(down))-1, checkRare.Seconds())
		wait = max(time.Duration(seconds*float64(time.Second)), wait)
	}
	c.check = now.after(wait)
	c.checked, c.quotaLeft = now, left
}

// tick handles a client that is due.
func (t *Table) tick(c *client) {
	if t.holdOpen() != nil {
		return
	}
	defer t.openLock.RUnlock()
	c.op.Lock()
	defer c.op.Unlock()
	if c.removed {
		return
	}
	if err := t.act(c, false); err != nil {
		t.logError(c.key, err)
		t.mu.Lock()
		t.schedule(c, t.clock.now().after(retryAfter))
		t.mu.Unlock()
	}
}

// act does a client's timed work that is due, and saves its counts if asked to. op must be held.
func (t *Table) act(c *client, save bool) error {
	now, e := t.clock.now(), c.entry
	if now >= e.leaseEnd {
		_, err := t.finish(c, nil, LeaseEnded, now)
		return unlessLater(err)
	}
	if e.state != Authenticated {
		t.publish(c, e)
		return nil
	}
	read, err := t.dp.Counters(c.identity)
	if err != nil && now < e.sessionEnd() {
		return err
	}
	if err == nil {
		renewed := read.Epoch != e.read.Epoch
		t.count(&e, read)
		if renewed { // its limits refer to lost counters
			if err := t.setDatapath(c, &e); err != nil {
				return err
			}
		}
	}
	if cause, instant := e.endOf(now); cause != "" {
		lapsed := e.withoutSession()
		_, err := t.finish(c, &lapsed, cause, instant)
		return unlessLater(err)
	}
	t.updateCounts(c, &e, now, save)
	if now >= c.check {
		c.setCheck(&e, now)
	}
	t.publish(c, e)
	return nil
}

// unlessLater returns an error of finish, but nil for ErrLater: an end that is written later needs no other attempt.
func unlessLater(err error) error {
	if errors.Is(err, ErrLater) {
		return nil
	}
	return err
}

// endOf returns the cause and time of a session's end, or no cause if it has not ended.
func (e *entry) endOf(now tableTime) (Cause, tableTime) {
	switch {
	case now >= e.sessionEnd():
		return SessionTimeout, e.sessionEnd()
	case e.bytesLeft() == 0:
		return Quota, now
	case now >= e.idleEnd():
		return IdleTimeout, now
	}
	return "", 0
}

// updateCounts reports a session's counts as an interim update if one is due, or else writes them to disk
// if asked to.
func (t *Table) updateCounts(c *client, e *entry, now tableTime, save bool) {
	update := now >= c.interim
	if update || now >= c.tell {
		if c.tell <= now {
			c.told = now
		}
		update, c.tell = true, zeroTime
		c.setInterim(e, now)
	}
	switch {
	case update && t.journal.backlogSize() < t.bounds.updates:
		t.journal.writeLater(change{id: c.identity, record: t.record(e), events: [][]byte{t.event(Updated, e, "", now)}})
	case save:
		t.journal.save(c.identity, t.record(e))
	default:
		return
	}
	c.saved = e.counts.packets()
}

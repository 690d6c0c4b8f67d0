package session

import (
	"context"
	"time"
)

// saveRegularly saves all counts every saveEvery, until ctx ends or the table is closed.
func (t *Table) saveRegularly(ctx context.Context) {
	var all []*client // kept for its memory
	for {
		now := t.clock.now()
		timer := time.NewTimer(time.Duration((now/saveEvery+1)*saveEvery - now))
		select {
		case <-timer.C:
		case <-t.store.closed:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		all = t.sessions(all[:0])
		for _, c := range all {
			if ctx.Err() != nil || t.save(c) != nil {
				return
			}
		}
		clear(all)
	}
}

// sessions appends all clients with a session.
func (t *Table) sessions(all []*client) []*client {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.clients {
		if c.state == Authenticated {
			all = append(all, c)
		}
	}
	return all
}

// save writes a client's counts to disk if they have changed since they were last written.
// Without a change it costs a reading of the counters. It fails with ErrClosed.
func (t *Table) save(c *client) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.life.RUnlock()
	c.op.Lock()
	defer c.op.Unlock()
	if c.gone || c.state != Authenticated {
		return nil
	}
	now, err := t.dp.Counters(c.key.Addr)
	if err == nil {
		e := c.entry
		t.count(&e, now)
		if now.Epoch == c.read.Epoch && e.counts.packets() == c.saved {
			return nil
		}
		err = t.act(c, true)
	}
	if err != nil {
		t.complain(c.key, err)
	}
	return nil
}

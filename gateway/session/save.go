package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// saveRegularly saves counts every t.saveEvery, until ctx ends or the table is closed.
func (t *Table) saveRegularly(ctx context.Context) {
	for {
		now := t.clock.now()
		timer := time.NewTimer(time.Duration((now/t.saveEvery+1)*t.saveEvery - now))
		select {
		case <-timer.C:
		case <-t.journal.closed:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if t.Save(ctx) != nil {
			return
		}
		if err := t.timeline.Save(); err != nil {
			t.logError(Key{}, err)
		}
	}
}

// CountedSince sets moved, a data path's report of clients that have sent packets (datapath.Running). With it, Save
// reads only the sessions of these clients; without, it reads all. It must be called before the table is used.
func (t *Table) CountedSince(moved func(f func(datapath.ID)) error) { t.countedSince = moved }

// Save writes to disk, within about a second, the counts of the sessions that have changed since they were last saved.
// It costs one pass over the data path's counters if CountedSince was called, and a reading of each changed session;
// otherwise a reading of each session. It ends with ctx, and with ErrClosed.
func (t *Table) Save(ctx context.Context) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	ids, err := t.clientsToSave()
	slices.Sort(ids) // neighbours share pages
	t.saving.retry = nil
	for n, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if n%savedAtOnce == savedAtOnce-1 && t.awaitSaves() != nil {
			t.saving.retry = append(t.saving.retry, ids[n:]...) // the disk refuses, so keep no more records in memory
			return err
		}
		if err := t.save(id); err != nil {
			return err
		}
	}
	return err
}

// savedAtOnce bounds the records that wait in memory for the disk.
const savedAtOnce = commitMax - 1

// awaitSaves waits until the records that wait are on the disk. It returns an error when the disk refuses them; they
// then wait on.
func (t *Table) awaitSaves() error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	return t.journal.sync()
}

// clientsToSave lists the clients whose counts to save: those that have sent packets, and those that could not be saved
// the last time. saving must be held.
func (t *Table) clientsToSave() (ids []datapath.ID, err error) {
	if t.countedSince == nil {
		return t.sessions(), nil
	}
	if err := t.holdOpen(); err != nil {
		return nil, err
	}
	defer t.openLock.RUnlock()
	ids = t.saving.retry
	if err := t.countedSince(func(id datapath.ID) { ids = append(ids, id) }); err != nil {
		t.logError(Key{}, fmt.Errorf("looking which sessions have traffic, to save their counts: %w", err))
	}
	return ids, nil
}

// sessions lists the clients with sessions.
func (t *Table) sessions() (ids []datapath.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range t.clients {
		if c.state == Authenticated {
			ids = append(ids, id)
		}
	}
	return ids
}

// save writes the counts of a client's session to disk, if there is one and they have changed since they were last
// written. It fails with ErrClosed.
func (t *Table) save(id datapath.ID) error {
	if err := t.holdOpen(); err != nil {
		return err
	}
	defer t.openLock.RUnlock()
	c := t.holdID(id)
	if c == nil {
		return nil
	}
	defer t.release(c)
	if c.state != Authenticated {
		return nil
	}
	now, err := t.dp.Counters(id)
	if err == nil {
		e := c.entry
		t.count(&e, now)
		if now.Epoch == c.read.Epoch && e.counts.packets() == c.saved {
			return nil
		}
		err = t.act(c, true)
	}
	if err != nil {
		t.saving.retry = append(t.saving.retry, id)
		t.logError(c.key, err)
	}
	return nil
}
